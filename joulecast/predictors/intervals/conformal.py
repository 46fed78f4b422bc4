"""Split conformal prediction (Lei et al., JASA 2018), and the range of power that no interval leaves.

Take the k-th smallest of n absolute errors as the half width, with k = ceil((n + 1) x level). Then a share `level` of
new cases like those lies within.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError
from ...hardware import GPU

_ROUNDING = 1e-6  # Tolerance for rounding errors in sums of weights.


def require_level(level: float) -> None:
    """Require that the level of an interval, the share of cases that lie within, is between 0 and 1.

    Raises InputError: it is not.
    """
    if not 0 < level < 1:
        raise InputError("the level of an interval lies between 0 and 1", given=level, allowed="such as 0.9")


def conformal_rank(level: float, count: int) -> int:
    """Rank of the error, of `count` sorted ones, that covers a share `level` of new cases; above `count` if none does.

    Raises InputError: the level is not between 0 and 1.
    """
    require_level(level)
    return math.ceil((count + 1) * level - 1e-9)


def conformal_error(errors: Sequence[float] | FloatArray, level: float, of_what: str) -> float:
    """The half width that covers a share `level`, out of sorted absolute errors.

    Raises InputError: the level is not between 0 and 1, or too high for so few errors.
    """
    rank = conformal_rank(level, len(errors))
    if rank > len(errors):
        raise InputError(
            f"{len(errors)} {of_what} cannot support such an interval",
            given=level,
            allowed=f"up to {len(errors) / (len(errors) + 1):.3f}",
        )
    return float(errors[rank - 1])


def thinned(errors: FloatArray, most: int, weights: FloatArray | None = None) -> FloatArray:
    """Sorted errors; at most `most` of them, evenly spaced by rank, so that their conformal intervals stay the same.

    NaN stands for unknown errors. Without weights each error has a weight of 1. The result has at most as many errors
    as the weights sum up to.
    """
    known = ~np.isnan(errors)
    order = np.argsort(errors[known], kind="stable")
    reached = np.cumsum(np.ones(len(order)) if weights is None else weights[known][order])
    count = int(reached[-1] + _ROUNDING)
    number = min(most, count)
    ranks = (count + 1) * np.arange(1, number + 1) / (number + 1)
    places = np.searchsorted(reached, ranks - _ROUNDING)
    found: FloatArray = errors[known][order[np.minimum(places, len(order) - 1)]]
    return found


def power_range_w(gpu: GPU, power_limit_w: float) -> tuple[float, float]:
    """Least and most watts that a board can draw under a cap."""
    idle_w = gpu.idle_power_w
    if idle_w is None:
        idle_w = 0.0 if gpu.idle_curve is None else float(gpu.idle_curve.at(float(gpu.min_clock_mhz)))
    return min(idle_w, power_limit_w), power_limit_w


def within_range(low: Any, value: Any, high: Any, power_range_w: tuple[float, float]) -> tuple[Any, Any]:
    """An interval of power, cut off at what the board can draw."""
    least, most = power_range_w
    return np.minimum(np.maximum(low, least), value), np.maximum(np.minimum(high, most), value)
