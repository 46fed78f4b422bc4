"""The sweep: divides the seconds and joules of a device between the events that ran on it.

The starts and ends of events cut time into slices. The joules of a slice are divided equally between the events that
are active in it; those of a slice without events are unattributed. This is Algorithm 2 of SMARAGDINE (Babakol and Liu,
"Tensor-Aware Energy Accounting", ICSE 2024) with one correction: as printed, it overwrites the shares of an event where
they must be added.

The share of an event is the integral of power / (active events) over its time. This is cumulated over all slices once,
and the share of each event is a difference of two values. So the whole costs no more than sorting the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..metering.energy_curve import EnergyCurve
from ..units import si
from .events import Events


@dataclass(frozen=True)
class Sweep:
    """The shares of all events, and of the time without events.

    Args:
        time_s: Seconds of each event, shape (events,). Events that run at the same time share them.
        energy_j: Joules of each event for each curve, shape (curves, events).
        unknown_s: Seconds of each event in which the power is unknown, shape (curves, events).
        idle_j: Joules in the time without events, shape (curves,).
        idle_unknown_s: Seconds without events in which the power is unknown, shape (curves,).
    """

    time_s: FloatArray
    energy_j: FloatArray
    unknown_s: FloatArray
    idle_s: float
    idle_j: FloatArray
    idle_unknown_s: FloatArray


def sweep(
    start_s: FloatArray,
    end_s: FloatArray,
    curves: Sequence[EnergyCurve] = (),
    window_s: tuple[float, float] | None = None,
) -> Sweep:
    """Divide the seconds and joules of a device between events.

    The shares of all events and of the time without events add up to the seconds and joules of the window.

    Args:
        start_s: Start of each event in seconds on the clock of the curves, in any order, shape (events,).
        end_s: End of each event in seconds, shape (events,).
        curves: Energy over time of each counter of the device; none to divide only the time.
        window_s: Start and end of the accounted time. Events outside have a share of zero. None for the time of all
            events.
    """
    if window_s is None:
        window_s = (float(start_s.min()), float(end_s.max())) if len(start_s) else (0.0, 0.0)
    starts, ends = np.clip(start_s, *window_s), np.clip(end_s, *window_s)
    edges = np.unique(np.concatenate([window_s, starts, ends]))
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    changes = np.bincount(first, minlength=len(edges)) - np.bincount(last, minlength=len(edges))
    active = np.cumsum(changes)[:-1]  # Number of active events in each slice; integers, so without rounding.

    def shared(slices: FloatArray) -> tuple[FloatArray, float]:
        """The share of each event in a quantity that is given for each slice, and the rest in slices without events."""
        per_event = np.divide(slices, active, out=np.zeros_like(slices), where=active > 0)
        so_far = np.concatenate([[0.0], np.cumsum(per_event)])
        return so_far[last] - so_far[first], float(slices[active == 0].sum())

    time_s, idle_s = shared(np.diff(edges))
    until = [_until(curve, edges) for curve in curves]
    energies = [shared(np.diff(joules)) for joules, _ in until]
    unknowns = [shared(np.diff(unknown_s)) for _, unknown_s in until]
    shape = (len(curves), len(start_s))
    return Sweep(
        time_s,
        np.array([values for values, _ in energies]).reshape(shape),
        np.array([values for values, _ in unknowns]).reshape(shape),
        idle_s,
        np.array([left for _, left in energies]),
        np.array([left for _, left in unknowns]),
    )


def _until(curve: EnergyCurve, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Joules, and seconds with unknown power, until each edge, shape (edges,).

    Before the first and after the last reading, the power is unknown and no joules are counted.
    """
    if not len(curve.time_s):
        return np.zeros(len(edges)), edges - edges[0]
    outside_s = np.minimum(edges - curve.time_s[0], 0.0) + np.maximum(edges - curve.time_s[-1], 0.0)
    joules, unknown_s = (np.interp(edges, curve.time_s, values) for values in (curve.energy_j, curve.unknown_s))
    return joules, unknown_s + outside_s


@dataclass(frozen=True)
class Resolution:
    """How short the events are that a sensor can measure.

    Args:
        update_s: Median time between two updates of the sensor in seconds; None if there is no sensor.
        resolved_share: Share of the time that is spent in events of at least one update period, whose power the sensor
            measures. The joules of shorter events are divided by time, or by a model.
    """

    update_s: float | None
    iteration_s: float
    resolved_share: float

    def __str__(self) -> str:
        if self.update_s is None:
            return "no sensor"
        return (
            f"the sensor updates every {si(self.update_s, 's')}, an iteration takes {si(self.iteration_s, 's')}: "
            f"{100 * self.resolved_share:.0f} % of the time is in operators that last at least one update; the joules "
            "of shorter ones are not measured one by one"
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures, in SI units."""
        return dict(vars(self))


def resolution(events: Events, curves: Sequence[EnergyCurve], iteration_s: float) -> Resolution:
    """The resolution of sensors for some events."""
    spacings = [float(np.median(np.diff(curve.time_s))) for curve in curves if len(curve.time_s) > 1]
    if not spacings:
        return Resolution(None, iteration_s, 0.0)
    length_s = events.end_s - events.start_s
    total_s = float(length_s.sum())
    resolved_s = float(length_s[length_s >= max(spacings)].sum())
    return Resolution(max(spacings), iteration_s, resolved_s / total_s if total_s else 0.0)
