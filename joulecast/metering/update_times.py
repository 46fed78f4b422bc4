"""When an energy counter had the values that were read from it.

A counter stands still between its updates, 1 ms on CPUs and 20 to 100 ms on GPUs, so a reading may be that old: at
300 W a twentieth of a second is 15 J. Where it was read every few milliseconds (polling.py does so where windows open
and close), two readings enclose an update closely; the others are then placed by its period.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray

_FAST_S = 0.004  # A counter that moves this often is new at every reading.
_ENCLOSED = 0.25  # Two readings enclose an update where they are no further apart than this share of its period.
_MOST_PERIODS = 5  # Nobody knows a period so well that it could be counted further.


def update_times(read_s: FloatArray, updates: NDArray[np.intp]) -> FloatArray:
    """The moments at which a counter was updated, ascending.

    Args:
        read_s: When it was read, shape (readings,).
        updates: Positions of the readings that gave a new value, at least two, shape (updates,).
    """
    first_s, before_s = read_s[updates], read_s[updates - 1]
    # Two updates are at least as far apart as the counter was seen to stand still, and at most as their outer readings.
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
