"""Measures the energy of an access to each memory level of a GPU by chasing pointers (Delestrac et al., ASAP 2024).

A kernel follows a chain of pointers, 32 bytes apart, through an array that fits into one level. Every step is one
access, and no step can start before the one before it has ended. Blocks and threads are increased until the number of
accesses per second stops growing. Then the number of accesses is varied. The slope of energy over accesses is the
energy of an access; the energy of launching and warming up is the same at all points, so it does not affect the slope.
Idle power is measured before and after each sweep, interpolated between the two, and subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import InputError, SensorError
from ..hardware.gpu import MEMORY_LEVELS

BLOCKS_PER_SM, THREADS = (1, 2, 4), (64, 128, 256, 512, 1024)
RUNS = 3
"""Least number of sweeps of each level; the result is the median of their slopes."""

# Lengths of the runs of a sweep. Counters update at least every 0.1 s, which is 3 % of the range of lengths.
_SECONDS = (1.0, 2.0, 3.0, 4.0)
_TRIAL_S, _TRIAL_STEPS, _MOST_STEPS = 0.3, 10_000, 2**31 - 1
_IDLE_S = 3.0
_SETTLING_S = 1.0  # Time in which the board returns to idle power after work.
_PLATEAU = 0.98  # Share of the largest number of accesses per second that counts as the plateau.
_LEAST_FIT = 0.99  # A straight line must explain this share of the variance, or there is a note.


@dataclass(frozen=True)
class Chase:
    """A run of the kernel.

    Args:
        duration_s: Seconds that the run took.
        energy_j: Joules that the board used in that time.
    """

    duration_s: float
    energy_j: float


class ChaseDevice(Protocol):
    """A GPU that can chase pointers while its energy is measured."""

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors of the GPU."""
        ...

    def run(self, level: str, blocks: int, threads: int, steps: int) -> Chase:
        """Follow the chain in the array of a memory level.

        Args:
            level: The memory level, one of `MEMORY_LEVELS`.
            blocks: Number of thread blocks.
            threads: Number of threads in each block.
            steps: Number of steps of each thread.

        Raises:
            SensorError: The energy could not be measured.
        """
        ...

    def idle(self, settle_s: float, seconds: float) -> tuple[float, float]:
        """Measure the power of the idle GPU.

        Args:
            settle_s: Seconds to wait before the measurement.
            seconds: Length of the measurement.

        Returns:
            Mean power in watts, and the middle of the measurement in monotonic seconds.
        """
        ...

    def now_s(self) -> float:
        """Monotonic time in seconds."""
        ...


@dataclass(frozen=True)
class LevelCalibration:
    """The result for one memory level.

    Args:
        level: The memory level, one of `MEMORY_LEVELS`.
        access_j: Joules of an access to 32 bytes, the median of all sweeps.
        slopes_j: Joules of an access by each sweep.
        blocks, threads: Numbers of blocks and threads at which the accesses per second reach their plateau.
        accesses_per_s: Accesses per second at these numbers.
        fit: Share of the variance that a straight line explains, the smallest of all sweeps.
    """

    level: str
    access_j: float
    slopes_j: tuple[float, ...]
    blocks: int
    threads: int
    accesses_per_s: float
    fit: float

    @property
    def spread(self) -> float:
        """Largest over smallest slope."""
        return max(self.slopes_j) / min(self.slopes_j)


@dataclass(frozen=True)
class Calibration:
    """The result for a GPU.

    Args:
        levels: The result for each memory level.
        idle_w: Idle power in watts, before the first sweep and after each.
    """

    levels: tuple[LevelCalibration, ...]
    idle_w: tuple[float, ...]

    @property
    def access_energy_j(self) -> dict[str, float]:
        """Memory level -> joules of an access, in the form of the catalogue."""
        return {level.level: level.access_j for level in self.levels}

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""
        notes = [
            f"{each.level}: a straight line explains {100 * each.fit:.1f} % of the sweep"
            + (f", and the sweeps differ by {100 * (each.spread - 1):.0f} %" if each.spread > 1.1 else "")
            for each in self.levels
            if each.fit < _LEAST_FIT or each.spread > 1.1
        ]
        order = [self.access_energy_j[level] for level in MEMORY_LEVELS]
        if order != sorted(order):
            notes.append("a level farther from the registers costs less than a nearer one: the runs were disturbed")
        return tuple(notes)


def calibrate(device: ChaseDevice, runs: int = RUNS, levels: Sequence[str] = MEMORY_LEVELS) -> Calibration:
    """Measure the energy of an access to each memory level.

    Args:
        device: The GPU.
        runs: Number of sweeps of each level, at least three.
        levels: The levels to measure. A file for the catalogue needs all of them.

    Raises:
        InputError: There are fewer than three sweeps.
        SensorError: The energy could not be measured, or does not grow with the number of accesses.
    """
    if runs < RUNS:
        raise InputError(
            "there are too few sweeps to see how much they differ",
            given=runs,
            allowed=f"{RUNS} or more",
            hint="give --runs 3",
        )
    idle = [device.idle(_SETTLING_S, _IDLE_S)]
    found = []
    for level in levels:
        blocks, threads, per_s = _plateau(device, level)
        slopes, fits = [], []
        for _ in range(runs):
            points = _sweep(device, level, blocks, threads, per_s)
            idle.append(device.idle(_SETTLING_S, _IDLE_S))
            slope_j, fit = _slope(points, idle[-2], idle[-1])
            slopes.append(slope_j)
            fits.append(fit)
        if min(slopes) <= 0:
            raise SensorError(
                "the energy does not grow with the number of accesses",
                given=f"{level}: {', '.join(f'{1e12 * slope:.3g} pJ' for slope in slopes)} for each access",
                allowed="more than 0 pJ",
                hint="make sure that nothing else runs on the GPU, and that it has an energy counter",
            )
        median_j = float(np.median(slopes))
        found.append(LevelCalibration(level, median_j, tuple(slopes), blocks, threads, per_s, min(fits)))
    return Calibration(tuple(found), tuple(watts for watts, _ in idle))


def _plateau(device: ChaseDevice, level: str) -> tuple[int, int, float]:
    """The smallest numbers of blocks and threads that reach the plateau of accesses per second, and that rate."""
    rates = {}
    for per_sm in BLOCKS_PER_SM:
        for threads in THREADS:
            blocks = per_sm * device.multiprocessors
            steps = _TRIAL_STEPS
            trial = device.run(level, blocks, threads, steps)
            if trial.duration_s < _TRIAL_S:  # Too short to be timed well, so it is repeated with more steps.
                steps = min(_MOST_STEPS, max(steps, int(steps * _TRIAL_S / max(trial.duration_s, 1e-6))))
                trial = device.run(level, blocks, threads, steps)
            rates[blocks, threads] = blocks * threads * steps / trial.duration_s
    enough = [choice for choice, rate in rates.items() if rate >= _PLATEAU * max(rates.values())]
    blocks, threads = min(enough, key=lambda choice: (choice[0] * choice[1], choice))
    return blocks, threads, rates[blocks, threads]


Point = tuple[float, float, float, float]
"""Number of accesses, seconds, joules, and the middle of a run in monotonic seconds."""


def _sweep(device: ChaseDevice, level: str, blocks: int, threads: int, per_s: float) -> list[Point]:
    points = []
    for seconds in _SECONDS:
        steps = min(_MOST_STEPS, max(1, round(seconds * per_s / (blocks * threads))))
        begin_s = device.now_s()
        run = device.run(level, blocks, threads, steps)
        points.append((float(blocks * threads * steps), run.duration_s, run.energy_j, (begin_s + device.now_s()) / 2))
    return points


def _slope(points: Sequence[Point], before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float]:
    """Joules per access above idle power by least squares, and the share of the variance that the line explains."""
    accesses, seconds, joules, at_s = np.array(points).T
    idle_w = np.interp(at_s, [before[1], after[1]], [before[0], after[0]])
    above_j = joules - idle_w * seconds
    slope_j, constant_j = np.polyfit(accesses, above_j, 1)
    left = above_j - (slope_j * accesses + constant_j)
    return float(slope_j), float(1 - left.var() / above_j.var()) if above_j.var() else 0.0
