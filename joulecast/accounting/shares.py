"""Makes the rows of an energy tree from events and counters: the seconds and joules of every place."""

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
from .events import CPU, Events
from .sweep import sweep

NO_MODULE = "(no module)"
"""Name in energy trees for operators that ran outside the model."""

# Seconds of unknown power that are ignored: rounding of two clocks can move an event beyond the edge of a recording.
_NEGLIGIBLE_S = 1e-6


@dataclass(frozen=True)
class Shares:
    """Seconds and joules of all places, and of the time without events.

    Args:
        unattributed: Seconds without events and their joules, by device.
    """

    rows: tuple[Row, ...]
    unattributed: Share
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counter:
    """The energy of one counter over time.

    Args:
        curve: Joules over time, on the clock of the events.
    """

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
