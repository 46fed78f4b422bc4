"""Which clocks of a GPU are compared."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU

MOST_CLOCKS = 40
_STEP_MHZ = 15.0  # The step between NVIDIA's clocks, for GPUs of which the catalogue does not state it.


def supported_clocks_mhz(gpu: GPU) -> FloatArray:
    """The clocks that can be set according to the catalogue: equal steps from the highest downwards."""
    step = gpu.clock_step_mhz or _STEP_MHZ
    count = int((gpu.max_clock_mhz - gpu.min_clock_mhz) / step + 1e-6)
    steps: FloatArray = np.round(gpu.max_clock_mhz - step * np.arange(count, -1, -1.0))
    return steps


@lru_cache(maxsize=256)
def clock_grid_mhz(gpu: GPU, most: int = MOST_CLOCKS) -> FloatArray:
    """At most `most` clocks that can be set, evenly spaced from the lowest to the highest, and the default clock."""
    steps = supported_clocks_mhz(gpu)
    if len(steps) >= most:
        steps = steps[np.round(np.linspace(0, len(steps) - 1, most - 1)).astype(int)]
    grid: FloatArray = np.union1d(steps, [float(gpu.boost_clock_mhz)])
    grid.flags.writeable = False
    return grid


def held_clocks_mhz(gpu: GPU, clocks: Iterable[float] | None, refuse: bool) -> FloatArray:
    """The clocks at which a GPU is compared, ascending.

    Args:
        gpu: The GPU.
        clocks: Clocks that the user chose; None for a grid.
        refuse: Whether a clock that the GPU cannot hold is an error; otherwise it is skipped.

    Raises:
        InputError: `refuse` is set, and the GPU cannot hold one of the clocks.
    """
    if clocks is None:
        return clock_grid_mhz(gpu)
    asked = list(clocks)
    if refuse:
        return np.unique([gpu.checked_clock_mhz(clock) for clock in asked])
    return np.unique([float(clock) for clock in asked if gpu.min_clock_mhz <= clock <= gpu.max_clock_mhz])
