"""Whether the time of a loop is proportional to its iterations: the check of Nicolai (Heidelberg 2025).

Loops of many lengths are timed. A line is fitted to the logarithms of iterations over those of seconds, for the longest
six sevenths of the loops. A loop whose iterations lie more than five standard deviations of these residuals off the
line is an outlier. Loops longer than the longest outlier can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_LENGTHS = 7
"""Least number of loop lengths for the check."""

_LEFT_OUT = 1 / 7
_SIGMAS = 5
_RANGE = 1000.0  # Ratio of the longest loop to the shortest.
_LEAST_DEVIATION = 1e-6  # Below it, residuals are rounding.


@dataclass(frozen=True)
class Proportionality:
    """The fit of a line to loops of several lengths.

    Args:
        slope: Slope of log iterations over log seconds, 1 where they are proportional.
        deviation: Standard deviation of the residuals of the fitted loops, in decades of iterations.
    """

    slope: float
    deviation: float
    outliers_s: tuple[float, ...]

    def doubts(self, floor_s: float) -> tuple[str, ...]:
        """What to warn of, if loops that take at least `floor_s` seconds are to be trusted."""
        longest_s = max(self.outliers_s, default=0.0)
        if longest_s <= floor_s:
            return ()
        return (f"time is not proportional to iterations in loops of up to {longest_s:.3g} s",)


def lengths(number: int, seconds: float) -> list[float]:
    """Durations of the loops to time, in seconds: spaced evenly on a logarithmic scale, the longest last."""
    return np.geomspace(seconds / _RANGE, seconds, number).tolist() if number else []


def length_of_all(number: int, seconds: float) -> float:
    """How many seconds the loops take together."""
    return sum(lengths(number, seconds))


def proportionality(loops: Sequence[tuple[int, float]]) -> Proportionality:
    """Check loops of several lengths.

    Args:
        loops: Iterations and seconds of each loop, at least `LEAST_LENGTHS`.
    """
    by_length = sorted(loops, key=lambda loop: loop[1])
    iterations, seconds = np.log10(np.array(by_length, dtype=float)).T
    longest = slice(int(len(by_length) * _LEFT_OUT), None)
    slope, intercept = np.polyfit(seconds[longest], iterations[longest], 1)
    residuals = iterations - (slope * seconds + intercept)
    deviation = max(float(np.std(residuals[longest])), _LEAST_DEVIATION)
    off = np.abs(residuals) > _SIGMAS * deviation
    return Proportionality(float(slope), deviation, tuple((10 ** seconds[off]).tolist()))
