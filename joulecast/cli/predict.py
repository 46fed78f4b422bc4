"""`joulecast predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..operations.operation_list import operation_text
from ..units import number, si
from .options import Asked
from .printing import LEVEL, Column, listing, quantity, table, tell, totals, word

if TYPE_CHECKING:
    from ..predictors.networks.memory_levels import MemoryLevels
    from ..predictors.networks.prediction import Prediction


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
    from ..predictors.networks.operation_cost import by_cost

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
