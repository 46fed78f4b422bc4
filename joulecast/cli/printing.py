"""What commands print: answers as JSON, CSV, text and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ..rendering.answers import table_csv
from ..rendering.described import Grid


@dataclass(frozen=True)
class Shown:
    """How an answer is shown, as --json, --csv, --plot, --top and --pareto say."""

    pareto: bool = False
    top: int = 10
    as_json: bool = False
    as_csv: bool = False
    plot: Path | None = None

    def tell(self, answer: Any, text: Callable[[], object] | None = None, drawn: Any = None) -> None:
        """Print an answer as JSON, as CSV, or what it or `text` says; and draw it, or `drawn`."""
        self.draw(drawn or answer)
        if self.as_csv:
            typer.echo(answer.to_csv(), nl=False)
        else:
            said = text or answer.described
            typer.echo(json.dumps(answer.to_dict(), indent=1) if self.as_json else str(said()))

    def draw(self, answer: Any) -> None:
        """Draw an answer into the file that --plot names."""
        if self.plot is not None:
            answer.plot(self.plot)

    def tell_ways(self, choices: Any, title: str, beneath: Sequence[str] = ()) -> None:
        """Print `Ways` to do something, or their front, below a title, with lines at the end."""
        if self.as_csv and self.pareto:
            typer.echo(table_csv(*choices.table_of(choices.pareto())), nl=False)
            return
        said = replace(choices.described(self.top, self.pareto), title=title)
        self.tell(choices, lambda: "\n".join([str(said), *beneath]))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """A table as text; columns in `right` are right-aligned."""
    return str(Grid(header, rows, right))
