"""The clock law that all predictors share: how time and energy change with the clock and under a power cap.

A predictor gives the cost of operations at one clock f0. This module derives the cost at any other clock f.

- Time is the p-norm of three parts (norms.py). Computing and the transfer between caches and SMs take a fixed number of
  clock cycles, so their seconds grow with f0 / f. DRAM has a clock of its own, so its seconds stay.
- Dynamic energy has three parts, too. Switching a transistor charges its capacitance C to the supply voltage V, which
  takes energy proportional to C V^2 (Weste and Harris, CMOS VLSI Design, chapter 5), so computing a FLOP scales with
  V^2. SMs that are awake switch in every cycle, so they draw power proportional to V^2 f for as long as they work.
  Memory has a supply of its own, so its energy per byte stays.

The power cap is applied last. A GPU that would draw more than its cap lowers the clock until it does not. It averages
power over tens of milliseconds, which is longer than most operations. A loop over one operation therefore settles at
the clock of this operation, and a network settles at one clock for all of its operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, total
from ...hardware import GPU
from ...operations.operation import Operation
from .bounds import NO_BOUNDS, Bounds
from .energy import EnergyConstants, static_power_w
from .least_times import LeastTimes
from .norms import overlapped, smooth_max
from .voltage import relative_voltage

_STEPS = 14  # Bisection steps: they narrow a range of 2000 MHz down to 0.1 MHz.
# A network's clock is found to about the same precision by three rounds. Each evaluates 25 clocks at once, and keeps
# one of the 24 intervals between them. Three calls with an array are quicker than 14 calls with a number.
ROUNDS, TRIED = 3, 25
_LEAST_S = 1e-15  # Avoids divisions by zero.


@dataclass(frozen=True)
class Work:
    """Time and dynamic energy of operations at one clock, split by how each part scales with the clock.

    All arrays have the shape (operations,). An operation of unknown cost has NaN.

    Args:
        gpu: The GPU that they run on.
        clock_mhz: The graphics clock of each operation, in MHz, for which the times and energies below hold.
        parts: Seconds of computing, of DRAM and of caches; their p-norm is the device time.
        switching_j: Joules for computing.
        awake_j: Joules of SMs that are awake.
        memory_j: Joules for moving bytes to and from memory.
        most_mhz: The highest clock in MHz that each can hold under the default cap; infinite where none was measured.
        cap_w: The cap in watts that `most_mhz` was measured under. Under this cap or a higher one `most_mhz` is the
            answer, and no clock needs to be searched for.
        bounds: Least seconds of each operation (bounds.py); they hold even where the parts are smaller.
    """

    gpu: GPU
    clock_mhz: FloatArray
    parts: LeastTimes
    switching_j: FloatArray
    awake_j: FloatArray
    memory_j: FloatArray
    most_mhz: FloatArray | float = np.inf
    cap_w: float = np.inf
    bounds: Bounds = NO_BOUNDS

    @classmethod
    def of(
        cls,
        operations: Sequence[Operation],
        gpu: GPU,
        clock_mhz: float | FloatArray,
        ratio: FloatArray,
        constants: EnergyConstants,
    ) -> Self:
        """The work of operations whose device time is the least time of physics times a ratio.

        Args:
            operations: The operations.
            gpu: The GPU that they run on.
            clock_mhz: Graphics clock in MHz: one, or one for each operation.
            ratio: Device time over the least time of physics, shape (operations,).
            constants: Energy per FLOP, byte and cycle.
        """
        boost = float(gpu.boost_clock_mhz)
        clocks = np.broadcast_to(np.asarray(clock_mhz, dtype=float), (len(operations),))
        least = LeastTimes.of(operations, gpu, boost)
        if (clocks != boost).any():
            least = least.slowed(boost / clocks)
        paid = constants.parts(operations, least.time_s * ratio, gpu, clocks, constants.l2_saves)
        fp32_j, tensor_j, hbm_j, gddr_j, awake_j = (paid * constants.values()).T
        # `time_s` is at least a nanosecond. An operation with less than that gets this nanosecond as memory time, so
        # that the p-norm of its parts is `time_s`.
        parts = replace(least, memory_s=np.where(least.overlapped_s < least.time_s, least.time_s, least.memory_s))
        works = ratio > 0
        return cls(
            gpu, clocks, parts.times(ratio), (fp32_j + tensor_j) * works, awake_j * works, (hbm_j + gddr_j) * works
        )

    def scaled_to(self, device_s: FloatArray, dynamic_energy_j: FloatArray) -> Self:
        """This work with another device time and dynamic energy at the same clock; the shares of the parts stay.

        Args:
            device_s: Device seconds, shape (operations,).
            dynamic_energy_j: Joules above static power, shape (operations,).
        """
        more = dynamic_energy_j / np.maximum(self.switching_j + self.awake_j + self.memory_j, 1e-30)
        return replace(
            self,
            parts=self.parts.times(device_s / np.maximum(self.parts.overlapped_s, _LEAST_S)),
            switching_j=self.switching_j * more,
            awake_j=self.awake_j * more,
            memory_j=self.memory_j * more,
        )

    def scaled_by(self, device: float | FloatArray, energy: float | FloatArray) -> Self:
        """This work with device time and dynamic energy multiplied by factors.

        Args:
            device: Factor on device time: one, or one for each operation.
            energy: Factor on dynamic energy: one, or one for each operation.
        """
        return replace(
            self,
            parts=self.parts.times(np.asarray(device)),
            # A factor below one stands for a part of an operation, whose least time is shorter as well.
            bounds=Bounds(*(bound * np.minimum(device, 1.0) for bound in self.bounds)),
            switching_j=self.switching_j * energy,
            awake_j=self.awake_j * energy,
            memory_j=self.memory_j * energy,
        )

    def loading(self, cycles: FloatArray) -> Self:
        """This work where load units need a number of cycles beside everything else. SMs are awake for as long.

        Args:
            cycles: Cycles of each operation, shape (operations,).
        """
        loaded_s = overlapped(self.parts.cache_s, cycles / (1e6 * self.clock_mhz))
        parts = replace(self.parts, cache_s=np.where(cycles > 0, loaded_s, self.parts.cache_s))
        longer = parts.overlapped_s / np.maximum(self.parts.overlapped_s, _LEAST_S)
        return replace(self, parts=parts, awake_j=self.awake_j * longer)

    def at_least(self, places: NDArray[np.int64]) -> Self:
        """The first operations, raised to the time and energy of the last ones, which are lower limits for them.

        Args:
            places: For each limiting operation at the end of this work, the index of the operation that it limits,
                shape (limiting operations,).

        Returns:
            The work without the limiting operations.
        """
        count = len(self.switching_j) - len(places)
        costs = self.device_s, self.switching_j + self.awake_j + self.memory_j
        device, energy = (_raised(values[:count], values[count:], places) for values in costs)

        def first(values: FloatArray | float) -> FloatArray | float:
            return values if np.ndim(values) == 0 else np.asarray(values)[:count]

        parts = self.parts
        return replace(
            self,
            clock_mhz=self.clock_mhz[:count],
            parts=LeastTimes(*(part[:count] * device for part in (parts.compute_s, parts.memory_s, parts.cache_s))),
            switching_j=self.switching_j[:count] * energy,
            awake_j=self.awake_j[:count] * energy,
            memory_j=self.memory_j[:count] * energy,
            most_mhz=first(self.most_mhz),
            bounds=Bounds(*(first(bound) * device for bound in self.bounds)),
        )

    def bounded(self, operations: Sequence[Operation]) -> Self:
        """This work with device times of at least the bounds of the operations (bounds.py); energies stay."""
        return replace(self, bounds=Bounds.of(operations, self.gpu))

    def scatter(self, covered: NDArray[np.bool_]) -> Self:
        """This work as part of a longer list of operations; the others have NaN.

        Args:
            covered: True where the longer list has an operation of this work, shape (operations of the longer list,).
        """
        if covered.all():
            return self

        def spread(values: FloatArray | float) -> FloatArray:
            found = np.full(len(covered), np.nan)
            found[covered] = values
            return found

        return self._with_arrays(spread)

    def take(self, places: NDArray[np.intp]) -> Self:
        """The work of the operations at given indices, in their order; an index may occur twice."""
        return self._with_arrays(lambda values: values[places] if np.ndim(values) else values)

    def _with_arrays(self, change: Callable[[Any], Any]) -> Self:
        """This work with one function applied to every array."""
        return replace(
            self,
            clock_mhz=change(self.clock_mhz),
            parts=LeastTimes(*map(change, (self.parts.compute_s, self.parts.memory_s, self.parts.cache_s))),
            switching_j=change(self.switching_j),
            awake_j=change(self.awake_j),
            memory_j=change(self.memory_j),
            most_mhz=change(self.most_mhz),
            bounds=Bounds(*map(change, self.bounds)),
        )

    def merge(self, other: Self) -> Self:
        """This work with the values of another one where this one has NaN; `cap_w` is the higher of the two."""
        return self.with_others(other, np.isnan(self.switching_j))

    def with_others(self, other: Self, places: NDArray[np.bool_]) -> Self:
        """This work with the values of another one for some of the operations; `cap_w` is the higher of the two.

        Args:
            other: Work of as many operations on the same GPU.
            places: True where the values of `other` are taken, shape (operations,).
        """

        def known(mine: FloatArray | float, others: FloatArray | float) -> FloatArray:
            return np.where(places, others, mine)

        parts = zip(*(((p.compute_s, p.memory_s, p.cache_s)) for p in (self.parts, other.parts)), strict=True)
        return replace(
            self,
            clock_mhz=known(self.clock_mhz, other.clock_mhz),
            parts=LeastTimes(*(known(mine, others) for mine, others in parts)),
            switching_j=known(self.switching_j, other.switching_j),
            awake_j=known(self.awake_j, other.awake_j),
            memory_j=known(self.memory_j, other.memory_j),
            most_mhz=known(self.most_mhz, other.most_mhz),
            cap_w=max(self.cap_w, other.cap_w),
            bounds=Bounds(*(known(mine, others) for mine, others in zip(self.bounds, other.bounds, strict=True))),
        )

    def at(self, clock_mhz: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of each operation at another clock.

        Switching scales with V^2, and SMs that are awake draw power proportional to V^2 f; V is the supply voltage
        over that at `self.clock_mhz`.

        Args:
            clock_mhz: Graphics clock in MHz: one, or one for each operation.
        """
        clock_mhz = np.minimum(clock_mhz, self.most_mhz)
        return costs_at(self, clock_mhz, relative_voltage(self.gpu, clock_mhz), self.gpu.boost_clock_mhz)

    @property
    def device_s(self) -> FloatArray:
        """Device seconds of each operation at `clock_mhz`."""
        return self.bounds.applied(self.parts.overlapped_s, self.gpu.boost_clock_mhz / self.clock_mhz)

    @cached_property
    def awake_w(self) -> FloatArray:
        """Watts of SMs that are awake."""
        return self.awake_j / np.maximum(self.parts.overlapped_s, _LEAST_S)

    @cached_property
    def own_voltage(self) -> FloatArray:
        """Supply voltage at `clock_mhz` over that at the boost clock."""
        return relative_voltage(self.gpu, self.clock_mhz)

    def held_mhz(self, clock_mhz: float, power_limit_w: float, host_s: FloatArray | float = 0.0) -> FloatArray:
        """The clock that each operation runs at in a loop of its own: the requested one, or less under a power cap.

        Args:
            clock_mhz: The requested clock in MHz.
            power_limit_w: The power cap in watts. It limits the mean power of a loop.
            host_s: Seconds that the host needs to launch each operation. A GPU that waits for the host draws less.

        Returns:
            Clocks in MHz, shape (operations,).
        """

        def within(clocks: FloatArray) -> NDArray[np.bool_]:
            device_s, dynamic_j = self.at(clocks)
            allowed_w = np.maximum(power_limit_w - static_power_w(self.gpu, clocks), 1.0)
            return np.asarray(dynamic_j <= allowed_w * smooth_max(device_s, host_s))

        high: FloatArray = np.minimum(np.full(len(self.clock_mhz), float(clock_mhz)), self.most_mhz)
        if power_limit_w >= self.cap_w:
            return high
        fits = within(high)
        if fits.all():
            return high
        low = np.full(len(high), min(float(self.gpu.min_clock_mhz), float(clock_mhz)))
        for _ in range(_STEPS):
            middle = (low + high) / 2
            is_within = within(middle)
            low, high = np.where(is_within, middle, low), np.where(is_within, high, middle)
        held: FloatArray = np.where(fits, np.minimum(clock_mhz, self.most_mhz), low)
        return held

    def held_together_mhz(
        self, counts: FloatArray, clock_mhz: FloatArray | float, power_limit_w: float, host_s: float, static: float
    ) -> FloatArray:
        """The one clock that all operations of a network run at, for each requested clock.

        Args:
            counts: Calls of each operation in one iteration, shape (operations,).
            clock_mhz: Requested clocks in MHz: one, or an array of any length.
            power_limit_w: The power cap in watts.
            host_s: Seconds that the host needs for one iteration. A GPU that waits for the host draws less.
            static: Board power of a waiting GPU, relative to `static_power_w`; one factor for all clocks.

        Returns:
            Clocks in MHz, in the shape of `clock_mhz`.
        """

        def within(clocks: FloatArray) -> NDArray[np.bool_]:
            device_s, dynamic_j = self.at(clocks[:, None])
            time_s = smooth_max(total(counts * device_s), host_s)
            allowed_w = np.maximum(power_limit_w - static * static_power_w(self.gpu, clocks), 1.0)
            return np.asarray(total(counts * dynamic_j) <= allowed_w * time_s)

        asked = np.asarray(clock_mhz, dtype=float)
        if power_limit_w >= self.cap_w or within(asked.max().reshape(1))[0]:
            return asked
        held: FloatArray = np.minimum(asked, highest_mhz(lambda clocks: within(clocks[0])[None], [self.gpu])[0])
        return held


def costs_at(
    work: Any, clock_mhz: FloatArray | float, voltage: FloatArray, boost_mhz: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """Device seconds and dynamic joules of each operation at another clock; see `Work.at`.

    Args:
        work: A `Work`, or a `WorkOnGpus` for arrays over GPUs.
        clock_mhz: Graphics clock in MHz.
        voltage: Supply voltage at that clock over that at the boost clock.
        boost_mhz: The boost clock.
    """
    slower = work.clock_mhz / clock_mhz
    working_s = work.parts.slowed_s(slower)
    logic = (voltage / work.own_voltage) ** 2
    dynamic_j: FloatArray = work.memory_j + logic * (work.switching_j + work.awake_w * (working_s / slower))
    return work.bounds.applied(working_s, boost_mhz / clock_mhz), dynamic_j


def highest_mhz(within: Callable[[FloatArray], NDArray[np.bool_]], gpus: Sequence[GPU]) -> FloatArray:
    """The highest clock of each GPU at which a network is within its power cap, shape (gpus,).

    The search starts from the GPUs' own ranges, whatever clocks are requested, so that a clock gets the same answer
    alone and as one of many.

    Args:
        within: Tells for clocks of shape (gpus, clocks) whether the network is within the caps there.
        gpus: The GPUs.
    """
    low = np.array([float(gpu.min_clock_mhz) for gpu in gpus])
    high = np.array([float(gpu.max_clock_mhz) for gpu in gpus])
    each = np.arange(len(gpus))
    for _ in range(ROUNDS):
        tried = np.linspace(low, high, TRIED, axis=1)
        above = np.array([np.searchsorted(beyond, True) for beyond in ~within(tried[:, 1:-1])])
        low, high = tried[each, above], tried[each, above + 1]
    return low


def _raised(values: FloatArray, least: FloatArray, places: NDArray[np.int64]) -> FloatArray:
    """Factors of at least 1 that raise `values` at `places` to `least`; 1 for the other values."""
    factors = np.ones(len(values))
    factors[places] = np.fmax(least / np.maximum(values[places], _LEAST_S), 1.0)
    return factors
