"""What an access to each memory level of a GPU costs, found by chasing pointers (Delestrac et al., ASAP 2024).

A kernel follows a chain of pointers through an array that lies in one level, 32 bytes apart, so that every step is one
access and none can be done ahead. Blocks and threads are raised until no more of them brings more accesses a second.
Then the number of accesses is swept, and the slope of energy over accesses is the energy of one: what a launch and
warming up cost is the same for all points and drops out. What the board draws without work is measured before and
after each sweep and taken off by time, as it drifts from one to the other.
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
"""Sweeps of each level; the median of their slopes counts."""

_SECONDS = (
    1.0,
    2.0,
    3.0,
    4.0,
)  # Points of a sweep. Counters update every 0.1 s at worst, which is 3 % of their spread.
_TRIAL_S, _TRIAL_STEPS, _MOST_STEPS = 0.3, 10_000, 2**31 - 1
_IDLE_S = 3.0
_SETTLING_S = 1.0  # The board falls to its idle power after work.
_PLATEAU = 0.98  # Of the most accesses a second.
_LEAST_FIT = 0.99  # Of the variance that a straight line explains.


@dataclass(frozen=True)
class Chase:
    """A run of the kernel.

    Args:
        duration_s: Seconds that it took.
        energy_j: Joules that the board drew meanwhile.
    """

    duration_s: float
    energy_j: float


class ChaseDevice(Protocol):
    """A GPU that can chase pointers while its energy is measured."""

    @property
    def multiprocessors(self) -> int:
        """How many SMs it has."""
        ...

    def run(self, level: str, blocks: int, threads: int, steps: int) -> Chase:
        """Let each thread take so many steps through an array in a level.

        Raises:
            SensorError: The energy could not be measured.
        """
        ...

    def idle(self, settle_s: float, seconds: float) -> tuple[float, float]:
        """Mean watts without work for some seconds after a rest, and the monotonic middle of that time."""
        ...

    def now_s(self) -> float:
        """Monotonic time."""
        ...


@dataclass(frozen=True)
class LevelCalibration:
    """What was found of one level.

    Args:
        level: One of `MEMORY_LEVELS`.
        access_j: Joules of an access to 32 bytes: the median of all sweeps.
        slopes_j: What each sweep gave.
        blocks, threads: Where the accesses per second reach their plateau.
        accesses_per_s: Accesses a second there.
        fit: Least share of the variance that a straight line explains, over the sweeps.
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
    """What was found of a GPU.

    Args:
        levels: One for each level.
        idle_w: Watts without work, before the first sweep and after each.
    """

    levels: tuple[LevelCalibration, ...]
    idle_w: tuple[float, ...]

    @property
    def access_energy_j(self) -> dict[str, float]:
        """Level -> joules of an access, as the catalogue has it."""
        return {level.level: level.access_j for level in self.levels}

    @property
    def notes(self) -> tuple[str, ...]:
        """What speaks against it."""
        told = [
            f"{each.level}: a straight line explains {100 * each.fit:.1f} % of the sweep"
            + (f", and the sweeps differ by {100 * (each.spread - 1):.0f} %" if each.spread > 1.1 else "")
            for each in self.levels
            if each.fit < _LEAST_FIT or each.spread > 1.1
        ]
        order = [self.access_energy_j[level] for level in MEMORY_LEVELS]
        if order != sorted(order):
            told.append("a level farther from the registers costs less than a nearer one: something disturbed the runs")
        return tuple(told)


def calibrate(device: ChaseDevice, runs: int = RUNS, levels: Sequence[str] = MEMORY_LEVELS) -> Calibration:
    """Find what an access to each level costs.

    Args:
        device: What chases pointers.
        runs: Sweeps of each level, three or more.
        levels: Which levels; all of them for a file of the catalogue.

    Raises:
        InputError: Fewer than three runs.
        SensorError: The energy could not be measured, or grows with no number of accesses.
    """
    if runs < RUNS:
        raise InputError("too few runs to tell their spread", given=runs, allowed=f"{RUNS} or more")
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
                "the energy does not grow with the accesses",
                given=f"{level}: {', '.join(f'{1e12 * slope:.3g} pJ' for slope in slopes)}",
                hint="see that nothing else runs on the GPU, and that it has an energy counter",
            )
        median_j = float(np.median(slopes))
        found.append(LevelCalibration(level, median_j, tuple(slopes), blocks, threads, per_s, min(fits)))
    return Calibration(tuple(found), tuple(watts for watts, _ in idle))


def _plateau(device: ChaseDevice, level: str) -> tuple[int, int, float]:
    """The fewest blocks and threads that reach the most accesses a second, and how many these are."""
    rates = {}
    for per_sm in BLOCKS_PER_SM:
        for threads in THREADS:
            blocks = per_sm * device.multiprocessors
            steps = _TRIAL_STEPS
            trial = device.run(level, blocks, threads, steps)
            if trial.duration_s < _TRIAL_S:  # too short to time: as many steps as take long enough
                steps = min(_MOST_STEPS, max(steps, int(steps * _TRIAL_S / max(trial.duration_s, 1e-6))))
                trial = device.run(level, blocks, threads, steps)
            rates[blocks, threads] = blocks * threads * steps / trial.duration_s
    enough = [choice for choice, rate in rates.items() if rate >= _PLATEAU * max(rates.values())]
    blocks, threads = min(enough, key=lambda choice: (choice[0] * choice[1], choice))
    return blocks, threads, rates[blocks, threads]


Point = tuple[float, float, float, float]
"""Accesses, seconds, joules, and the monotonic middle of a run."""


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
