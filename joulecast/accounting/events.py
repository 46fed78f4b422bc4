"""Events: what ran when on which device, and which event is inside which other.

They are stored in columns, so that a million take about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..energy.node import Phase
from ..errors import InputError

IntArray = NDArray[np.int64]

CPU = "cpu"
"""Device of everything that runs on the host; GPUs are called gpu0, gpu1, ..."""


class Place(NamedTuple):
    """Module, phase and operator to which an event belongs.

    Args:
        path: Qualified name of the module, such as "layer1.0.conv2"; empty for the model itself; None if the event ran
            outside the model, such as in a loss.
        phase: "forward", "backward" or "optimizer".
        operation: Name of the operator, such as "aten::conv2d".
    """

    path: str | None
    phase: Phase
    operation: str


@dataclass(frozen=True)
class Events:
    """Events of a program, in any order.

    Events of one device may overlap; then they share the power of the device.

    Args:
        start_s: When each started, in seconds since `origin_ns`, shape (events,).
        end_s: When each ended, shape (events,); not before it started.
        place: Index of each event's place in `places`, shape (events,).
        device: Index of each event's device in `devices`, shape (events,).
        origin_ns: Wall-clock time of second 0, in nanoseconds since 1970.
        windows: Start and end of each iteration in seconds, in their order; empty if iterations were not marked.
    """

    start_s: FloatArray
    end_s: FloatArray
    place: IntArray
    device: IntArray
    places: tuple[Place, ...]
    devices: tuple[str, ...] = (CPU,)
    origin_ns: int = 0
    windows: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        in_order = self.end_s >= self.start_s  # A time that is not a number is in no order.
        if not in_order.all():
            first = int(np.argmin(in_order))
            raise InputError(
                "an event ends before it starts",
                given=f"event {first}: {self.start_s[first]} to {self.end_s[first]} s",
                allowed="an end that is not before the start",
                hint="record the trace again, or remove this event",
            )

    def __len__(self) -> int:
        return len(self.start_s)

    @property
    def window_s(self) -> tuple[float, float]:
        """Start of the first and end of the last iteration; of events if no iterations are marked."""
        if self.windows:
            return self.windows[0][0], max(end for _, end in self.windows)
        return (float(self.start_s.min()), float(self.end_s.max())) if len(self) else (0.0, 0.0)

    @property
    def iterations(self) -> int:
        """Number of iterations; 1 if they were not marked."""
        return max(1, len(self.windows))

    def on(self, device: str) -> NDArray[np.bool_]:
        """Which events ran on a device, shape (events,)."""
        known = device in self.devices
        return self.device == self.devices.index(device) if known else np.zeros(len(self), dtype=bool)

    def between(self, start_s: float, end_s: float) -> Events:
        """The events that start in a window, with the iterations that lie in it."""
        inside = (self.start_s >= start_s) & (self.start_s < end_s)
        windows = tuple(window for window in self.windows if start_s <= window[0] and window[1] <= end_s)
        return replace(
            self,
            start_s=self.start_s[inside],
            end_s=self.end_s[inside],
            place=self.place[inside],
            device=self.device[inside],
            windows=windows,
        )

    @classmethod
    def of(
        cls,
        rows: Sequence[tuple[float, float, Place, str]],
        *,
        origin_ns: int = 0,
        windows: Sequence[tuple[float, float]] = (),
    ) -> Events:
        """Put rows into columns."""
        places: dict[Place, int] = {}
        devices: dict[str, int] = {}
        place = [places.setdefault(row[2], len(places)) for row in rows]
        device = [devices.setdefault(row[3], len(devices)) for row in rows]
        return cls(
            np.array([row[0] for row in rows], dtype=float),
            np.array([row[1] for row in rows], dtype=float),
            np.array(place, dtype=np.int64),
            np.array(device, dtype=np.int64),
            tuple(places),
            tuple(devices) or (CPU,),
            origin_ns,
            tuple(sorted(windows)),
        )


def innermost(start_s: FloatArray, end_s: FloatArray, lane: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Cut nested events into pieces, so that no two pieces of a lane overlap.

    Each moment is given to the innermost event, the last one to start. Because times are rounded, two events of a lane
    may overlap without one containing the other; each moment is still given to exactly one of them. Returns start and
    end of each piece, and the index of the event that it belongs to; each of shape (pieces,).

    Args:
        start_s, end_s: Start and end of each event in seconds, shape (events,).
        lane: Number of the thread or stream of each event, shape (events,).
    """
    lasting = np.flatnonzero(end_s > start_s)
    if not len(lasting):
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)
    start_s, end_s, lane = start_s[lasting], end_s[lasting], lane[lasting]
    time_s = np.concatenate([start_s, end_s])
    lanes = np.concatenate([lane, lane])
    step = np.repeat([1, -1], len(lasting))
    event = np.tile(lasting, 2)
    # At the same moment, ends come before starts. Of events that start together, the longest is the outer one; of
    # events that end together, the longest ends last.
    length_s = np.concatenate([end_s - start_s, start_s - end_s])
    order = np.lexsort((-length_s, step, time_s, lanes))
    time_s, step, event = time_s[order], step[order], event[order]
    depth = np.cumsum(step)  # Depth of nesting after each boundary. Each lane ends at 0.
    # The event that is active after a boundary is the last one to start at the depth after it.
    by_depth = np.lexsort((np.arange(len(depth)), depth))
    starts = np.where(step[by_depth] > 0, np.arange(len(depth)), -1)
    latest = np.maximum.accumulate(starts)  # The first boundary with any depth above 0 is a start.
    owner = np.full(len(depth), -1, dtype=np.int64)
    owner[by_depth] = event[by_depth[np.maximum(latest, 0)]]
    piece = np.zeros(len(time_s), dtype=bool)
    piece[:-1] = (depth[:-1] > 0) & (time_s[1:] > time_s[:-1])
    at = np.flatnonzero(piece)
    return time_s[at], time_s[at + 1], owner[at]
