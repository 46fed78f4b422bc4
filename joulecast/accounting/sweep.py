"""The sweep: seconds and joules of a device, shared among the events that ran on it.

Starts and ends of events cut time into slices. What a device used in a slice, by all its readings, is shared equally
among the events that are active in it; a slice without any belongs to nobody. This is Algorithm 2 of SMARAGDINE
(Babakol and Liu, "Tensor-Aware Energy Accounting", ICSE 2024), which overwrites where it must add: here shares add up.

An event's share is an integral over its time of power / (events active). Cumulated over all slices once, each event
then takes one difference, so that the cost is that of sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from ..metering.energy_curve import EnergyCurve


@dataclass(frozen=True)
class Sweep:
    """What each event got, and what belongs to none.

    Args:
        time_s: Seconds of each event; those that run side by side share them, shape (events,).
        energy_j: Joules of each event by curve, shape (curves, events).
        unknown_s: Seconds of each event in which nobody knows the power, by curve, shape (curves, events).
        idle_s: Seconds without any event.
        idle_j: Joules without any event by curve, shape (curves,).
        idle_unknown_s: Seconds without any event or reading by curve, shape (curves,).
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
    """Share the joules of a device among events.

    Seconds and joules of all events and of none add up to those of the window.

    Args:
        start_s: When each event started, on the clock of the curves, in any order, shape (events,).
        end_s: When each ended, shape (events,).
        curves: Energy over time of the counters of the device; none to share time alone.
        window_s: Start and end of what is accounted; what events do outside counts for nothing. None for all events.

    Raises:
        InputError: An event ends before it starts.
    """
    if np.any(end_s < start_s):
        raise InputError("an event ends before it starts", hint="sort out which of its times is wrong")
    if window_s is None:
        window_s = (float(start_s.min()), float(end_s.max())) if len(start_s) else (0.0, 0.0)
    starts, ends = np.clip(start_s, *window_s), np.clip(end_s, *window_s)
    edges = np.unique(np.concatenate([window_s, starts, ends]))
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    changes = np.bincount(first, minlength=len(edges)) - np.bincount(last, minlength=len(edges))
    active = np.cumsum(changes)[:-1]  # in each slice; whole numbers, so exact

    def shared(slices: FloatArray) -> tuple[FloatArray, float]:
        """What each event gets of a quantity that is known by slice, and what is left where there is none."""
        per_event = np.divide(slices, active, out=np.zeros_like(slices), where=active > 0)
        so_far = np.concatenate([[0.0], np.cumsum(per_event)])
        return so_far[last] - so_far[first], float(slices[active == 0].sum())

    time_s, idle_s = shared(np.diff(edges))
    energies = [shared(np.diff(_joules_by(curve, edges))) for curve in curves]
    unknowns = [shared(np.diff(_unknown_by(curve, edges))) for curve in curves]
    shape = (len(curves), len(start_s))
    return Sweep(
        time_s,
        np.array([values for values, _ in energies]).reshape(shape),
        np.array([values for values, _ in unknowns]).reshape(shape),
        idle_s,
        np.array([left for _, left in energies]),
        np.array([left for _, left in unknowns]),
    )


def _joules_by(curve: EnergyCurve, edges: FloatArray) -> FloatArray:
    """Joules that were used by each edge; before the first and after the last reading nobody knows any."""
    if not len(curve.time_s):
        return np.zeros(len(edges))
    joules: FloatArray = np.interp(edges, curve.time_s, curve.energy_j)
    return joules


def _unknown_by(curve: EnergyCurve, edges: FloatArray) -> FloatArray:
    """Seconds without a reading by each edge."""
    if not len(curve.time_s):
        since_start_s: FloatArray = edges - edges[0]
        return since_start_s
    outside_s = np.minimum(edges - curve.time_s[0], 0.0) + np.maximum(edges - curve.time_s[-1], 0.0)
    unknown_s: FloatArray = np.interp(edges, curve.time_s, curve.unknown_s) + outside_s
    return unknown_s
