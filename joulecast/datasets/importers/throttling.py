"""Finds measurements of a throttled GPU: long products of one kind that are far slower than those of another.

A board that is too hot, or held by its power cap, lowers its clock. A table of times does not state that but shows it:
long products fill the GPU, so linear layers and batched products should reach about the same share of the peak. In
neusight2025, linear layers of more than half a millisecond at the peak reach 0.9 to 1.3 of the rate of batched products
of that length on A100, V100, P100 and T4, but 0.5 on the P4, where short linear layers are not slower.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

LONG_S = 0.5e-3
"""Least time by the data sheet of products that fill a GPU and last long enough to be throttled."""

_LEAST_ROWS = 50
_THROTTLED = (
    0.7  # Relative to the rate of the other kind. On four GPUs that were not throttled the lowest value is 0.93.
)


def throttled_kinds(times: Mapping[str, tuple[Values, Values]]) -> frozenset[str]:
    """Which kinds of products were measured on a GPU while it was throttled.

    Args:
        times: Kind of product -> measured seconds, and the least seconds that the data sheet allows, of each row.
    """
    reached = {}
    for kind, (time_s, least_s) in times.items():
        long = least_s > LONG_S
        if long.sum() >= _LEAST_ROWS:
            reached[kind] = float(np.median(least_s[long] / time_s[long]))
    return frozenset(kind for kind, share in reached.items() if share < _THROTTLED * max(reached.values()))
