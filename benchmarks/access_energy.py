"""The energy of an access to each memory level of a GPU, by chasing pointers (Delestrac et al., ASAP 2024): the method.

`pointer_chase.py` has the kernels and the command.

A kernel follows a chain of pointers, 32 bytes apart, through an array that fits into one level. Every step is one
access, and no step can start before the one before it has ended. Blocks and threads are increased until the number of
accesses per second stops growing. Then the number of accesses is varied. The slope of energy over accesses is the
energy of an access; the energy of launching and warming up is the same at all points, so it does not affect the slope.
Idle power is measured before and after each sweep, interpolated between the two, and subtracted.

Loads are what the catalogue knows. Stores, loads with a division after each, and divisions alone are measured in the
same way: a load with a division should cost what the two cost alone (the paper's check of its method).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from joulecast.errors import SensorError
from joulecast.hardware import GPU
from joulecast.hardware.gpu import MEMORY_LEVELS

ACCESSES = ("load", "store", "load+divide", "divide")
"""What a step of a kernel does. L1 writes through, so it serves no stores; divisions alone are measured once."""

BLOCKS_PER_SM, THREADS = (1, 2, 4), (64, 128, 256, 512, 1024)
RUNS = 3
"""Sweeps of each level; the result is the median of their slopes."""

# Lengths of the runs of a sweep. Counters update at least every 0.1 s, which is 3 % of the range of lengths.
_SECONDS = (1.0, 2.0, 3.0, 4.0)
_TRIAL_S, _TRIAL_STEPS, _MOST_STEPS = 0.3, 10_000, 2**31 - 1
_IDLE_S = 3.0
_SETTLING_S = 1.0  # Time in which the board returns to idle power after work.
_PLATEAU = 0.98  # Share of the largest number of accesses per second that counts as the plateau.
_SUM_WITHIN = 0.1  # A load with a division may differ from the two alone by this share without a note.
_LEAST_FIT = 0.99  # A straight line must explain this share of the variance, or there is a note.


@dataclass(frozen=True)
class Chase:
    """A run of the kernel."""

    duration_s: float
    energy_j: float


class ChaseDevice(Protocol):
    """A GPU that can chase pointers while its energy is measured."""

    multiprocessors: int
    """Number of multiprocessors of the GPU."""

    def run(
        self, level: str, blocks: int, threads: int, steps: int, access: str = "load", size_bytes: int | None = None
    ) -> Chase:
        """Follow the chain in the array of a memory level. Raises SensorError: the energy could not be measured.

        Args:
            steps: Number of steps of each thread.
            size_bytes: Size of the array, instead of one that fits into the level.
        """

    def idle(self, settle_s: float, seconds: float) -> tuple[float, float]:
        """Measure the power of the idle GPU.

        Returns mean power in watts, and the middle of the measurement in monotonic seconds.
        """

    def now_s(self) -> float:
        """Monotonic time in seconds."""

    def power(self, begin_s: float, end_s: float) -> tuple[Sequence[float], Sequence[float]]:
        """Times in monotonic seconds, and board power in watts at them, between two times."""


@dataclass(frozen=True)
class LevelCalibration:
    """The result for one memory level.

    Args:
        access_j: Joules of an access to 32 bytes, the median of all sweeps.
        blocks, threads: Numbers of blocks and threads at which the accesses per second reach their plateau.
        fit: Share of the variance that a straight line explains, the smallest of all sweeps.
    """

    level: str
    access_j: float
    slopes_j: tuple[float, ...]
    blocks: int
    threads: int
    accesses_per_s: float
    fit: float
    access: str = "load"

    @property
    def spread(self) -> float:
        """Largest over smallest slope."""
        return max(self.slopes_j) / min(self.slopes_j)


@dataclass(frozen=True)
class Calibration:
    """The result for a GPU.

    Args:
        idle_w: Idle power in watts, before the first sweep and after each.
        phases_s: Of the first sweep, in monotonic seconds: begin (t0) and end (t1) of the idle time before it, begin
            (t2) and end (t3) of its runs, begin (t4) and end (t5) of the idle time after it.
    """

    levels: tuple[LevelCalibration, ...]
    idle_w: tuple[float, ...]
    phases_s: tuple[float, ...] = ()

    @property
    def access_energy_j(self) -> dict[str, float]:
        """Memory level -> joules of an access, in the form of the catalogue."""
        return {each.level: each.access_j for each in self.levels if each.access == "load"}

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons to doubt the result."""
        notes = [
            f"{each.level}, {each.access}: a straight line explains {100 * each.fit:.1f} % of the sweep"
            + (f", and the sweeps differ by {100 * (each.spread - 1):.0f} %" if each.spread > 1.1 else "")
            for each in self.levels
            if each.fit < _LEAST_FIT or each.spread > 1.1
        ]
        order = [self.access_energy_j[level] for level in MEMORY_LEVELS if level in self.access_energy_j]
        if order != sorted(order):
            notes.append("a level farther from the registers costs less than a nearer one: the runs were disturbed")
        found = {(each.level, each.access): each.access_j for each in self.levels}
        divide_j = next((joules for (_, access), joules in found.items() if access == "divide"), None)
        for level in MEMORY_LEVELS:
            together, load = found.get((level, "load+divide")), found.get((level, "load"))
            if divide_j and together and load and abs(together / (load + divide_j) - 1) > _SUM_WITHIN:
                notes.append(
                    f"{level}: a load with a division costs {1e12 * together:.4g} pJ, and the two alone "
                    f"{1e12 * (load + divide_j):.4g} pJ"
                )
        return tuple(notes)


def calibrate(
    device: ChaseDevice,
    runs: int = RUNS,
    levels: Sequence[str] = MEMORY_LEVELS,
    accesses: Sequence[str] = ("load",),
) -> Calibration:
    """Measure the energy of an access to each memory level.

    Raises SensorError: the energy could not be measured, or does not grow with the number of accesses.

    Args:
        runs: Number of sweeps of each level.
        levels: The levels to measure. A file for the catalogue needs all of them.
        accesses: What the steps do, of `ACCESSES`. A file for the catalogue needs loads.
    """
    idle = [idle_of(device)]
    found: list[LevelCalibration] = []
    phases_s: tuple[float, ...] = ()
    kernels = [(level, access) for access in accesses for level in levels if _is_there(level, access, levels)]
    for level, access in kernels:
        blocks, threads, per_s = _plateau(device, level, access)
        slopes, fits = [], []
        for _ in range(runs):
            begin_s = device.now_s()
            slope_j, fit = energy_of(device, level, blocks, threads, per_s, access, idle)
            if not phases_s:
                (_, before_s), (_, after_s) = idle
                half_s = _IDLE_S / 2
                end_s = after_s - half_s - _SETTLING_S
                phases_s = (before_s - half_s, before_s + half_s, begin_s, end_s, after_s - half_s, after_s + half_s)
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
        found.append(LevelCalibration(level, median_j, tuple(slopes), blocks, threads, per_s, min(fits), access))
    return Calibration(tuple(found), tuple(watts for watts, _ in idle), phases_s)


def idle_of(device: ChaseDevice) -> tuple[float, float]:
    """Idle power in watts once the board has settled, and when it was measured."""
    return device.idle(_SETTLING_S, _IDLE_S)


def _is_there(level: str, access: str, levels: Sequence[str]) -> bool:
    return level == levels[0] if access == "divide" else (level, access) != ("l1", "store")


def _plateau(device: ChaseDevice, level: str, access: str) -> tuple[int, int, float]:
    """The smallest numbers of blocks and threads that reach the plateau of accesses per second, and that rate."""
    choices = [(per_sm * device.multiprocessors, threads) for per_sm in BLOCKS_PER_SM for threads in THREADS]
    rates = {choice: rate_of(device, level, *choice, access) for choice in choices}
    enough = [choice for choice, rate in rates.items() if rate >= _PLATEAU * max(rates.values())]
    blocks, threads = min(enough, key=lambda choice: (choice[0] * choice[1], choice))
    return blocks, threads, rates[blocks, threads]


def rate_of(
    device: ChaseDevice, level: str, blocks: int, threads: int, access: str = "load", size_bytes: int | None = None
) -> float:
    """Steps per second of all threads together, in a run that is long enough to be timed; see `ChaseDevice.run`."""
    steps = _TRIAL_STEPS
    trial = device.run(level, blocks, threads, steps, access, size_bytes)
    if trial.duration_s < _TRIAL_S:  # Too short to be timed well, so it is repeated with more steps.
        steps = min(_MOST_STEPS, max(steps, int(steps * _TRIAL_S / max(trial.duration_s, 1e-6))))
        trial = device.run(level, blocks, threads, steps, access, size_bytes)
    return blocks * threads * steps / trial.duration_s


def energy_of(
    device: ChaseDevice,
    level: str,
    blocks: int,
    threads: int,
    per_s: float,
    access: str,
    idle: list[tuple[float, float]],
) -> tuple[float, float]:
    """Joules of an access by one sweep over its number, and the share of the variance that a line explains.

    Args:
        idle: Idle power and when it was measured, at least once; what is measured after the sweep is added.
    """
    points = []
    for seconds in _SECONDS:
        steps = min(_MOST_STEPS, max(1, round(seconds * per_s / (blocks * threads))))
        begin_s = device.now_s()
        run = device.run(level, blocks, threads, steps, access)
        points.append((float(blocks * threads * steps), run.duration_s, run.energy_j, (begin_s + device.now_s()) / 2))
    idle.append(idle_of(device))
    return _slope(points, idle[-2], idle[-1])


Point = tuple[float, float, float, float]
"""Number of accesses, seconds, joules, and the middle of a run in monotonic seconds."""


def _slope(points: Sequence[Point], before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float]:
    """Joules per access above idle power by least squares, and the share of the variance that the line explains."""
    accesses, seconds, joules, at_s = np.array(points).T
    idle_w = np.interp(at_s, [before[1], after[1]], [before[0], after[0]])
    above_j = joules - idle_w * seconds
    slope_j, constant_j = np.polyfit(accesses, above_j, 1)
    left = above_j - (slope_j * accesses + constant_j)
    return float(slope_j), float(1 - left.var() / above_j.var()) if above_j.var() else 0.0


# What else chains of pointers show of a GPU's memory: energy over threads, and sizes of its caches.
#
# The energy of an access falls with the number of threads, because a multiprocessor that is awake draws power that few
# or many accesses share. The size of a cache shows in the time of a step: a single thread follows chains through larger
# and larger arrays, and from the size of the cache on, a growing share of its steps misses.

_OCTAVES, _STEPS_OF_OCTAVE = 2, 8  # Arrays from a quarter of the catalogue's size to four times it, 9 % apart.
_FEW_MISSES = 0.1
_LEAST_RISE = 1.2  # Farther memory must take this many times as long, or there is no cache to be seen.


@dataclass(frozen=True)
class OverThreads:
    """Energy of an access over numbers of threads.

    Args:
        threads: Threads on the whole GPU: a single one first, then one block on each multiprocessor.
    """

    level: str
    threads: tuple[int, ...]
    access_j: tuple[float, ...]


@dataclass(frozen=True)
class CacheSize:
    """A cache, as the times of chains through larger and larger arrays show it.

    Args:
        miss_rate: Share of the steps in each array that missed, from their times.
        size_bytes: The largest array of whose steps at most a tenth missed.
    """

    level: str
    array_bytes: tuple[int, ...]
    miss_rate: tuple[float, ...]
    size_bytes: float


def over_threads(device: ChaseDevice, level: str) -> OverThreads:
    """Measure the energy of a load with a single thread, and with more and more threads on each multiprocessor."""
    choices = [(1, 1), *((device.multiprocessors, threads) for threads in (1, 32, *THREADS))]
    idle = [idle_of(device)]
    found = [energy_of(device, level, *choice, rate_of(device, level, *choice), "load", idle)[0] for choice in choices]
    return OverThreads(level, tuple(blocks * threads for blocks, threads in choices), tuple(found))


def sizes(device: ChaseDevice, gpu: GPU) -> tuple[CacheSize, ...]:
    """Find the sizes of L1 and L2 by a single thread that follows chains through arrays around the catalogue's sizes.

    Raises SensorError: the time of a step does not rise with the size of the array.
    """
    return tuple(
        _size(device, level, kernel, known)
        for level, kernel, known in (("l1", "l1", gpu.l1_bytes), ("l2", "dram", gpu.l2_bytes))
        if known is not None
    )


def _size(device: ChaseDevice, level: str, kernel: str, known_bytes: int) -> CacheSize:
    octaves = np.arange(-_OCTAVES * _STEPS_OF_OCTAVE, _OCTAVES * _STEPS_OF_OCTAVE + 1) / _STEPS_OF_OCTAVE
    array_bytes = (32 * np.round(known_bytes * 2**octaves / 32)).astype(int)
    step_s = np.array([1 / rate_of(device, kernel, 1, 1, size_bytes=int(size)) for size in array_bytes])
    near_s, far_s = float(np.median(step_s[:_STEPS_OF_OCTAVE])), float(step_s[-_STEPS_OF_OCTAVE // 4 :].max())
    if far_s < _LEAST_RISE * near_s:
        raise SensorError(
            f"no end of {level} can be seen in the time of a step",
            given=f"{1e9 * near_s:.3g} ns in small arrays, {1e9 * far_s:.3g} ns in large ones",
            allowed=f"a rise by {100 * (_LEAST_RISE - 1):.0f} % between {array_bytes[0]} and {array_bytes[-1]} bytes",
            hint="make sure that nothing else runs on the GPU; --gpu names a GPU whose catalogue entry is nearer",
        )
    missed = np.clip((step_s - near_s) / (far_s - near_s), 0.0, 1.0)
    first = max(1, int(np.argmax(missed > _FEW_MISSES)))
    # Between the last array that fits and the first that does not, on a logarithmic scale.
    share = (_FEW_MISSES - missed[first - 1]) / max(missed[first] - missed[first - 1], 1e-9)
    size = float(array_bytes[first - 1] * (array_bytes[first] / array_bytes[first - 1]) ** np.clip(share, 0, 1))
    return CacheSize(level, tuple(array_bytes.tolist()), tuple(missed.tolist()), size)
