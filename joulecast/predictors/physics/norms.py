"""The time that overlapping parts take together: that of the longest, and a little more if others are nearly as long.

The host and the device of a loop work at the same time, and so do the compute units, memory and caches of a kernel, but
each waits for the others now and then. The p-norm (a^p + b^p)^(1/p) models this with one number: it lies between the
maximum (p to infinity, perfect overlap) and the sum (p = 1, no overlap).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def smooth_max(a: Any, b: Any) -> Any:
    """The time that the host and the device take together: the p-norm of both, p = 4.

    With p from 3 to 6 there is little difference on the A30's networks. Products and roots are rounded in the same way
    for numbers and for arrays, which powers are not.
    """
    return np.sqrt(np.sqrt(a * a * a * a + b * b * b * b))


def cubed(values: Any) -> Any:
    """Third powers. numpy's own power function takes ten times as long."""
    return values * values * values


def overlapped(*times: Any) -> Any:
    """The time that parts of one kernel take together: their p-norm, p = 3."""
    return np.cbrt(sum(map(cubed, times[1:]), start=cubed(times[0])))
