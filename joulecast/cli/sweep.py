"""`joulecast sweep`: a job on many GPUs and clocks, as table, CSV, JSON and plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import COMPARED, AsJson, Asked, asking
from .printing import Column, clock_text, left_out_lines, listing, quantity, tell, word

if TYPE_CHECKING:
    from ..queries import Sweep


@asking(*COMPARED)
def sweep(
    asked: Asked,
    plot: Annotated[
        list[Path] | None, typer.Option(help="Draw into this PNG, SVG or HTML file; repeat it for several.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every clock of each GPU, not only the best.")] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
) -> None:
    """Predict a job on many GPUs and clocks, and print a table, CSV or JSON, or draw plots."""
    from ..api.choosing import sweep as sweep_of

    compared = sweep_of(**asked)
    for path in plot or []:
        compared.plot(path)
    tell(compared, as_json, as_csv, lambda: _sweep_text(compared, every))


def _sweep_text(sweep: Sweep, every: bool) -> str:
    from ..queries.choice import incomplete_notes

    best, front = sweep.best(), set(map(id, sweep.pareto()))
    shown = sweep.rows if every or len(sweep.curves()) == 1 else sweep.best_of_each()
    columns = [
        word("GPU", "alias"),
        word("precision", "precision"),
        Column("batch", lambda row: "-" if row.batch_size is None else str(row.batch_size)),
        Column("clock MHz", clock_text),
        quantity("time", "time_s", "s"),
        quantity("power", "power_w", "W"),
        quantity("energy", "energy_j", "J"),
        quantity("EDP", "edp_js", "Js"),
        Column("", lambda row: "best" if row is best else "front" if id(row) in front else "", right=False),
    ]
    rest = len(sweep) - len(shown)
    more = [f"the best clock of each; --all, --csv, --json and --plot show {rest} more rows"] if rest else []
    notes = [*more, *incomplete_notes(sweep), *left_out_lines(sweep.left_out)]
    return "\n".join([listing(shown, columns), *notes])
