"""The clock law that all predictors share: what another clock, and a power cap, do to time and energy.

A predictor says what operations cost at one clock. Their time is split into parts that scale with the clock (computing,
and the way between caches and SMs) and one that does not (DRAM), whose p-norm it is; their energy into what switches
(proportional to the square of the supply voltage), what SMs draw while they are awake (the same, times clock and time),
and what memory takes at any clock. From there both follow at every clock.

The power cap comes last: a GPU that would draw more lowers its clock until it does not. It looks at power over tens of
milliseconds, so a loop settles at the clock of its operation, and a network at one clock for all that is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from .bounds import NO_BOUNDS, Bounds
from .energy import EnergyConstants, relative_voltage, static_power_w
from .least_times import LeastTimes
from .norms import smooth_max

_STEPS = 14  # Halvings of the clock range: below 1 MHz.
_ROUNDS, _TRIED = 3, 25  # The same for a network, in 24 parts three times: three arrays take less than 14 numbers.
_LEAST_S = 1e-15
_AT_CAP = 0.97  # Of the cap, from where a loop counts as throttled by it.


@dataclass(frozen=True)
class Work:
    """Operations as they run at one clock, one value each; NaN where nothing is known.

    Args:
        gpu: The GPU that they run on.
        clock_mhz: The clock that the rest holds at, one for each operation.
        parts: Seconds of computing, memory and caches, such that their p-norm is the device time.
        switching_j: Joules of computing.
        awake_j: Joules of SMs that are awake.
        memory_j: Joules of moving bytes.
        most_mhz: The highest clock that each can hold under the default cap, where that was measured.
        cap_w: The cap that it was measured under; at this and above, nothing is left to search for.
        bounds: Seconds that nothing undercuts, whatever the parts say.
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
        """Work as physics has it, but slower by a ratio.

        Args:
            operations: What runs.
            gpu: The GPU that they run on.
            clock_mhz: One clock, or one for each operation.
            ratio: Device time over the least that physics allows.
            constants: What work costs.
        """
        boost = float(gpu.boost_clock_mhz)
        clocks = np.broadcast_to(np.asarray(clock_mhz, dtype=float), (len(operations),))
        least = LeastTimes.of(operations, gpu, boost)
        if (clocks != boost).any():
            least = least.slowed(boost / clocks)
        paid = constants.parts(operations, least.time_s * ratio, gpu, clocks)
        fp32_j, tensor_j, hbm_j, gddr_j, awake_j = (paid * constants.values()).T
        # (what computes and moves next to nothing has its nanosecond)
        parts = replace(least, memory_s=np.where(least.overlapped_s < least.time_s, least.time_s, least.memory_s))
        works = ratio > 0
        return cls(
            gpu, clocks, parts.times(ratio), (fp32_j + tensor_j) * works, awake_j * works, (hbm_j + gddr_j) * works
        )

    def scaled_to(self, device_s: FloatArray, dynamic_energy_j: FloatArray) -> Self:
        """The same split of another device time and dynamic energy at the same clock."""
        more = dynamic_energy_j / np.maximum(self.switching_j + self.awake_j + self.memory_j, 1e-30)
        return replace(
            self,
            parts=self.parts.times(device_s / np.maximum(self.parts.overlapped_s, _LEAST_S)),
            switching_j=self.switching_j * more,
            awake_j=self.awake_j * more,
            memory_j=self.memory_j * more,
        )

    def scaled_by(self, device: float | FloatArray, energy: float | FloatArray) -> Self:
        """The same, with device time and dynamic energy times a factor, one for all operations or one for each."""
        return replace(
            self,
            parts=self.parts.times(np.asarray(device)),
            # (less than the whole of an operation may take less than the whole needs)
            bounds=Bounds(*(bound * np.minimum(device, 1.0) for bound in self.bounds)),
            switching_j=self.switching_j * energy,
            awake_j=self.awake_j * energy,
            memory_j=self.memory_j * energy,
        )

    def at_least(self, places: NDArray[np.int64]) -> Self:
        """The first of these operations, in no less time and for no less energy than the others at the end.

        Args:
            places: Place of the operation that each of the others limits, shape (others,).
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
        """The same, but in no less time than these operations need at all (bounds.py); what they draw stays."""
        return replace(self, bounds=Bounds.of(operations, self.gpu))

    def scatter(self, covered: NDArray[np.bool_]) -> Self:
        """The same among more operations, of which nothing is known: NaN. True stands for one of these."""
        if covered.all():
            return self

        def spread(values: FloatArray | float) -> FloatArray:
            found = np.full(len(covered), np.nan)
            found[covered] = values
            return found

        return self._with_arrays(spread)

    def take(self, places: NDArray[np.intp]) -> Self:
        """The work of some of the operations, in the order of their places; a place may come twice."""
        return self._with_arrays(lambda values: values[places] if np.ndim(values) else values)

    def _with_arrays(self, change: Callable[[Any], Any]) -> Self:
        """The same with every array changed in the same way."""
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
        """The same, with another's operations where nothing is known here; searched for as strictly as either."""
        return self.with_others(other, np.isnan(self.switching_j))

    def with_others(self, other: Self, places: NDArray[np.bool_]) -> Self:
        """The same, with another's operations at some places.

        Args:
            other: As many operations on the same GPU.
            places: True where the other's are taken.
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
        """Device seconds and dynamic joules at a clock, or at one for each operation."""
        clock_mhz = np.minimum(clock_mhz, self.most_mhz)
        slower = self.clock_mhz / clock_mhz
        working_s = self.parts.slowed_s(slower)
        logic = (relative_voltage(self.gpu, clock_mhz) / self._own_voltage) ** 2
        dynamic_j: FloatArray = self.memory_j + logic * (self.switching_j + self._awake_w * (working_s / slower))
        return self.bounds.applied(working_s, self.gpu.boost_clock_mhz / clock_mhz), dynamic_j

    @property
    def device_s(self) -> FloatArray:
        """Device seconds at the clock that the rest holds at."""
        return self.bounds.applied(self.parts.overlapped_s, self.gpu.boost_clock_mhz / self.clock_mhz)

    @cached_property
    def _awake_w(self) -> FloatArray:
        """Watts of SMs that are awake."""
        return self.awake_j / np.maximum(self.parts.overlapped_s, _LEAST_S)

    @cached_property
    def _own_voltage(self) -> FloatArray:
        return relative_voltage(self.gpu, self.clock_mhz)

    def held_mhz(self, clock_mhz: float, power_limit_w: float, host_s: FloatArray | float = 0.0) -> FloatArray:
        """The clock that each operation runs at in a loop of its own: as asked for, or as the cap allows.

        Args:
            clock_mhz: The clock that is asked for.
            power_limit_w: The cap, which holds for the mean power of a loop.
            host_s: Seconds that the host needs to launch each; while the GPU waits for it, it draws less.
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
        """The one clock that operations run at in a network, for each of the clocks that are asked for.

        Args:
            counts: Calls of each.
            clock_mhz: One clock, or several networks' worth of them.
            power_limit_w: The cap.
            host_s: Seconds that the host needs for the network; while the GPU waits for it, it draws less.
            static: Board power while the GPU waits over that of `static_power_w`; the same at all clocks.
        """

        def within(clocks: FloatArray) -> NDArray[np.bool_]:
            device_s, dynamic_j = self.at(clocks[:, None])
            time_s = smooth_max(np.nansum(counts * device_s, axis=1), host_s)
            allowed_w = np.maximum(power_limit_w - static * static_power_w(self.gpu, clocks), 1.0)
            return np.asarray(np.nansum(counts * dynamic_j, axis=1) <= allowed_w * time_s)

        asked = np.asarray(clock_mhz, dtype=float)
        if power_limit_w >= self.cap_w or within(asked.max().reshape(1))[0]:
            return asked
        # (from the same ends whatever is asked for, so that one clock and many come to the same)
        low, high = float(self.gpu.min_clock_mhz), float(self.gpu.max_clock_mhz)
        for _ in range(_ROUNDS):
            tried = np.linspace(low, high, _TRIED)
            above = int(np.searchsorted(~within(tried[1:-1]), True))
            low, high = float(tried[above]), float(tried[above + 1])
        held: FloatArray = np.minimum(asked, low)
        return held


def _raised(values: FloatArray, least: FloatArray, places: NDArray[np.int64]) -> FloatArray:
    """The factors, of at least one, that raise values at some places to others."""
    factors = np.ones(len(values))
    factors[places] = np.fmax(least / np.maximum(values[places], _LEAST_S), 1.0)
    return factors


def throttled_mhz(
    operations: Sequence[Operation], gpu: GPU, device_s: FloatArray, constants: EnergyConstants, power_limit_w: float
) -> FloatArray:
    """The clock that each must have held, to have taken so long under a power cap: at most the default clock.

    Args:
        operations: What ran, each in a loop of its own.
        gpu: Where, with nothing asked for but its default clock.
        device_s: What each took.
        constants: What work costs.
        power_limit_w: The cap.
    """
    boost = float(gpu.boost_clock_mhz)
    least = LeastTimes.of(operations, gpu, boost)
    ratio = device_s / least.time_s
    # Whatever the clock was, it took that long: nothing in it scales.
    still = replace(
        Work.of(operations, gpu, boost, ratio, constants),
        parts=LeastTimes(np.zeros(len(operations)), least.time_s * ratio, np.zeros(len(operations))),
    )
    return still.held_mhz(boost, power_limit_w)


def measured_work(
    operations: Sequence[Operation],
    gpu: GPU,
    device_s: FloatArray,
    dynamic_energy_j: FloatArray,
    power_w: FloatArray,
    constants: EnergyConstants,
) -> Work:
    """Work that was measured at the default clock under the default cap.

    Where a loop draws what the cap allows, what it held was a lower clock: the one that physics settles at. The
    measured time and energy are those at that clock.

    Args:
        operations: What ran.
        gpu: The GPU that they run on.
        device_s: What each took.
        dynamic_energy_j: What each drew above static power.
        power_w: Board power while each ran.
        constants: How that energy is split.
    """
    cap_w = gpu.power_limit_w
    capped = power_w > _AT_CAP * cap_w
    held = np.where(capped, throttled_mhz(operations, gpu, device_s, constants, cap_w), float(gpu.boost_clock_mhz))
    work = Work.of(operations, gpu, held, np.ones(len(operations)), constants)
    return replace(work.scaled_to(device_s, dynamic_energy_j), most_mhz=held, cap_w=cap_w).bounded(operations)
