"""`joulecast best`: choose a GPU and its clock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import parse_shapes, titled
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
    from ..queries import Choice


def best(
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
    max_time: Annotated[float | None, typer.Option(help="Deadline: most seconds that an iteration may take.")] = None,
    max_power: Annotated[
        float | None, typer.Option(help="Power budget: most watts of mean board power over an iteration.")
    ] = None,
    price: PricePerHour = None,
    kwh_price: PricePerKwh = None,
    carbon: Carbon = None,
    predictor: Predictor = None,
    execution: Execution = "eager",
    host: HostOption = None,
    top: Annotated[int, typer.Option(min=0, help="Number of choices to show; 0 for all.")] = 10,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the choices as CSV.")] = False,
) -> None:
    """Choose the best GPU and clock for a job.

    Shows the best clock of each GPU, precision and batch size; the best choice comes first.
    """
    from ..api.choosing import best as best_of
    from ..queries.choice import incomplete_notes
    from ..queries.objectives import OBJECTIVES

    refuse_both(as_json, as_csv)
    shapes = parse_shapes(input_shape)
    network, options = model_and_options(model, model_option)
    asked_mode = mode_of(training, mode)
    choices = best_of(
        network,
        shapes,
        objective=objective,
        gpus=names(gpu),
        clocks=clocks_mhz(clocks),
        power_limit_w=power_limit,
        mode=asked_mode,
        precision=names(precision) or "default",
        batch_sizes=batch_sizes(batches),
        cache_length=cache_length,
        optimizer=optimizer,
        assume=assumed(assume),
        model_options=options,
        predictor=predictor,
        execution=execution,
        host=host,
        max_time_s=max_time,
        max_power_w=max_power,
        price_per_hour=price_per_hour(price),
        price_per_kwh=kwh_price,
        carbon=carbon,
    )
    if as_json:
        typer.echo(json.dumps([choice.to_dict() for choice in choices], indent=1))
        return
    if as_csv:
        typer.echo(choices.to_csv(), nl=False)
        return
    per_sample = " per sample" if len({choice.batch_size for choice in choices}) > 1 else ""
    words = OBJECTIVES[objective].words.removesuffix(per_sample)
    typer.echo(f"{titled(model, shapes)}, {asked_mode}, per iteration: least {words}{per_sample}\n")
    typer.echo(_choices_text(choices, top))
    for line in (*incomplete_notes(choices), *left_out_lines(choices.left_out)):
        typer.echo(line)


def _choices_text(choices: list[Choice], top: int) -> str:
    from ..queries.objectives import OBJECTIVES

    shown = choices[: top or None]
    several_precisions = len({choice.precision for choice in choices}) > 1
    several_batches = len({choice.batch_size for choice in choices}) > 1
    incomplete = any(choice.uncovered for choice in choices)
    objective = OBJECTIVES[shown[0].objective]
    extra = several_batches or objective.name not in ("energy", "time", "edp")
    header = ["", "GPU", "clock MHz", "time", "power", "energy", "EDP", "measured", "predictor"]
    rows = [
        [
            "best" if place == 0 else "tied" if choice.tied else str(place + 1),
            choice.alias,
            clock_text(choice),
            si(choice.time_s, "s"),
            si(choice.power_w, "W"),
            si(choice.energy_j, "J"),
            si(choice.edp_js, "Js"),
            "yes" if choice.measured else "no",
            choice.predictor,
            *([choice.precision] if several_precisions else []),
            *([str(choice.batch_size)] if several_batches else []),
            *([objective.text(choice.value)] if extra else []),
            *([choice.uncovered_text] if incomplete else []),
        ]
        for place, choice in enumerate(shown)
    ]
    header += ["precision"] if several_precisions else []
    header += ["batch"] if several_batches else []
    header += [objective.words + (" per sample" if several_batches else "")] if extra else []
    header += ["not covered"] if incomplete else []
    text = table(header, rows, frozenset({2, 3, 4, 5, 6}))
    if len(choices) > len(shown):
        text += f"\nand {len(choices) - len(shown)} more"
    return text
