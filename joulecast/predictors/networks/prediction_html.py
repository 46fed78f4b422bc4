"""A prediction as Jupyter shows it."""

from __future__ import annotations

from collections.abc import Iterator

from ...operations.operation_list import operation_text
from ...rendering.notebook import Bar, Picture, as_html, as_picture, bars, document, notes, short, table
from ...units import NOT_MEASURED, si
from ..intervals.network_calibration import Interval
from .costs import OperationCost, by_cost
from .prediction import Prediction

LEVEL = 0.9
QUANTITIES = (("time", "time_s", "s"), ("power", "power_w", "W"), ("energy", "energy_j", "J"))
_TOP = 10
_BOUNDS = ("compute", "memory", "launch")


def quantity_rows(value: object, interval: Interval | None) -> Iterator[list[str]]:
    """Rows for time, power, energy and energy-delay product, each with its interval."""
    for title, name, unit in (*QUANTITIES, ("energy-delay product", "edp_js", "Js")):
        low_high = getattr(interval, name) if interval else None
        between = f"{si(low_high[0], unit)} to {si(low_high[1], unit)}" if low_high else ""
        known = getattr(value, name)
        yield [title, NOT_MEASURED if known is None else si(known, unit), between]


def quantity_table(value: object, interval: Interval | None) -> str:
    """Time, power, energy and energy-delay product as an HTML table, each with its interval."""
    header = ["per iteration", "predicted", f"{100 * interval.level:.0f} % interval" if interval else ""]
    return table(header, quantity_rows(value, interval), frozenset({1}))


@as_html.register(Prediction)
def prediction_html(prediction: Prediction) -> str:
    """A prediction as HTML: totals with intervals, the energy tree, the operations that cost most, and the notes."""
    costs = _costs(prediction)
    whole = prediction.device_time_s if prediction.energy_j is None else prediction.energy_j
    rows = [
        [
            operation_text(cost.operation),
            str(cost.count),
            si(cost.device_time_s, "s"),
            si(cost.power_w, "W"),
            si(cost.energy_j, "J"),
            f"{100 * _cost(cost) / whole:.1f} %",
            cost.bound_by,
            cost.source,
        ]
        for cost in costs[:_TOP]
    ]
    header = ["operation", "calls", "device time", "power", "energy", "share", "bound by", "source"]
    remarks = list(prediction.notes)
    if len(costs) > _TOP:
        remarks.insert(0, f"and {len(costs) - _TOP} more operations")
    return document(
        prediction.title,
        quantity_table(prediction, prediction.interval(LEVEL) if prediction.supports(LEVEL) else None),
        prediction.tree().plot().svg,
        table(header, rows, frozenset({1, 2, 3, 4, 5})),
        notes(remarks),
    )


@as_picture.register(Prediction)
def prediction_plot(prediction: Prediction) -> Picture:
    """Bars: the operations that cost most, in the colour of what bounds them (compute, memory, launch)."""
    quantity, unit = ("Time", "s") if prediction.energy_j is None else ("Energy", "J")
    items = [
        Bar(
            short(operation_text(cost.operation)),
            _cost(cost),
            f"{si(_cost(cost), unit)}, {cost.bound_by}",
            colour=_BOUNDS.index(cost.bound_by),
        )
        for cost in _costs(prediction)[: 2 * _TOP]
    ]
    return Picture(bars(items, f"{quantity} of the operations of {prediction.network} on {prediction.gpu}"))


def _costs(prediction: Prediction) -> list[OperationCost]:
    return [cost for cost in by_cost(prediction.operations) if cost.source != "missing"]


def _cost(cost: OperationCost) -> float:
    """Joules, or seconds where no energy is known."""
    return (cost.device_time_s or 0.0) if cost.energy_j is None else cost.energy_j
