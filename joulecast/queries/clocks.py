"""Which clocks to look at."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU

MOST_CLOCKS = 40
_STEP_MHZ = 15.0  # NVIDIA's usual distance, where the catalogue names none.


def supported_clocks_mhz(gpu: GPU) -> FloatArray:
    """The clocks that can be set, as far as the catalogue tells: from the highest down in equal steps."""
    step = gpu.clock_step_mhz or _STEP_MHZ
    count = int((gpu.max_clock_mhz - gpu.min_clock_mhz) / step + 1e-6)
    steps: FloatArray = np.round(gpu.max_clock_mhz - step * np.arange(count, -1, -1.0))
    return steps


@lru_cache(maxsize=256)
def clock_grid_mhz(gpu: GPU, most: int = MOST_CLOCKS) -> FloatArray:
    """Some of the clocks that can be set, evenly from the lowest to the highest, and the default."""
    steps = supported_clocks_mhz(gpu)
    if len(steps) >= most:
        steps = steps[np.round(np.linspace(0, len(steps) - 1, most - 1)).astype(int)]
    grid: FloatArray = np.union1d(steps, [float(gpu.boost_clock_mhz)])
    grid.flags.writeable = False
    return grid


def held_clocks_mhz(gpu: GPU, clocks: Iterable[float] | None, refuse: bool) -> FloatArray:
    """The clocks to look at on a GPU, ascending.

    Args:
        gpu: The GPU whose clocks are asked for.
        clocks: Clocks that were asked for; None for a grid.
        refuse: Whether a clock that it cannot hold is an error, or just not looked at.

    Raises:
        InputError: `refuse`, and it cannot hold one.
    """
    if clocks is None:
        return clock_grid_mhz(gpu)
    asked = list(clocks)
    if refuse:
        return np.unique([gpu.checked_clock_mhz(clock) for clock in asked])
    return np.unique([float(clock) for clock in asked if gpu.min_clock_mhz <= clock <= gpu.max_clock_mhz])
