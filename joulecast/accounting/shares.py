"""How seconds and joules are shared among what runs: the sweep over events, and the rows of an energy tree from it.

The starts and ends of events cut time into slices. The joules of a slice are divided equally between the events that
are active in it; those of a slice without events are unattributed. This is Algorithm 2 of SMARAGDINE (Babakol and Liu,
"Tensor-Aware Energy Accounting", ICSE 2024) with one correction: as printed, it overwrites the shares of an event where
they must be added.

The share of an event is the integral of power / (active events) over its time. This is cumulated over all slices once,
and the share of each event is a difference of two values. So the whole costs no more than sorting the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ..arrays import FloatArray
from ..energy import Figure, Row, Share
from ..energy.node import Source
from ..metering.energy_curve import EnergyCurve
from ..metering.recording import DeviceInfo, Recording
from ..units import si
from .events import CPU, Events


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


def resolution(events: Events, curves: Sequence[EnergyCurve], iteration_s: float) -> Resolution:
    """The resolution of sensors for some events."""
    spacings = [float(np.median(np.diff(curve.time_s))) for curve in curves if len(curve.time_s) > 1]
    if not spacings:
        return Resolution(None, iteration_s, 0.0)
    length_s = events.end_s - events.start_s
    total_s = float(length_s.sum())
    resolved_s = float(length_s[length_s >= max(spacings)].sum())
    return Resolution(max(spacings), iteration_s, resolved_s / total_s if total_s else 0.0)


NO_MODULE = "(no module)"
"""Name in energy trees for operators that ran outside the model."""

# Seconds of unknown power that are ignored: rounding of two clocks can move an event beyond the edge of a recording.
_NEGLIGIBLE_S = 1e-6


@dataclass(frozen=True)
class Shares:
    """Seconds and joules of all places, and of the time without events."""

    rows: tuple[Row, ...]
    unattributed: Share
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counter:
    """The energy of one counter over time, on the clock of the events."""

    device: DeviceInfo
    curve: EnergyCurve


def device_of(device: DeviceInfo) -> str:
    """The device in events whose energy a counter measures; all counters but those of GPUs belong to the host."""
    return device.name if device.name.startswith("gpu") else CPU


def counters_of(recording: Recording, origin_ns: int) -> tuple[Counter, ...]:
    """The counters of a recording whose energies add up to the machine's, with times on the clock of a trace.

    Args:
        origin_ns: Wall-clock time of the trace's second 0, in nanoseconds since 1970.
    """
    shift_s = recording.wall_offset_s - 1e-9 * origin_ns
    found = []
    for device in recording.devices:
        curve = EnergyCurve.of(recording.samples[device.name])
        if device.counted:
            found.append(Counter(device, replace(curve, time_s=curve.time_s + shift_s)))
    return tuple(found)


def swept(events: Events, counters: Sequence[Counter]) -> Shares:
    """Account the joules that were counted while the events ran (one pass)."""
    by_place: dict[int, list[Share]] = {}
    calls: dict[int, float] = {}
    idle: list[Share] = []
    unknown_s = 0.0
    for device in dict.fromkeys([*events.devices, *(device_of(counter.device) for counter in counters)]):
        mine = events.on(device)
        read = [counter for counter in counters if device_of(counter.device) == device]
        found = sweep(events.start_s[mine], events.end_s[mine], [counter.curve for counter in read], events.window_s)
        table = np.vstack([found.time_s, found.energy_j, found.unknown_s])
        present, column, counts = np.unique(events.place[mine], return_inverse=True, return_counts=True)
        sums = np.array([np.bincount(column, values, len(present)) for values in table])
        for place, values, count in zip(present.tolist(), sums.T, counts.tolist(), strict=True):
            by_place.setdefault(place, []).append(_share(device, read, values))
            calls.setdefault(place, count)  # The first device has the calls of the operator, the others its kernels.
        idle.append(_share(device, read, np.concatenate([[found.idle_s], found.idle_j, found.idle_unknown_s])))
        unknown_s += float(found.unknown_s.sum() + found.idle_unknown_s.sum())
    rows = []
    for index, shares in by_place.items():
        path, phase, operation = events.places[index]
        rows.append(Row(NO_MODULE if path is None else path, Share.total(shares), operation, phase, calls[index]))
    notes = (f"the power is unknown in {unknown_s:.3g} s of the accounted time",) if unknown_s > _NEGLIGIBLE_S else ()
    return Shares(tuple(rows), Share.total(idle), notes)


def spread(events: Events, iteration_s: float, used: Sequence[tuple[DeviceInfo, Figure]]) -> Shares:
    """Divide the joules of undisturbed iterations by the seconds of profiled ones (two passes).

    Profiling makes an iteration longer, mostly between operators. So operators are accounted their profiled seconds,
    and are only scaled down if they fill more than an undisturbed iteration. If the undisturbed loop was slower, they
    are scaled up by the same factor as the iteration. The time that operators do not fill is unattributed.

    Args:
        iteration_s: Seconds of an undisturbed iteration.
        used: The joules of such an iteration by counter.
    """
    plain = swept(events, ())
    joules: dict[str, dict[tuple[str, str], Figure]] = {device: {} for device in events.devices}
    for device, figure in used:
        joules.setdefault(device_of(device), {})[device.name, device.component] = figure
    start_s, end_s = events.window_s
    slower = max(1.0, iteration_s * events.iterations / (end_s - start_s)) if end_s > start_s else 1.0
    busy_s = {
        device: sum(row.share.on(device).time_s for row in plain.rows) / events.iterations * slower
        for device in events.devices
    }

    def of_iteration(device: str, seconds: float) -> Share:
        """The share of an event that takes these seconds of an iteration on a device."""
        energy = {part: figure.scaled_by(seconds / iteration_s) for part, figure in joules[device].items()}
        return Share({device: Figure(seconds, "measured")}, energy or _no_joules(device))

    def of_row(row: Row) -> Row:
        seconds = {
            device: figure.value / events.iterations * slower * min(1.0, iteration_s / busy_s[device])
            for device, figure in row.share.time.items()
            if busy_s[device]
        }
        share = Share.total([of_iteration(device, value) for device, value in seconds.items()])
        return replace(row, share=share, calls=row.calls / events.iterations)

    idle = [of_iteration(device, iteration_s - min(iteration_s, seconds)) for device, seconds in busy_s.items()]
    without_events = [Share({}, energy) for device, energy in joules.items() if device not in busy_s]
    return Shares(tuple(map(of_row, plain.rows)), Share.total([*idle, *without_events]))


def _share(device: str, counters: Sequence[Counter], values: FloatArray) -> Share:
    """A share of the seconds, the joules of each counter, and the unknown seconds of each counter, in this order."""
    joules, unknown_s = values[1 : 1 + len(counters)].tolist(), values[1 + len(counters) :].tolist()
    energy = {
        (counter.device.name, counter.device.component): figure_of(counter.device, value, seconds <= _NEGLIGIBLE_S)
        for counter, value, seconds in zip(counters, joules, unknown_s, strict=True)
    }
    return Share({device: Figure(float(values[0]), "measured")}, energy or _no_joules(device))


def _no_joules(device: str) -> dict[tuple[str, str], Figure]:
    """The energy of a device without a counter: unknown, not zero."""
    return {(device, "total"): Figure.of(None, "missing")}


def figure_of(device: DeviceInfo, joules: float, known: bool) -> Figure:
    """The joules of a counter with their source; a lower bound if it could not be read all the time."""
    if known:
        return Figure(max(0.0, joules), cast(Source, device.method))
    return Figure(joules, cast(Source, device.method), 1) if joules > 0 else Figure.of(None, "missing")
