"""Estimates when an energy counter was updated, from the readings that show each new value first.

The value of a counter stays the same between its updates, which are 1 ms apart on CPUs and 20 to 100 ms on GPUs. So a
reading may be that old, and at 300 W a twentieth of a second is 15 J. If the counter was read every few milliseconds,
as polling.py does when windows open and close, two readings enclose an update closely. The moments of the other updates
follow from those and from the counter's period.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray

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
