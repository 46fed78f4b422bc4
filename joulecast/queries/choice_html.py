"""Choices and sweeps as Jupyter shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..notebook import Bar, Line, Picture, bars, document, lines_over, notes, table
from ..predictors.prediction_html import QUANTITIES, quantity_table
from ..units import si

if TYPE_CHECKING:
    from .choice import Choice
    from .sweep import Sweep

_LINES, _ROWS = 4, 12


def choice_html(choice: Choice) -> str:
    """What a choice costs, and what to keep in mind."""
    told = [f"predicted by {choice.predictor}", *choice.notes]
    if not choice.measured:
        told.insert(0, "never measured: known by its data sheet alone")
    return document(_title(choice), quantity_table(choice, choice.interval), notes(told))


def choice_plot(choice: Choice) -> Picture:
    """Each quantity with its interval, as shares of its own value."""
    items = []
    for place, (title, name, unit) in enumerate(QUANTITIES):
        value = getattr(choice, name)
        low_high = getattr(choice.interval, name) if choice.interval else None
        shares = (low_high[0] / value, low_high[1] / value) if low_high else None
        items.append(Bar(title, 1.0, si(value, unit), shares, place))
    return Picture(bars(items, _title(choice)))


def sweep_html(sweep: Sweep) -> str:
    """Energy and time over the clock of the best GPUs, and the best clock of each."""
    curves = sweep.curves()
    rows = [
        [
            row.alias,
            f"{row.clock_mhz:g}",
            row.precision,
            si(row.time_s, "s"),
            si(row.power_w, "W"),
            si(row.energy_j, "J"),
            "" if row.measured else "never measured",
        ]
        for row in sweep.best_of_each()[:_ROWS]
    ]
    told = [f"and {len(curves) - _ROWS} more"] if len(curves) > _ROWS else []
    told += [f"left out: {out.gpu}, which {out.reason}" for out in sweep.left_out[:_ROWS]]
    return document(
        f"{sweep.job}: least {sweep.objective}",
        _over_clocks(curves, "energy_j", "J", "Energy over the clock"),
        _over_clocks(curves, "time_s", "s", "Time over the clock"),
        table(["GPU", "clock MHz", "precision", "time", "power", "energy", ""], rows, frozenset({1, 3, 4, 5})),
        notes(told),
    )


def _over_clocks(curves: Sequence[Sequence[Choice]], name: str, unit: str, title: str) -> str:
    lines = []
    for curve in curves[:_LINES]:
        marked = min(range(len(curve)), key=lambda i, curve=curve: curve[i].value)  # type: ignore[misc]
        lines.append(Line(_name(curve[0]), [(row.clock_mhz, getattr(row, name)) for row in curve], marked))
    return lines_over(lines, "MHz", unit, title)


def _name(choice: Choice) -> str:
    batch = "" if choice.batch_size is None else f", batch {choice.batch_size}"
    precision = "" if choice.precision == "default" else f", {choice.precision}"
    return f"{choice.alias}{precision}{batch}"


def _title(choice: Choice) -> str:
    return f"{_name(choice)}, {choice.mode}, at {choice.clock_mhz:g} MHz"
