"""Finds the active one of nested events: on a thread, while an inner event runs, the event around it waits."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from .events import IntArray


def innermost(start_s: FloatArray, end_s: FloatArray, lane: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Cut nested events into pieces, so that no two pieces of a lane overlap.

    Each moment is given to the innermost event, the last one to start. Because times are rounded, two events of a lane
    may overlap without one containing the other; each moment is still given to exactly one of them.

    Args:
        start_s: Start of each event in seconds, shape (events,).
        end_s: End of each event in seconds, shape (events,).
        lane: Number of the thread or stream of each event, shape (events,).

    Returns:
        Start and end of each piece, and the index of the event that it belongs to; each of shape (pieces,).
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
    owner = _last_start_at(depth, step, event)
    piece = np.zeros(len(time_s), dtype=bool)
    piece[:-1] = (depth[:-1] > 0) & (time_s[1:] > time_s[:-1])
    at = np.flatnonzero(piece)
    return time_s[at], time_s[at + 1], owner[at]


def _last_start_at(depth: IntArray, step: IntArray, event: IntArray) -> IntArray:
    """For each boundary, the event that is active after it: the last one to start at the depth after the boundary."""
    count = len(depth)
    by_depth = np.lexsort((np.arange(count), depth))
    starts = np.where(step[by_depth] > 0, np.arange(count), -1)
    latest = np.maximum.accumulate(starts)  # The first boundary with any depth above 0 is a start.
    owner = np.full(count, -1, dtype=np.int64)
    owner[by_depth] = event[by_depth[np.maximum(latest, 0)]]
    return owner
