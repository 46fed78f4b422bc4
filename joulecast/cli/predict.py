"""`joulecast predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes, titled
from ..operations.operation_text import operation_text
from ..units import si
from .arguments import (
    AsCsv,
    AsJson,
    CacheLength,
    Clock,
    Execution,
    HostOption,
    Model,
    ModeOption,
    Optimizer,
    Precision,
    Predictor,
    Shapes,
    Top,
    Training,
    mode_of,
    refuse_both,
    table,
)
from .models import Assumed, ModelOptions, assumed, model_and_options

if TYPE_CHECKING:
    from ..predictors.networks.memory_levels import MemoryLevels
    from ..predictors.networks.operation_cost import OperationCost
    from ..predictors.networks.prediction import Prediction

_LEVEL = 0.9


def predict(
    model: Model,
    input_shape: Shapes = None,
    gpu: Annotated[
        str, typer.Option(help="GPU from the catalogue, such as A30, or a TOML file that describes one.")
    ] = "",
    clock: Clock = None,
    power_limit: Annotated[
        float | None, typer.Option(help="Power cap in watts. Default: the board's own default.")
    ] = None,
    training: Training = False,
    mode: ModeOption = None,
    precision: Precision = "default",
    cache_length: CacheLength = None,
    optimizer: Optimizer = None,
    model_option: ModelOptions = None,
    assume: Assumed = None,
    predictor: Predictor = None,
    execution: Execution = "eager",
    host: HostOption = None,
    composition: Annotated[
        str | None,
        typer.Option(help="How operations add up to a network: overlap or sum. Default: the predictor's choice."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if an operation is not covered.")] = False,
    top: Top = 10,
    tree: Annotated[bool, typer.Option("--tree", help="Show the energy of modules instead of operations.")] = False,
    depth: Annotated[int, typer.Option(min=0, help="Levels of the tree to show; 0 for all.")] = 3,
    by_memory_level: Annotated[
        bool, typer.Option("--by-memory-level", help="Show the energy of static power, memory levels and arithmetic.")
    ] = False,
    ncu: Annotated[
        Path | None, typer.Option(help="Compare traffic with counters of one iteration that `ncu --csv` wrote.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Predict time, power and energy of one iteration of a model on a GPU."""
    from ..api import predict as predict_network

    refuse_both(as_json, as_csv)
    if not gpu:
        raise InputError(
            "a prediction needs a GPU",
            given="no --gpu",
            allowed="such as --gpu A30",
            hint="`joulecast gpus` lists them",
        )
    network, options = model_and_options(model, model_option)
    prediction = predict_network(
        network,
        parse_shapes(input_shape),
        gpu,
        clock,
        power_limit_w=power_limit,
        mode=mode_of(training, mode),
        precision=precision,
        cache_length=cache_length,
        optimizer=optimizer,
        assume=assumed(assume),
        model_options=options,
        predictor=predictor,
        execution=execution,
        host=host,
        composition=composition,
        strict=strict,
    )
    if by_memory_level or ncu is not None:
        levels = prediction.by_memory_level(gpu)
        typer.echo(
            json.dumps(levels.to_dict(), indent=1)
            if as_json
            else levels.to_csv()
            if as_csv
            else _levels_text(levels, ncu)
        )
    elif as_json:
        typer.echo(json.dumps(prediction.to_dict(), indent=1))
    elif as_csv:
        typer.echo(prediction.to_csv(), nl=False)
    elif tree:
        typer.echo(prediction.tree().to_text(depth))
    else:
        typer.echo(_prediction_text(prediction, top))


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


def _range_text(low_high: tuple[float, float] | None, unit: str) -> str:
    return "" if low_high is None else f"{si(low_high[0], unit)} to {si(low_high[1], unit)}"


def _prediction_text(prediction: Prediction, top: int) -> str:
    interval = prediction.interval(_LEVEL) if prediction.supports(_LEVEL) else None
    totals = [
        ["time", si(prediction.time_s, "s"), _range_text(interval.time_s if interval else None, "s")],
        ["power", si(prediction.power_w, "W"), _range_text(interval.power_w if interval else None, "W")],
        ["energy", si(prediction.energy_j, "J"), _range_text(interval.energy_j if interval else None, "J")],
        ["energy-delay product", si(prediction.edp_js, "Js"), _range_text(interval.edp_js if interval else None, "Js")],
    ]
    if prediction.samples_per_s is not None:
        totals.append(["throughput", f"{prediction.samples_per_s:,.4g} samples/s", ""])
    if prediction.memory_bytes is not None:
        totals.append(["memory needed", f"{prediction.memory_bytes / 2**30:.1f} GiB", ""])
    header = ["per iteration", "predicted", f"{100 * _LEVEL:.0f} % interval" if interval else ""]
    bound = "host" if prediction.host_time_s > prediction.device_time_s else "device"
    parts = [
        f"{titled(prediction.network, prediction.input_shape)}, {prediction.mode}, on {prediction.gpu} at "
        f"{prediction.clock_mhz:g} MHz{_throttled_text(prediction)}",
        "",
        table(header, totals, frozenset({1})),
        *(["", str(prediction.coverage)] if prediction.uncovered else []),
        "",
        f"bound by the {bound}: device {si(prediction.device_time_s, 's')}, host {si(prediction.host_time_s, 's')}; "
        f"predictor {prediction.predictor}, composition {prediction.composition}",
        "",
        _cost_table(prediction, top),
    ]
    if prediction.uncovered:
        listed = "\n".join(f"  {uncovered}" for uncovered in prediction.uncovered)
        parts += ["", f"not covered, and not in the totals:\n{listed}"]
    notes = [note for note in prediction.notes if note != str(prediction.coverage)]
    parts += ["", *(f"note: {note}" for note in notes)] if notes else []
    return "\n".join(parts)


def _throttled_text(prediction: Prediction) -> str:
    if prediction.held_clock_mhz > 0.99 * prediction.clock_mhz:
        return ""
    return f" (held to {prediction.held_clock_mhz:.0f} MHz by its cap of {prediction.power_limit_w:g} W)"


def _cost_table(prediction: Prediction, top: int) -> str:
    costs = sorted(
        (cost for cost in prediction.operations if cost.energy_j is not None), key=lambda cost: -(cost.energy_j or 0.0)
    )
    shown = costs[: top or None]
    rows = [_cost_row(cost, prediction.energy_j) for cost in shown]
    text = table(
        ["operation", "calls", "device time", "power", "energy", "share", "bound by", "source"],
        rows,
        frozenset({1, 2, 3, 4, 5}),
    )
    rest = costs[len(shown) :]
    if rest:
        joules = sum(cost.energy_j or 0.0 for cost in rest)
        text += f"\nand {len(rest)} more operations: {si(joules, 'J')}, {100 * joules / prediction.energy_j:.1f} %"
    return text


def _cost_row(cost: OperationCost, total_j: float) -> list[str]:
    return [
        operation_text(cost.operation),
        str(cost.count),
        si(cost.device_time_s, "s"),
        si(cost.power_w, "W"),
        si(cost.energy_j, "J"),
        f"{100 * (cost.energy_j or 0.0) / total_j:.1f} %",
        cost.bound_by,
        cost.source,
    ]
