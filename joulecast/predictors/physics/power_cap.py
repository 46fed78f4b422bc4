"""The power cap: the clock that GPUs hold under it, for many networks, GPUs and clocks at once.

A GPU that would draw more than its cap lowers the clock until it does not. It averages power over tens of milliseconds,
which is longer than most operations. A loop over one operation therefore settles at the clock of this operation, and a
network settles at one clock for all of its operations. So a loop is a network of one operation here. Loops that were
measured at the cap ran at a lower clock than the default, which follows in the same way (`measured_work`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, total
from ...hardware import GPU, Boards
from ...operations.operation import Operation
from .clock import COLUMNS, ClockLaw, Work
from .energy import EnergyConstants, RelativeVoltage, static_power_w, voltage_of
from .least_times import LeastTimes
from .norms import smooth_max

_AT_CAP = 0.97  # Share of the cap from which a measured loop counts as throttled by it.
# Clocks are found on a grid of so many steps between the lowest and the highest: to 0.1 MHz of 2000 MHz.
_NETWORK_STEPS, _LOOP_STEPS = 24**3, 2**14
# Clocks that are tried at once, and the most operations of all jobs for which that is quicker than one after the other.
_AT_ONCE, _FEW_OPERATIONS = 23, 4_000
# Values of an operation that costs nothing at any clock.
_NOTHING = np.array([{"clock_mhz": 1.0, "most_mhz": np.inf, "voltage_power": 2.0}.get(name, 0.0) for name in COLUMNS])
_SMALL = 5_000  # Values of a table in which looking for columns of equal values takes longer than it saves.
_MOST_VALUES = 200_000  # Values of one array (jobs times clocks times operations) that are computed at once: 1.6 MB.


@dataclass(frozen=True)
class Jobs:
    """Networks on GPUs, each under a power cap: a job is one network on one GPU.

    An operation of unknown cost counts as one that costs nothing.

    Args:
        gpu: The GPU of each job (`Boards`), or one GPU for all jobs.
        columns: The columns of `Work`, each of shape (jobs, 1, operations), or (jobs, 1, 1) where all operations of a
            job have the same value.
        counts: Calls of each operation in one iteration, shape (jobs, operations); 0 fills up shorter networks.
        facts: Four values for each job, shape (4, jobs, 1): seconds that the host needs for an iteration (a GPU that
            waits draws less), board power of the waiting GPU over `static_power_w` at any clock, power cap in watts,
            and the cap that the operations' highest clocks were measured under. From that cap on no clock is searched.
    """

    gpu: GPU
    columns: tuple[FloatArray, ...]
    counts: FloatArray
    facts: FloatArray

    @classmethod
    def of(
        cls, works: Sequence[Work], counts: Sequence[FloatArray], facts: Sequence[tuple[float, float, float]]
    ) -> Self:
        """Jobs on GPUs of their own."""
        table = np.full((len(COLUMNS), len(works), max(map(len, counts))), np.nan)
        calls = np.zeros(table.shape[1:])
        for place, (work, called) in enumerate(zip(works, counts, strict=True)):
            table[:, place, : len(called)], calls[place, : len(called)] = work.columns, called
        known = [(*each, work.cap_w) for each, work in zip(facts, works, strict=True)]
        gpu = works[0].gpu if len(works) == 1 else Boards.of(tuple(work.gpu for work in works))
        return cls(gpu, _columns(table), calls, np.array(known).T[:, :, None])

    @classmethod
    def sharing(cls, work: Work, places: NDArray[np.intp], counts: FloatArray, facts: FloatArray) -> Self:
        """Networks on one GPU that share operations.

        Args:
            work: The operations of all networks.
            places: Index of each operation of each network in `work`, shape (networks, operations).
            counts: Calls of each, 0 where a network is shorter, shape (networks, operations).
            facts: Host seconds, relative static power and cap of each network, shape (3, networks).
        """
        known = np.vstack([facts, np.full(len(places), work.cap_w)])
        return cls(work.gpu, _columns(work.columns[:, places]), counts, known[:, :, None])

    @classmethod
    def of_loops(cls, work: Work, power_limit_w: float, host_s: FloatArray | float) -> Self:
        """Jobs of one operation, each in a loop of its own on the same GPU."""
        count = len(work.switching_j)
        facts = np.array([np.broadcast_to(each, count) for each in (host_s, 1.0, power_limit_w)])
        return cls.sharing(work, np.arange(count)[:, None], np.ones((count, 1)), facts)

    @property
    def most_mhz(self) -> FloatArray:
        """The highest clock that each operation can hold."""
        return self.columns[COLUMNS.index("most_mhz")]

    def at(self, clock_mhz: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of each operation, shape (jobs, clocks, operations); see `Work.at`."""
        clocks = np.minimum(clock_mhz[:, :, None], self.most_mhz)
        return self._law.at(clocks, self._voltage.at(clocks), np.asarray(self.gpu.boost_clock_mhz)[..., None])

    def sums_at(self, clock_mhz: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of an iteration of each job, shape (jobs, clocks) each."""
        pieces = min(-(-clock_mhz.shape[1] * self.counts.size // _MOST_VALUES), clock_mhz.shape[1])
        if pieces > 1:
            each = [self.sums_at(piece) for piece in np.array_split(clock_mhz, pieces, axis=1)]
            device_s, dynamic_j = (np.concatenate(parts, axis=1) for parts in zip(*each, strict=True))
        else:
            device_s, dynamic_j = (total(costs * self.counts[:, None, :]) for costs in self.at(clock_mhz))
        return device_s, dynamic_j

    def static_w(self, clock_mhz: FloatArray) -> FloatArray:
        """Board power while the GPU waits, at clocks of shape (jobs, clocks)."""
        watts: FloatArray = self.facts[1] * static_power_w(self.gpu, clock_mhz)
        return watts

    def within(self, clock_mhz: FloatArray) -> NDArray[np.bool_]:
        """Whether each job is within its power cap at clocks of shape (jobs, clocks)."""
        return self._within(clock_mhz, *self.sums_at(clock_mhz))

    def _within(self, clock_mhz: FloatArray, device_s: FloatArray, dynamic_j: FloatArray) -> NDArray[np.bool_]:
        host_s, _, cap_w, _ = self.facts
        allowed_w = np.maximum(cap_w - self.static_w(clock_mhz), 1.0)
        return np.asarray(dynamic_j <= allowed_w * smooth_max(device_s, host_s))

    def settled(self, clock_mhz: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The clock that all operations of a job run at (the requested one, or less under the cap), and the sums there.

        The search starts from the GPUs' own ranges, whatever clocks are requested, so that a clock gets the same answer
        alone and as one of many.

        Returns:
            Clocks in MHz, device seconds and dynamic joules of an iteration, shape (jobs, clocks) each.
        """
        device_s, dynamic_j = self.sums_at(clock_mhz)
        highest = np.arange(len(clock_mhz)), clock_mhz.argmax(axis=1)
        at_highest = (values[highest][:, None] for values in (clock_mhz, device_s, dynamic_j))
        _, _, cap_w, measured_cap_w = self.facts[:, :, 0]
        limited = (cap_w < measured_cap_w) & ~self._within(*at_highest)[:, 0]
        if not limited.any():
            return clock_mhz, device_s, dynamic_j
        some, held_mhz = self._take(limited), clock_mhz.copy()
        ends = some.gpu.min_clock_mhz, some.gpu.max_clock_mhz
        low, high = (np.broadcast_to(1.0 * end, (len(some.counts), 1))[:, 0] for end in ends)
        found = some.highest_mhz(low, high, _NETWORK_STEPS)
        held_mhz[limited] = np.minimum(clock_mhz[limited], found[:, None])
        device_s[limited], dynamic_j[limited] = some.sums_at(held_mhz[limited])
        return held_mhz, device_s, dynamic_j

    def mean_mhz(self, clock_mhz: FloatArray, busy_s: FloatArray) -> FloatArray:
        """The mean clock over device time, shape (jobs, clocks).

        It is lower than the clock asked for if single operations were measured to hold a lower one. Rounded, because
        rounding errors would make the mean of equal clocks differ from that clock.
        """
        if (self.most_mhz >= clock_mhz.max()).all():
            same: FloatArray = np.round(clock_mhz, 6)
            return same
        weighted = self.at(clock_mhz)[0] * np.minimum(clock_mhz[:, :, None], self.most_mhz)
        mean: FloatArray = total(weighted * self.counts[:, None, :]) / np.maximum(busy_s, 1e-300)
        return np.round(mean, 6)

    def highest_mhz(self, low: FloatArray, high: FloatArray, steps: int) -> FloatArray:
        """The highest clock between two of each job at which it is within its cap, shape (jobs,)."""
        place, step = np.zeros(len(low), dtype=int), steps
        at_once = _AT_ONCE if self.counts.size < _FEW_OPERATIONS and steps == _NETWORK_STEPS else 1
        while step > 1:
            step = -(-step // (at_once + 1))
            tried = place[:, None] + step * np.arange(1, at_once + 1)
            fits = self.within(low[:, None] + (high - low)[:, None] * (tried / steps)) & (tried < steps)
            place += step * np.argmin(np.column_stack([fits, np.zeros(len(fits), dtype=bool)]), axis=1)
        highest: FloatArray = low + (high - low) * (place / steps)
        return highest

    def _take(self, some: NDArray[np.bool_]) -> Self:
        """The jobs at a mask of shape (jobs,)."""
        gpu = Boards.of(tuple(compress(self.gpu.each, some))) if isinstance(self.gpu, Boards) else self.gpu
        columns = tuple(column[some] for column in self.columns)
        return type(self)(gpu, columns, self.counts[some], self.facts[:, some])

    @cached_property
    def _law(self) -> ClockLaw:
        return ClockLaw.of(self.columns, self._voltage)

    @cached_property
    def _voltage(self) -> RelativeVoltage:
        return voltage_of(self.gpu, 2)


def _columns(table: FloatArray) -> tuple[FloatArray, ...]:
    """The columns of a table of shape (columns, jobs, operations), where NaN stands for nothing."""
    table = np.where(np.isnan(table), _NOTHING[:, None, None], table)[:, :, None, :]
    if table.size < _SMALL:
        return tuple(table)
    return tuple(each[..., :1] if (each == each[..., :1]).all() else each for each in table)


def loop_clocks_mhz(
    work: Work, clock_mhz: float | FloatArray, power_limit_w: float, host_s: FloatArray | float = 0.0
) -> FloatArray:
    """The clock that each operation runs at in a loop of its own: the requested one, or less under a power cap.

    Returns:
        Clocks in MHz, shape (operations,); of several GPUs, for which there is no cap here, (gpus, operations).
    """
    high: FloatArray = np.minimum(np.broadcast_to(1.0 * clock_mhz, work.switching_j.shape), work.most_mhz)
    if power_limit_w >= work.cap_w:
        return high
    loops = Jobs.of_loops(work, power_limit_w, host_s)
    # Of loops that were measured under the default cap, the clocks that they hold under it are known.
    known = np.isfinite(work.most_mhz) & (power_limit_w >= work.gpu.power_limit_w)
    fits = loops.within(high[:, None])[:, 0] | known
    if not fits.all():
        some, low = loops._take(~fits), min(float(work.gpu.min_clock_mhz), float(clock_mhz))
        high[~fits] = some.highest_mhz(np.full(len(some.counts), low), high[~fits], _LOOP_STEPS)
    return high


def throttled_mhz(
    operations: Sequence[Operation], gpu: GPU, device_s: FloatArray, constants: EnergyConstants, power_limit_w: float
) -> FloatArray:
    """The clock that each operation must have run at, given its measured time under a power cap.

    Returns:
        Clocks in MHz, at most the default clock, shape (operations,).
    """
    boost = float(gpu.boost_clock_mhz)
    least = LeastTimes.of(operations, gpu)
    ratio = device_s / least.time_s
    # The measured time already is the time at the unknown clock. It must not change while that clock is searched for,
    # so all of it counts as memory time, which does not depend on the clock.
    work, nothing = Work.of(operations, gpu, boost, ratio, constants), np.zeros(len(operations))
    still = replace(work, compute_s=nothing, memory_s=least.time_s * ratio, cache_s=nothing)
    return loop_clocks_mhz(still, boost, power_limit_w)


def measured_work(
    operations: Sequence[Operation],
    gpu: GPU,
    device_s: FloatArray,
    dynamic_energy_j: FloatArray,
    power_w: FloatArray,
    constants: EnergyConstants,
) -> Work:
    """The work of operations that were measured at the default clock under the default cap.

    A loop whose power is close to the cap was throttled: it ran at a lower clock than the default. This clock is
    derived from the clock law, and the measured time and energy are taken to hold at it.

    Args:
        operations: The measured operations.
        gpu: The GPU that they were measured on.
        device_s: Device seconds, shape (operations,).
        dynamic_energy_j: Joules above static power, shape (operations,).
        power_w: Board power in watts while each ran, shape (operations,).
        constants: Energy per FLOP, byte and cycle, by which the measured energy is split.
    """
    cap_w = gpu.power_limit_w
    capped = power_w > _AT_CAP * cap_w
    held = np.where(capped, throttled_mhz(operations, gpu, device_s, constants, cap_w), float(gpu.boost_clock_mhz))
    work = Work.of(operations, gpu, held, np.ones(len(operations)), constants)
    return replace(work.scaled_to(device_s, dynamic_energy_j), most_mhz=held, cap_w=cap_w).bounded(operations)
