"""`joulecast sweep`: a job on many GPUs and clocks, as table, CSV, JSON and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import parse_shapes
from ..units import si
from .arguments import (
    AsJson,
    CacheLength,
    Execution,
    HostOption,
    Model,
    ModeOption,
    Optimizer,
    Predictor,
    Shapes,
    Training,
    mode_of,
    refuse_both,
    table,
)
from .models import Assumed, ModelOptions, assumed, model_and_options
from .queries import (
    BatchSizes,
    Carbon,
    Clocks,
    Gpus,
    Objective,
    PowerLimit,
    Precisions,
    PricePerHour,
    PricePerKwh,
    batch_sizes,
    clock_text,
    clocks_mhz,
    left_out_lines,
    names,
    price_per_hour,
)

if TYPE_CHECKING:
    from ..queries import Sweep


def sweep(
    model: Model,
    input_shape: Shapes = None,
    objective: Objective = "energy",
    gpu: Gpus = None,
    clocks: Clocks = None,
    power_limit: PowerLimit = None,
    training: Training = False,
    mode: ModeOption = None,
    precision: Precisions = None,
    batches: BatchSizes = None,
    cache_length: CacheLength = None,
    optimizer: Optimizer = None,
    model_option: ModelOptions = None,
    assume: Assumed = None,
    price: PricePerHour = None,
    kwh_price: PricePerKwh = None,
    carbon: Carbon = None,
    predictor: Predictor = None,
    execution: Execution = "eager",
    host: HostOption = None,
    plot: Annotated[
        list[Path] | None, typer.Option(help="Draw into this PNG, SVG or HTML file; repeat it for several.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every clock of each GPU, not only the best.")] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
) -> None:
    """Predict a job on many GPUs and clocks, and print a table, CSV or JSON, or draw plots."""
    from ..api.choosing import sweep as sweep_of

    refuse_both(as_json, as_csv)
    network, options = model_and_options(model, model_option)
    found = sweep_of(
        network,
        parse_shapes(input_shape),
        objective=objective,
        gpus=names(gpu),
        clocks=clocks_mhz(clocks),
        power_limit_w=power_limit,
        mode=mode_of(training, mode),
        precision=names(precision) or "default",
        batch_sizes=batch_sizes(batches),
        cache_length=cache_length,
        optimizer=optimizer,
        assume=assumed(assume),
        model_options=options,
        predictor=predictor,
        execution=execution,
        host=host,
        price_per_hour=price_per_hour(price),
        price_per_kwh=kwh_price,
        carbon=carbon,
    )
    for path in plot or []:
        found.plot(path)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    elif as_csv:
        typer.echo(found.to_csv(), nl=False)
    else:
        typer.echo(_sweep_text(found, every))


def _sweep_text(sweep: Sweep, every: bool) -> str:
    from ..queries.choice import incomplete_notes

    best, front = sweep.best(), set(map(id, sweep.pareto()))
    shown = sweep.rows if every or len(sweep.curves()) == 1 else sweep.best_of_each()
    rows = [
        [
            row.alias,
            row.precision,
            "-" if row.batch_size is None else str(row.batch_size),
            clock_text(row),
            si(row.time_s, "s"),
            si(row.power_w, "W"),
            si(row.energy_j, "J"),
            si(row.edp_js, "Js"),
            "best" if row is best else "front" if id(row) in front else "",
        ]
        for row in shown
    ]
    header = ["GPU", "precision", "batch", "clock MHz", "time", "power", "energy", "EDP", ""]
    rest = len(sweep) - len(shown)
    more = [f"the best clock of each; --all, --csv, --json and --plot show {rest} more rows"] if rest else []
    notes = [*more, *incomplete_notes(sweep), *left_out_lines(sweep.left_out)]
    return "\n".join([table(header, rows, frozenset(range(2, 8))), *notes])
