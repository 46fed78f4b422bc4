"""Events of one thread are nested: while an inner one runs, its outer one waits. Only the innermost is active."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from .events import IntArray


def innermost(start_s: FloatArray, end_s: FloatArray, lane: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Cut nested events into pieces, of which none overlaps another of its lane.

    Each moment goes to the event that started last among those that are nested deepest. Where events of a lane overlap
    without one containing the other, which rounded times can do, each moment still goes to exactly one of them.

    Args:
        start_s: When each event started, shape (events,).
        end_s: When each ended, shape (events,).
        lane: The thread or stream of each, shape (events,).

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
    # Ends come before starts of the same moment; of events that start together the longest is outside, and of those
    # that end together it ends last.
    length_s = np.concatenate([end_s - start_s, start_s - end_s])
    order = np.lexsort((-length_s, step, time_s, lanes))
    time_s, step, event = time_s[order], step[order], event[order]
    depth = np.cumsum(step)  # after each boundary; each lane ends at 0
    owner = _last_start_at(depth, step, event)
    piece = np.zeros(len(time_s), dtype=bool)
    piece[:-1] = (depth[:-1] > 0) & (time_s[1:] > time_s[:-1])
    at = np.flatnonzero(piece)
    return time_s[at], time_s[at + 1], owner[at]


def _last_start_at(depth: IntArray, step: IntArray, event: IntArray) -> IntArray:
    """For each boundary, the event that last reached the depth that holds after it."""
    count = len(depth)
    by_depth = np.lexsort((np.arange(count), depth))
    starts = np.where(step[by_depth] > 0, np.arange(count), -1)
    latest = np.maximum.accumulate(starts)  # within a depth the first boundary above 0 is a start
    owner = np.full(count, -1, dtype=np.int64)
    owner[by_depth] = event[by_depth[np.maximum(latest, 0)]]
    return owner
