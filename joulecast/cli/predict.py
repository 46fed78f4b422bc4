"""`joulecast predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import InputError
from ..operations.inputs import titled
from ..operations.operation_list import operation_text
from ..units import number, si
from .options import Asked
from .printing import LEVEL, Column, clock_text, left_out_lines, listing, quantity, table, tell, totals, word

if TYPE_CHECKING:
    from ..predictors.networks.memory_levels import MemoryLevels
    from ..predictors.networks.prediction import Prediction
    from ..queries import Choice, Choices, Sweep


def predict(
    asked: Asked,
    gpu: str = "",
    composition: str | None = None,
    strict: bool = False,
    top: int = 10,
    tree: bool = False,
    depth: int = 3,
    by_memory_level: bool = False,
    ncu: Path | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    plot: Path | None = None,
) -> None:
    """Predict time, power and energy of one iteration of a model on a GPU."""
    from ..api import predict as predict_network

    if not gpu:
        raise InputError(
            "a prediction needs a GPU",
            given="no --gpu",
            allowed="such as --gpu A30",
            hint="`joulecast gpus` lists them",
        )
    prediction = predict_network(gpu=gpu, composition=composition, strict=strict, **asked)
    if by_memory_level or ncu is not None:
        levels = prediction.by_memory_level(gpu)
        tell(levels, as_json, as_csv, lambda: _levels_text(levels, ncu), plot)
    else:
        text = (lambda: prediction.tree().to_text(depth)) if tree else (lambda: _prediction_text(prediction, top))
        tell(prediction, as_json, as_csv, text)
        if plot is not None:
            (prediction.tree() if tree else prediction).plot(plot)


def _levels_text(levels: MemoryLevels, ncu: Path | None) -> str:
    if ncu is None:
        return str(levels)
    from ..hardware.ncu import read_counters

    rows = [
        [level, si(predicted, "B"), si(counted, "B"), f"{predicted / counted:.2f}" if counted else "-"]
        for level, (predicted, counted) in levels.compare_traffic(read_counters(ncu)).items()
    ]
    compared = table(["traffic", "predicted", "counted", "predicted / counted"], rows, frozenset({1, 2, 3}))
    return f"{levels}\n\n{compared}"


def _prediction_text(prediction: Prediction, top: int) -> str:
    interval = prediction.interval(LEVEL) if prediction.supports(LEVEL) else None
    quantities = [
        ("time", "time_s", "s"),
        ("power", "power_w", "W"),
        ("energy", "energy_j", "J"),
        ("energy-delay product", "edp_js", "Js"),
        ("throughput", "samples_per_s", lambda value: f"{number(value, 4)} samples/s"),
        ("memory needed", "memory_bytes", "B"),
    ]
    parts = [
        f"{prediction.title}{_throttled_text(prediction)}",
        "",
        totals(prediction, interval, quantities, "per iteration"),
        *(["", str(prediction.coverage)] if prediction.uncovered else []),
        "",
        f"{_composed_text(prediction)}; predictor {prediction.predictor}, composition {prediction.composition}",
        "",
        _cost_table(prediction, top),
    ]
    if prediction.uncovered:
        listed = "\n".join(f"  {uncovered}" for uncovered in prediction.uncovered)
        parts += ["", f"not covered, and not in the totals:\n{listed}"]
    notes = [note for note in prediction.notes if note != str(prediction.coverage)]
    parts += ["", *(f"note: {note}" for note in notes)] if notes else []
    return "\n".join(parts)


def _composed_text(prediction: Prediction) -> str:
    """What the time consists of: host and device that overlap, or operations one after the other on a CPU."""
    device, host = si(prediction.device_time_s, "s"), si(prediction.host_time_s, "s")
    if prediction.composition == "serial":
        return f"operations {device}, between them {host}"
    bound = "host" if prediction.host_time_s > prediction.device_time_s else "device"
    return f"bound by the {bound}: device {device}, host {host}"


def _throttled_text(prediction: Prediction) -> str:
    if prediction.clock_mhz is None or prediction.held_clock_mhz is None:
        return ""
    if prediction.held_clock_mhz > 0.99 * prediction.clock_mhz:
        return ""
    return f" (held to {prediction.held_clock_mhz:.0f} MHz by its cap of {prediction.power_limit_w:g} W)"


def _cost_table(prediction: Prediction, top: int) -> str:
    from ..predictors.networks.costs import by_cost

    costs = [cost for cost in by_cost(prediction.operations) if cost.source != "missing"]
    shown = costs[: top or None]
    whole = _cost(prediction.energy_j, prediction.device_time_s)
    columns = [
        Column("operation", lambda cost: operation_text(cost.operation), right=False),
        Column("calls", lambda cost: str(cost.count)),
        quantity("device time", "device_time_s", "s"),
        quantity("power", "power_w", "W"),
        quantity("energy", "energy_j", "J"),
        Column("share", lambda cost: f"{100 * _cost(cost.energy_j, cost.device_time_s) / whole:.1f} %"),
        word("bound by", "bound_by"),
        word("source", "source"),
    ]
    text = listing(shown, columns)
    rest = costs[len(shown) :]
    if rest:
        unit = "s" if prediction.energy_j is None else "J"
        sum_of_rest = sum(_cost(cost.energy_j, cost.device_time_s) for cost in rest)
        text += f"\nand {len(rest)} more operations: {si(sum_of_rest, unit)}, {100 * sum_of_rest / whole:.1f} %"
    return text


def _cost(energy_j: float | None, time_s: float | None) -> float:
    """Joules, or seconds where no energy is known."""
    return (time_s or 0.0) if energy_j is None else energy_j


# `joulecast best` and `joulecast sweep`: a job on many GPUs and clocks.

_COSTS = (
    Column("clock MHz", clock_text),
    quantity("time", "time_s", "s"),
    quantity("power", "power_w", "W"),
    quantity("energy", "energy_j", "J"),
    quantity("EDP", "edp_js", "Js"),
)


def best(
    asked: Asked,
    max_time: float | None = None,
    max_power: float | None = None,
    top: int = 10,
    as_json: bool = False,
    as_csv: bool = False,
    plot: Path | None = None,
) -> None:
    """Choose the best GPU and clock for a job.

    Shows the best clock of each GPU, precision and batch size; the best choice comes first.
    """
    from ..api.choosing import best as best_of

    choices = best_of(max_time_s=max_time, max_power_w=max_power, **asked)
    if as_json:
        typer.echo(json.dumps([choice.to_dict() for choice in choices], indent=1))
    else:
        tell(choices, False, as_csv, lambda: _text(asked, choices, top))
    if plot is not None:
        choices.plot(plot)


def _text(asked: Asked, choices: Choices, top: int) -> str:
    from ..queries.choice import incomplete_notes
    from ..queries.objectives import OBJECTIVES

    per_sample = " per sample" if len({choice.batch_size for choice in choices}) > 1 else ""
    words = OBJECTIVES[asked["objective"]].words.removesuffix(per_sample)
    job = f"{titled(asked.given['model'], asked['input_shape'])}, {asked['mode']}"
    return "\n".join(
        [
            f"{job}, per iteration: least {words}{per_sample}\n",
            _choices_text(choices, top),
            *incomplete_notes(choices),
            *left_out_lines(choices.left_out),
        ]
    )


def _choices_text(choices: Choices, top: int) -> str:
    from ..queries.objectives import OBJECTIVES

    objective = OBJECTIVES[choices[0].objective]
    several_batches = len({choice.batch_size for choice in choices}) > 1
    places = {id(choice): str(place) for place, choice in enumerate(choices, 1)}

    def place(choice: Choice) -> str:
        return "best" if choice is choices[0] else "tied" if choice.tied else places[id(choice)]

    columns = [
        Column("", place, right=False),
        word("GPU", "alias"),
        *_COSTS,
        Column("measured", lambda choice: "yes" if choice.measured else "no", right=False),
        word("predictor", "predictor"),
        word("precision", "precision", len({choice.precision for choice in choices}) > 1),
        word("batch", "batch_size", several_batches),
        Column(
            objective.words + (" per sample" if several_batches else ""),
            lambda choice: objective.text(choice.value),
            right=False,
            shown=several_batches or objective.name not in ("energy", "time", "edp"),
        ),
        word("not covered", "uncovered_text", any(choice.uncovered for choice in choices)),
    ]
    return listing(choices, columns, top)


def sweep(
    asked: Asked, plot: list[Path] | None = None, every: bool = False, as_json: bool = False, as_csv: bool = False
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
        *_COSTS,
        Column("", lambda row: "best" if row is best else "front" if id(row) in front else "", right=False),
    ]
    rest = len(sweep) - len(shown)
    more = [f"the best clock of each; --all, --csv, --json and --plot show {rest} more rows"] if rest else []
    notes = [*more, *incomplete_notes(sweep), *left_out_lines(sweep.left_out)]
    return "\n".join([listing(shown, columns), *notes])
