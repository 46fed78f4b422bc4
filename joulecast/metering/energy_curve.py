"""Energy of a device between any two moments, computed from the samples of its sensor.

If the device has a total-energy counter, its values are used; `update_times` estimates when it had each of them. If
the power changes between two updates, it is assumed to change once, from the power before to the power afterwards, at
the moment that gives the counted joules. That is exact for loads that are steady for longer than two updates. Without a
counter, the power readings are integrated, each held until the next one. Intervals without data are reported as unknown
and never count as zero. They arise when a device is lost, a counter restarts or the machine is suspended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..energy import Figure, Row, Share
from ..energy.node import Source
from .recording import DeviceInfo, Recording
from .samples import Samples

_FAST_S = 0.004  # A counter with a shorter period has a new value at every reading.
_ENCLOSED = 0.25  # Two readings enclose an update closely if they are at most this share of a period apart.
_MOST_PERIODS = 5  # The error of the period adds up, so updates are placed no further than this from a known one.


def update_times(read_s: FloatArray, updates: NDArray[np.intp]) -> FloatArray:
    """The moments in seconds at which a counter was updated, ascending, shape (updates,).

    Args:
        read_s: Moments of the readings in seconds, shape (readings,).
        updates: Indices of the readings that gave a new value, at least two, shape (updates,).
    """
    first_s, before_s = read_s[updates], read_s[updates - 1]
    # Two updates are at least as far apart as the first and last reading of the value between them, and at most as far
    # as the readings just outside.
    stood_s, apart_s = before_s[1:] - first_s[:-1], first_s[1:] - before_s[:-1]
    period_s = float(stood_s.max() + apart_s.min()) / 2
    if stood_s.max() <= _FAST_S or period_s <= _FAST_S:
        return first_s
    gap_s = first_s - before_s
    found_s = first_s - np.minimum(gap_s, period_s) / 2
    enclosed_s = found_s[gap_s <= _ENCLOSED * period_s]
    if len(enclosed_s):
        places = np.clip(np.searchsorted(enclosed_s, first_s), 1, max(1, len(enclosed_s) - 1))
        near = np.stack([enclosed_s[places - 1], enclosed_s[np.minimum(places, len(enclosed_s) - 1)]])
        nearest_s = np.take_along_axis(near, np.abs(near - first_s).argmin(axis=0)[None], axis=0)[0]
        periods = np.floor((first_s - nearest_s) / period_s)
        placed_s = nearest_s + periods * period_s
        usable = (gap_s > _ENCLOSED * period_s) & (np.abs(periods) <= _MOST_PERIODS) & (placed_s > before_s)
        found_s = np.where(usable, placed_s, found_s)
    return np.maximum.accumulate(found_s)


_LONGEST_GAP_S = 2.0  # Readings further apart say nothing about the time between them; sensors update within 1 s.
_GAPS = 3  # The same limit in units of the median distance of readings, for long intervals.
_EDGE_S = 0.25  # A window opens and closes between two readings.


@dataclass(frozen=True)
class EnergyCurve:
    """Energy of a device since its first sample, interpolated linearly between points.

    Args:
        time_s: Moments of the points on the samples' clock, ascending, shape (points,).
        energy_j: Known joules used until each point, shape (points,).
        unknown_s: Seconds until each point in which the power is unknown, shape (points,).
    """

    time_s: FloatArray
    energy_j: FloatArray
    unknown_s: FloatArray
    spacing_s: float = 0.0

    @classmethod
    def of(cls, samples: Samples) -> Self:
        """The curve of the energy counter if there is one, else of the power readings; empty if there is neither."""
        spacing_s = float(np.median(np.diff(samples.time_s))) if len(samples) > 1 else 0.0
        power = _by_power(samples, max(_LONGEST_GAP_S, _GAPS * spacing_s))
        counted = ~np.isnan(samples.energy_j)
        if counted.sum() < 2:
            return cls(*power, spacing_s)
        time_s, joules = samples.time_s[counted], samples.energy_j[counted]
        # The first reading of each value marks an update. The age of the very first value is unknown.
        updates = np.flatnonzero(np.diff(joules) != 0) + 1
        if len(updates) < 2:
            # No energy was used, or the counter updates less often than needed: power readings are better.
            still = _line(time_s[[0, -1]], joules[[0, -1]])
            return cls(*(still if len(power[0]) < 2 else power), spacing_s)
        line = _bridged(_line(update_times(time_s, updates), joules[updates]), power)
        return cls(*_extended(_with_changes(line), float(time_s[0]), float(time_s[-1])), spacing_s)

    def between(self, start_s: FloatArray | float, end_s: FloatArray | float) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Joules from each start to each end, and whether all of it is known.

        Args:
            start_s: Moments on the samples' clock, any shape.
            end_s: Moments of the same shape, none before its start.
        """
        starts, ends = np.asarray(start_s, dtype=float), np.asarray(end_s, dtype=float)
        if len(self.time_s) < 2:
            return np.zeros(starts.shape), np.zeros(starts.shape, dtype=bool)
        joules = np.interp(ends, self.time_s, self.energy_j) - np.interp(starts, self.time_s, self.energy_j)
        unknown_s = np.interp(ends, self.time_s, self.unknown_s) - np.interp(starts, self.time_s, self.unknown_s)
        outside_s = np.maximum(self.time_s[0] - starts, 0) + np.maximum(ends - self.time_s[-1], 0)
        known = (unknown_s <= 1e-9) & (outside_s <= _EDGE_S + _GAPS * self.spacing_s)
        return np.maximum(joules, 0.0), known


Points = tuple[FloatArray, FloatArray, FloatArray]


def _points(time_s: FloatArray, steps_j: FloatArray, unknown_s: FloatArray) -> Points:
    return time_s, np.concatenate([[0.0], np.cumsum(steps_j)]), np.concatenate([[0.0], np.cumsum(unknown_s)])


def _line(time_s: FloatArray, joules: FloatArray) -> Points:
    """Points of a counter. If its value falls, it has restarted, and the energy of this step is unknown."""
    steps = np.diff(joules)
    lost = steps < 0
    return _points(time_s, np.where(lost, 0.0, steps), np.where(lost, np.diff(time_s), 0.0))


def _bridged(points: Points, power: Points) -> Points:
    """A counter's points, with the joules of unknown steps taken from power readings if there are any."""
    time_s, energy, unknown = points
    gaps = np.diff(unknown) > 0
    if not gaps.any() or len(power[0]) < 2:
        return points
    by_power_j, not_seen_s = (np.diff(np.interp(time_s, power[0], values)) for values in power[1:])
    return _points(time_s, np.where(gaps, by_power_j, np.diff(energy)), np.where(gaps, not_seen_s, 0.0))


def _with_changes(points: Points) -> Points:
    """Insert a point into every step in which the power changes from that of the step before to that of the next."""
    time_s, energy, unknown = points
    steps_s = np.diff(time_s)
    power_w = np.full(len(steps_s), np.nan)
    np.divide(np.diff(energy), steps_s, out=power_w, where=(steps_s > 0) & (np.diff(unknown) == 0))
    before_w, mean_w, after_w = power_w[:-2], power_w[1:-1], power_w[2:]
    share = np.full(len(mean_w), np.nan)  # Share of the step that passes until the power changes.
    np.divide(after_w - mean_w, after_w - before_w, out=share, where=after_w != before_w)
    changes = np.flatnonzero((share > 0) & (share < 1))
    places = changes + 1
    until_s = share[changes] * steps_s[places]
    return (
        np.insert(time_s, places + 1, time_s[places] + until_s),
        np.insert(energy, places + 1, energy[places] + before_w[changes] * until_s),
        np.insert(unknown, places + 1, unknown[places]),
    )


def _extended(points: Points, first_s: float, last_s: float) -> Points:
    """Extend a counter's points to the first and the last reading, with the power of the nearest known step."""
    time_s, energy, unknown = points
    steps_s = np.diff(time_s)
    known = np.flatnonzero((steps_s > 0) & (np.diff(unknown) == 0))
    first_w, last_w = (np.diff(energy)[known] / steps_s[known])[[0, -1]] if len(known) else (0.0, 0.0)
    before_j, after_j = first_w * max(0.0, time_s[0] - first_s), last_w * max(0.0, last_s - time_s[-1])
    return (
        np.concatenate([[min(first_s, time_s[0])], time_s, [max(last_s, time_s[-1])]]),
        np.concatenate([[0.0], before_j + energy, [before_j + energy[-1] + after_j]]),
        np.concatenate([[0.0], unknown, [unknown[-1]]]),
    )


def _by_power(samples: Samples, longest_gap_s: float) -> Points:
    known = ~np.isnan(samples.power_w)
    time_s, power_w = samples.time_s[known], samples.power_w[known]
    if len(time_s) < 2:
        return np.empty(0), np.empty(0), np.empty(0)
    steps_s = np.diff(time_s)
    seen = steps_s <= longest_gap_s
    return _points(time_s, np.where(seen, power_w[:-1] * steps_s, 0.0), np.where(seen, 0.0, steps_s))


IDLE, ABOVE_IDLE = "idle", "above idle"
_UNMEASURED = DeviceInfo("program", "total")
"""Stands in where no device is read: the time of windows is known all the same, and energy is unknown, not zero."""


def window_rows(recording: Recording, several: bool) -> tuple[list[Row], Share]:
    """Time and energy of windows by device, without those of the windows inside them.

    Windows of several threads that are open at the same time share its joules and seconds equally. Returns a row for
    each path of windows, and the share of the time outside all windows.

    Args:
        several: Whether the tree has several machines, so that names of devices need the name of the machine.
    """
    paths = [path for path, _, _ in recording.windows]
    starts = np.array([start for _, start, _ in recording.windows], dtype=float)
    ends = np.array([end for _, _, end in recording.windows], dtype=float)
    calls = Counter(paths)
    names = list(calls)
    place = {path: i for i, path in enumerate(names)}
    places = np.array([place[path] for path in paths], dtype=int)
    around = np.array([place.get(path.rpartition(".")[0], -1) for path in names], dtype=int)
    tops = around < 0

    def own(values: FloatArray) -> FloatArray:
        """Each window's value without those of the windows inside it."""
        inside = np.bincount(around[~tops], values[~tops], len(names))
        return np.maximum(values - inside, 0.0)

    edges = np.unique(np.concatenate([starts, ends]))
    first, last, outermost = np.searchsorted(edges, starts), np.searchsorted(edges, ends), tops[places]
    changes = np.bincount(first[outermost], minlength=len(edges)) - np.bincount(last[outermost], minlength=len(edges))
    together = np.maximum(np.cumsum(changes)[:-1], 1)  # Threads that have windows open, in each slice between edges.

    def by_path(slices: FloatArray) -> FloatArray:
        """What the windows of each path have of a quantity that is given for each slice."""
        so_far = np.concatenate([[0.0], np.cumsum(slices / together)])
        return np.bincount(places, so_far[last] - so_far[first], len(names)).astype(float)

    duration_s = recording.end_s - recording.start_s
    by_window_s = by_path(np.diff(edges))
    shares: list[list[Share]] = [[] for _ in names]
    rest = Share()
    for device in [each for each in recording.devices if each.counted] or [_UNMEASURED]:
        name = f"{recording.host}/{device.name}" if several and device.name in recording.samples else device.name
        curve = EnergyCurve.of(recording.samples.get(device.name, Samples.of(np.empty(0))))
        whole_j, whole_known = curve.between(recording.start_s, recording.end_s)
        known = curve.between(starts, ends)[1]
        window_j = by_path(curve.between(edges[:-1], edges[1:])[0])
        unknown = np.bincount(places, ~known, len(names)) if names else np.zeros(0)
        own_j, own_s = own(window_j), own(by_window_s)
        for i in range(len(names)):
            shares[i].append(_share(name, device, float(own_j[i]), float(own_s[i]), int(unknown[i])))
        outside_j = max(0.0, float(whole_j) - float(own_j.sum()))
        outside_s = max(0.0, duration_s - float(by_window_s[tops].sum()))
        missing = int(not whole_known and not (whole_j and unknown.any()))
        rest = Share.total([rest, _share(name, device, outside_j, outside_s, missing)])
    rows = [Row(path, Share.total(shares[i]), phase="other", calls=calls[path]) for i, path in enumerate(names)]
    return rows, rest


def _share(name: str, device: DeviceInfo, joules: float, seconds: float, unknown: int) -> Share:
    source = cast(Source, device.method)
    times = {name: Figure(seconds, source)}
    if unknown and not joules:
        return Share(times, {(name, device.component): Figure(0.0, "missing", unknown)})
    if device.idle_w is None:
        return Share(times, {(name, device.component): Figure(joules, source, unknown)})
    idle_j = min(joules, device.idle_w * seconds)
    # The idle power comes from the catalogue, so the idle part is modelled.
    parts: Mapping[tuple[str, str], Figure] = {
        (name, IDLE): Figure(idle_j, "modelled"),
        (name, ABOVE_IDLE): Figure(joules - idle_j, source, unknown),
    }
    return Share(times, parts)
