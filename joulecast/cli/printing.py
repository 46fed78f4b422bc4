"""What commands print: answers as JSON, CSV, text and pictures; tables, and lines about what was left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ..rendering.answers import table_csv
from ..units import NOT_MEASURED, number, si

_NAMED, _LINES = 4, 8
"""Most GPUs that are named per line, and most lines, in the list of GPUs that were left out."""


@dataclass(frozen=True)
class Shown:
    """How an answer is shown, as --json, --csv, --plot, --top and --pareto say."""

    pareto: bool = False
    top: int = 10
    as_json: bool = False
    as_csv: bool = False
    plot: Path | None = None

    def tell(self, answer: Any, text: Callable[[], str], drawn: Any = None) -> None:
        """Print an answer of the library as JSON, as CSV, or as `text` makes it, and draw it, or `drawn`."""
        self.draw(drawn or answer)
        if self.as_csv:
            typer.echo(answer.to_csv(), nl=False)
        else:
            typer.echo(json.dumps(answer.to_dict(), indent=1) if self.as_json else text())

    def draw(self, answer: Any) -> None:
        """Draw an answer into the file that --plot names."""
        if self.plot is not None:
            answer.plot(self.plot)

    def tell_ways(self, choices: Any, text: Callable[[Any], str], beneath: Sequence[str] = ()) -> None:
        """Print `Ways` to do something, or their front, with the GPUs that were left out, and lines below."""
        ways = choices.pareto() if self.pareto else choices
        if self.as_csv and self.pareto:
            typer.echo(table_csv(*choices.table_of(ways)), nl=False)
        else:
            lines = [*reason_lines(choices.left_out.items()), *beneath]
            self.tell(choices, lambda: "\n".join([text(ways), *lines]))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Format a table with columns as wide as their longest cell; those in `right` are right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


class Column(NamedTuple):
    """A column of a table of choices.

    Args:
        title: Text in the header.
        text: Function from a choice to its cell; None where it has none. A column in which no choice has one is left
            out.
        right: Whether cells are right-aligned.
        shown: Whether the table has the column.
    """

    title: str
    text: Callable[[Any], str | None]
    right: bool = True
    shown: bool = True


Unit = str | Callable[[Any], str]


def _written(unit: Unit) -> Callable[[Any], str]:
    return unit if callable(unit) else partial(si, unit=unit)


def quantity(title: str, field: str, unit: Unit) -> Column:
    """A column with a field of each choice in its unit, or as a function writes it, where it is known."""
    written = _written(unit)
    return Column(title, lambda row: None if (value := getattr(row, field)) is None else written(value))


def word(title: str, field: str, shown: bool = True) -> Column:
    """A left-aligned column with a field of each choice as text."""
    return Column(title, lambda row: str(getattr(row, field)), right=False, shown=shown)


def listing(rows: Sequence[Any], columns: Sequence[Column], top: int = 0) -> str:
    """A table of the first rows, all for 0, and how many more there are."""
    shown = rows[: top or None]
    cells = [(column, [column.text(row) for row in shown]) for column in columns if column.shown]
    kept = [(column, texts) for column, texts in cells if any(text is not None for text in texts)]
    lines = [["-" if texts[at] is None else str(texts[at]) for _, texts in kept] for at in range(len(shown))]
    right = frozenset(place for place, (column, _) in enumerate(kept) if column.right)
    text = table([column.title for column, _ in kept], lines, right)
    return text + (f"\nand {len(rows) - len(shown)} more" if len(rows) > len(shown) else "")


LEVEL = 0.9
"""Level of the intervals that commands print."""


def totals(found: Any, interval: Any, quantities: Iterable[tuple[str, str, Unit]], title: str = "") -> str:
    """Quantities with their intervals, as a table.

    Those that are not known are left out, but energy. Each is a title, the name of a field, and its unit or a function
    that gives its text; `title` is that of the first column.
    """
    rows = []
    for what, name, unit in quantities:
        value, low_high, text = getattr(found, name), getattr(interval, name, None), _written(unit)
        if value is None and name == "energy_j":
            rows.append([what, NOT_MEASURED, ""])
        elif value is not None:
            rows.append([what, text(value), f"{text(low_high[0])} to {text(low_high[1])}" if low_high else ""])
    return table([title, "predicted", f"{100 * LEVEL:.0f} % interval" if interval else ""], rows, frozenset({1}))


def kwh(joules: float) -> str:
    """Joules in kilowatt-hours."""
    return f"{number(joules / 3.6e6)} kWh"


def kilograms(value: float) -> str:
    """Kilograms of carbon dioxide."""
    return f"{number(value)} kg CO2e"


money = "{:,.2f}".format


def reason_lines(left_out: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason, from pairs of a name that was left out and the reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out:
        by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"left out: {', '.join(names[:_NAMED])}{more}: {reason}")
    return lines[:_LINES] + ([f"and {len(lines) - _LINES} more reasons"] if len(lines) > _LINES else [])
