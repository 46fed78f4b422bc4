"""`joulecast account merge`, and what `--repeat` prints: accountings of several ranks or of several runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..units import si
from .options import AsJson
from .printing import table

if TYPE_CHECKING:
    from ..energy import EnergyTree


def merge(
    accounts: Annotated[list[Path], typer.Argument(help="What `joulecast account ... --json` printed on each rank.")],
    depth: Annotated[int, typer.Option(min=0, help="Levels of the tree to show; 0 for all.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Merge the accountings of the ranks of a parallel training: joules are added, the longest time counts."""
    from ..energy import EnergyTree
    from ..energy.comparison import merged

    trees = {}
    for path in accounts:
        try:
            trees[path.stem] = EnergyTree.from_dict(json.loads(path.read_text("utf-8"))["tree"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "this file is not an accounting",
                given=f"{path}: {error}",
                allowed="what `joulecast account ... --json` prints",
                hint="write the output of each rank to a file of its own",
            ) from error
    tree = merged(f"{len(trees)} ranks", trees)
    typer.echo(json.dumps(tree.to_dict(), indent=1) if as_json else tree.to_text(depth))


def repeats_text(trees: Sequence[EnergyTree], top: int, bars_file: Path | None) -> str:
    """The largest parts of several equal runs, with mean and standard deviation.

    Args:
        trees: A tree for each run.
        top: How many parts to list.
        bars_file: SVG file in which they are drawn; None for no drawing.
    """
    from ..energy.comparison import repeated
    from ..rendering.notebook import Bar, bars

    parts = repeated(trees)[:top]
    unit = "J" if parts and parts[0].energy_j else "s"
    rows, drawn = [], []
    for part in parts:
        text = f"{si(part.mean, unit)} +- {si(part.deviation, unit)}"
        rows.append([part.path or "(model)", part.name, part.phase, text])
        ends = max(0.0, part.mean - part.deviation), part.mean + part.deviation
        drawn.append(Bar(f"{part.path} {part.name} {part.phase}", part.mean, text, ends))
    title = f"{len(trees)} runs, mean and standard deviation"
    if bars_file is not None:
        bars_file.write_text(bars(drawn, title) + "\n", "utf-8")
    return f"{title}\n\n" + table(["module", "operator", "phase", "energy" if unit == "J" else "time"], rows)
