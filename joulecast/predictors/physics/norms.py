"""Times that overlap: together they take the longest of them, and a little more where they are close.

Host and device of a loop, and compute, memory and caches of a kernel, work at the same time, but each waits for the
others now and then. A p-norm, (a^p + b^p)^(1/p), says so with one number: the larger p, the nearer to the maximum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_HOST_AND_DEVICE = 4.0  # 3 to 6 make little difference to the A30's networks.


def smooth_max(a: Any, b: Any) -> Any:
    """The time that the host and the device take together: the p-norm of both, p = 4."""
    return (a**_HOST_AND_DEVICE + b**_HOST_AND_DEVICE) ** (1 / _HOST_AND_DEVICE)


def cubed(values: Any) -> Any:
    """Third powers; numpy's own power takes ten times as long."""
    return values * values * values


def overlapped(*times: Any) -> Any:
    """The time that parts of one kernel take together: their p-norm, p = 3."""
    return np.cbrt(sum(map(cubed, times[1:]), start=cubed(times[0])))
