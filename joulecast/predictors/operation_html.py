"""Predictions of single operations, and explanations, as Jupyter shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..operations.operation_list import operation_text
from ..rendering.notebook import Bar, Picture, as_html, as_picture, bars, document, notes, short, table
from ..units import si
from .explanation import Explanation
from .operation_predictions import OperationPredictions

_SHOWN = 20
_CAUSES = 8


@as_html.register(OperationPredictions)
def predictions_html(predictions: OperationPredictions) -> str:
    """A table with a row for each operation."""
    columns = (predictions.time_s, predictions.power_w, predictions.energy_j)
    rows = []
    for operation, source, *values in zip(predictions.operations, predictions.source, *columns, strict=True):
        time, power, energy = (_known(value, unit) for value, unit in zip(values, ("s", "W", "J"), strict=True))
        rows.append([operation_text(operation), time, power, energy, source])
    more = [f"and {len(rows) - _SHOWN} more operations"] if len(rows) > _SHOWN else []
    return document(
        f"{len(rows)} operations, each alone in a loop",
        table(["operation", "time", "power", "energy", "source"], rows[:_SHOWN], frozenset({1, 2, 3})),
        notes(more),
    )


@as_picture.register(OperationPredictions)
def predictions_plot(predictions: OperationPredictions) -> Picture:
    """Bars: the energy of each operation that is known."""
    items = [
        Bar(short(operation_text(operation)), energy, si(energy, "J"))
        for operation, energy in zip(predictions.operations, predictions.energy_j.tolist(), strict=True)
        if not math.isnan(energy)
    ]
    return Picture(bars(items[:_SHOWN], "Energy of operations"))


@as_html.register(Explanation)
def explanation_html(explanation: Explanation) -> str:
    """What bounds an operation, what it costs, similar measured operations, and the effect of each input."""
    e = explanation
    interval = e.interval
    rows = []
    for title, value, unit, low_high in (
        ("time", e.time_s, "s", interval and interval.time_s),
        ("power", e.power_w, "W", interval and interval.power_w),
        ("energy", e.energy_j, "J", interval and interval.energy_j),
    ):
        between = f"{si(float(low_high[0][0]), unit)} to {si(float(low_high[1][0]), unit)}" if low_high else ""
        rows.append([title, _known(value, unit), "" if "nan" in between else between])
    parts = [
        table(
            ["in a loop", "predicted", f"{100 * interval.level:.0f} % interval" if interval else ""],
            rows,
            frozenset({1}),
        )
    ]
    if e.nearest:
        near = [
            [operation_text(n.operation), f"{n.distance:.2f}", si(n.time_s, "s"), si(n.energy_j, "J")]
            for n in e.nearest
        ]
        parts.append(table(["nearest that were measured", "distance", "time", "energy"], near, frozenset({1, 2, 3})))
    for quantity, found in (e.contributions or {}).items():
        moved = [[c.name, "" if math.isnan(c.value) else f"{c.value:.3g}", _effect(quantity, c.effect)] for c in found]
        parts.append(table([f"what moved {quantity}", "value", "effect"], moved[:_CAUSES], frozenset({1, 2})))
    busy, least = si(e.device_time_s, "s"), si(max(e.compute_s, e.memory_s), "s")
    said = [f"bound by {e.bound_by}; the GPU is busy for {busy}, by the data sheet for {least}"]
    said += ["far from all that were measured"] if e.far_outside else []
    headline = f"{operation_text(e.operation)}, {e.operation.mode}, on {e.gpu} at {e.clock_mhz:g} MHz"
    return document(headline, *parts, notes([*said, f"predicted by {e.predictor}, {e.source}"]))


@as_picture.register(Explanation)
def explanation_plot(explanation: Explanation) -> Picture:
    """Bars: the least times by the data sheet beside the predicted times."""
    return Picture(bars([*_times(explanation)], f"Times of {operation_text(explanation.operation)}"))


def _times(e: Explanation) -> Iterator[Bar]:
    for place, (name, value) in enumerate(
        (
            ("arithmetic, by the data sheet", e.compute_s),
            ("memory, by the data sheet", e.memory_s),
            ("GPU, predicted", e.device_time_s),
            ("launch, predicted", e.host_time_s),
        )
    ):
        if not math.isnan(value):
            yield Bar(name, value, si(value, "s"), colour=place)


def _known(value: float, unit: str) -> str:
    return "-" if math.isnan(value) else si(value, unit)


def _effect(quantity: str, effect: float) -> str:
    return f"x {effect:.2f}" if quantity == "time" else f"{effect:+.1f} W"
