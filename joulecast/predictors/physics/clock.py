"""The clock law that all predictors share: how time and energy change with the clock and under a power cap.

A predictor gives the cost of operations at one clock f0. This module derives the cost at any other clock f.

- Time is the p-norm of three parts (norms.py). Computing and the transfer between caches and SMs take a fixed number of
  clock cycles, so their seconds grow with f0 / f. DRAM has a clock of its own, so its seconds stay.
- Dynamic energy has three parts, too. Switching a transistor charges its capacitance C to the supply voltage V, which
  takes energy proportional to C V^2 (Weste and Harris, CMOS VLSI Design, chapter 5). A working chip also leaks more
  than the idle one whose power is static, because it is warmer, and the more so the higher the voltage. Together, the
  energy of a FLOP follows V^3, and so does that of a cycle of an SM that is awake. Memory has a supply of its own, so
  its energy per byte stays.

The cube was chosen on sweeps of BERT on an A100 (energaizer2026). Relative to that at 960 MHz, energy at other clocks
is 3.7 % off with V^2 and 1.6 % with V^3. On GPT-2, which had no part in the choice, it is 3.4 and 1.5 %.

The predictor for any GPU keeps V^2, with which its constants were fitted (`EnergyConstants.voltage_power`). Fitted with
V^3, they are better where networks of the chip are known (power of 269 networks on A30, A100 and A10: 6.2 to 5.5 % off)
and too high near the top of the voltage curve, where few of these ran: six served models on an A100 at its boost clock
draw 22 instead of 13 % too much, and training steps of MPT are throttled by 3 % too much.

The power cap is applied last (power_cap.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, each_of
from ...operations.operation import Operation
from .energy import EnergyConstants, RelativeVoltage, logic_energy, relative_voltage, voltage_of
from .least_times import LeastTimes
from .norms import cubed, overlapped
from .roofline import Bounds

_LEAST_S = 1e-15  # Avoids divisions by zero.


@dataclass(frozen=True)
class Work:
    """Time and dynamic energy of operations at one clock, split by how each part scales with the clock.

    All arrays have the shape (operations,), of several GPUs (gpus, operations). An operation of unknown cost has NaN.

    Args:
        gpu: The GPU that they run on.
        clock_mhz: The graphics clock of each operation, in MHz, for which the times and energies below hold.
        compute_s, memory_s, cache_s: Seconds of computing, of DRAM and of caches; their p-norm is the device time.
        switching_j: Joules for computing.
        awake_j: Joules of SMs that are awake.
        memory_j: Joules for moving bytes to and from memory.
        most_mhz: The highest clock in MHz that each can hold under the default cap; infinite where none was measured.
        least_compute_s, least_fixed_s: Least seconds of each operation (`Bounds`); they hold even where the parts are
            smaller.
        voltage_power: The power of the supply voltage that switching_j and awake_j follow, 2 or 3: one number, or one
            for each operation.
        cap_w: The cap in watts that `most_mhz` was measured under. Under this cap or a higher one `most_mhz` is the
            answer, and no clock needs to be searched for.
    """

    gpu: GPU
    clock_mhz: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    cache_s: FloatArray
    switching_j: FloatArray
    awake_j: FloatArray
    memory_j: FloatArray
    most_mhz: FloatArray | float = np.inf
    least_compute_s: FloatArray | float = 0.0
    least_fixed_s: FloatArray | float = 0.0
    voltage_power: FloatArray | float = 2.0
    cap_w: float = field(default=np.inf, kw_only=True)

    @classmethod
    def of(
        cls,
        operations: Sequence[Operation],
        gpu: GPU,
        clock_mhz: float | FloatArray,
        ratio: FloatArray,
        constants: EnergyConstants,
    ) -> Self:
        """The work of operations whose device time is the least time of physics times a ratio."""
        boost, least = gpu.boost_clock_mhz, LeastTimes.of(operations, gpu)
        clocks = np.broadcast_to(np.asarray(clock_mhz, dtype=float), least.time_s.shape)
        if (clocks != boost).any():
            least = least.slowed(boost / clocks)
        joules = constants.dynamic_j(operations, least.time_s * ratio, gpu, clocks)
        fp32_j, tensor_j, hbm_j, gddr_j, awake_j = np.moveaxis(joules, -1, 0)
        # `time_s` is at least a nanosecond. An operation with less gets the rest of it as memory time, so that the
        # p-norm of its parts is `time_s`.
        rest_s = np.cbrt(cubed(least.time_s) - cubed(least.compute_s) - cubed(least.cache_s))
        memory_s = np.where(least.overlapped_s < least.time_s, rest_s, least.memory_s)
        works = ratio > 0
        return cls(
            gpu,
            clocks,
            least.compute_s * ratio,
            memory_s * ratio,
            least.cache_s * ratio,
            (fp32_j + tensor_j) * works,
            awake_j * works,
            (hbm_j + gddr_j) * works,
            voltage_power=constants.voltage_power,
        )

    def _multiplied(self, device: Any, energy: Any, bounds: Any = 1.0) -> Self:
        table = self.columns.copy()
        table[_PARTS] *= device
        table[_JOULES] *= energy
        table[_BOUNDS] *= bounds
        return self._of(table)

    def scaled_to(self, device_s: FloatArray, dynamic_energy_j: FloatArray) -> Self:
        """This work with another device time and dynamic energy at the same clock; the shares of the parts stay."""
        longer = device_s / np.maximum(self.parts.overlapped_s, _LEAST_S)
        return self._multiplied(longer, dynamic_energy_j / np.maximum(self.dynamic_j, 1e-30))

    def scaled_by(self, device: float | FloatArray, energy: float | FloatArray) -> Self:
        """This work with device time and dynamic energy multiplied by factors."""
        # A factor below one stands for a part of an operation, whose least time is shorter as well.
        return self._multiplied(device, energy, np.minimum(device, 1.0))

    def loading(self, cycles: FloatArray) -> Self:
        """This work where load units need a number of cycles beside everything else. SMs are awake for as long."""
        loaded_s = overlapped(self.cache_s, cycles / (1e6 * self.clock_mhz))
        slower = replace(self, cache_s=np.where(cycles > 0, loaded_s, self.cache_s))
        longer = slower.parts.overlapped_s / np.maximum(self.parts.overlapped_s, _LEAST_S)
        return replace(slower, awake_j=self.awake_j * longer)

    def limited(self, places: NDArray[np.int64], multiples: FloatArray | float = 1.0, *, at_most: bool = False) -> Self:
        """The first operations, raised to multiples of the time and energy of the last ones, which limit them.

        Args:
            places: For each limiting operation at the end of this work, the index of the operation that it limits,
                shape (limiting operations,).
            multiples: Multiple of each limiting operation: one for all, or shape (limiting operations,).
            at_most: Whether the operations are lowered to these times and energies instead.

        Returns:
            The work without the limiting operations.
        """
        count = self.switching_j.shape[-1] - len(places)
        nearer = np.fmin if at_most else np.fmax
        of_time, of_energy = (
            nearer(multiples * costs[..., count:] / np.maximum(costs[..., places], _LEAST_S), 1.0)
            for costs in (self.device_s, self.dynamic_j)
        )
        table = self.columns[..., :count].copy()
        for rows, factors in ((_PARTS, of_time), (_BOUNDS, of_time), (_JOULES, of_energy)):
            table[rows, ..., places] *= factors
        return self._of(table)

    def bounded(self, operations: Sequence[Operation]) -> Self:
        """This work with device times of at least the bounds of the operations (roofline.py); energies stay."""
        compute_s, fixed_s = Bounds.of(operations, self.gpu)
        return replace(self, least_compute_s=compute_s, least_fixed_s=fixed_s)

    def scatter(self, covered: NDArray[np.bool_]) -> Self:
        """This work as part of a longer list of operations; the others have NaN."""
        if covered.all():
            return self
        table = np.full((*self.columns.shape[:-1], len(covered)), np.nan)
        table[..., covered] = self.columns
        return self._of(table)

    def take(self, places: NDArray[np.intp]) -> Self:
        """The work of the operations at given indices, in their order; an index may occur twice."""
        return self._of(self.columns[..., places])

    def on_each(self) -> list[Self]:
        """The work on each of several GPUs; copies, so that none keeps the columns of the others."""
        gpus = enumerate(each_of(self.gpu))
        return [type(self)(gpu, *self.columns[:, row].copy(), cap_w=self.cap_w) for row, gpu in gpus]

    def merge(self, other: Self) -> Self:
        """This work with the values of another one where this one has NaN; `cap_w` is the higher of the two."""
        return self.with_others(other, np.isnan(self.switching_j))

    def with_others(self, other: Self, places: NDArray[np.bool_]) -> Self:
        """This work with the values of another one for some of the operations; `cap_w` is the higher of the two."""
        merged = self._of(np.where(places, other.columns, self.columns))
        return replace(merged, cap_w=max(self.cap_w, other.cap_w))

    @cached_property
    def parts(self) -> LeastTimes:
        """Seconds of computing, of DRAM and of caches."""
        return LeastTimes(self.compute_s, self.memory_s, self.cache_s)

    @property
    def bounds(self) -> Bounds:
        """Least seconds of each operation."""
        return Bounds(self.least_compute_s, self.least_fixed_s)

    @cached_property
    def columns(self) -> FloatArray:
        """This work as a table, a row for each of COLUMNS; shape (columns, ..., operations). It must not be changed."""
        table = np.empty((len(COLUMNS), *self.switching_j.shape))
        for row, name in zip(table, COLUMNS, strict=True):
            row[:] = getattr(self, name)
        return table

    def _of(self, columns: FloatArray) -> Self:
        return type(self)(self.gpu, *columns, cap_w=self.cap_w)

    def at(self, clock_mhz: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of each operation at another clock."""
        clock_mhz = np.minimum(clock_mhz, self.most_mhz)
        return self._law.at(clock_mhz, relative_voltage(self.gpu, clock_mhz), self.gpu.boost_clock_mhz)

    @property
    def device_s(self) -> FloatArray:
        """Device seconds of each operation at `clock_mhz`."""
        return self.bounds.applied(self.parts.overlapped_s, self.gpu.boost_clock_mhz / self.clock_mhz)

    @property
    def dynamic_j(self) -> FloatArray:
        """Dynamic joules of each operation at `clock_mhz`."""
        return self.switching_j + self.awake_j + self.memory_j

    @cached_property
    def _law(self) -> ClockLaw:
        return ClockLaw.of(self.columns, voltage_of(self.gpu))


COLUMNS = tuple(each.name for each in fields(Work) if each.name not in ("gpu", "cap_w"))
"""The fields of `Work` with a value for each operation: the rows of its table."""

# Rows of the table that grow with device time, and with dynamic energy.
_PARTS, _JOULES, _BOUNDS = slice(1, 4), slice(4, 7), slice(8, 10)


class ClockLaw(NamedTuple):
    """Times and energies as functions of the clock: the one place where they are computed.

    All arrays have shapes that can be broadcast: those of operations, of several GPUs and of clocks.

    Args:
        clock_mhz: The clock for which the times hold.
        on_clock: Cubes of the seconds that are inversely proportional to the clock, added up.
        off_clock: Cube of the seconds that are the same at any clock.
        switching_j: Joules for computing at the voltage of the boost clock.
        awake_w: Watts of SMs that are awake at `clock_mhz` and the voltage of the boost clock.
        memory_j: Joules for moving bytes, the same at any clock.
        bounds: Least seconds.
        voltage_power: The power of the supply voltage that the energies of logic follow, 2 or 3.
    """

    clock_mhz: FloatArray
    on_clock: FloatArray
    off_clock: FloatArray
    switching_j: FloatArray
    awake_w: FloatArray
    memory_j: FloatArray
    bounds: Bounds
    voltage_power: FloatArray

    @classmethod
    def of(cls, columns: Sequence[FloatArray] | FloatArray, voltage: RelativeVoltage) -> Self:
        """The law for work."""
        clock_mhz, compute_s, memory_s, cache_s, switching_j, awake_j, memory_j, _, *bounds, power = columns
        on_clock, off_clock = cubed(compute_s) + cubed(cache_s), cubed(memory_s)
        own = logic_energy(voltage.at(clock_mhz), power)
        awake_w = awake_j / np.maximum(np.cbrt(on_clock + off_clock), _LEAST_S)
        return cls(clock_mhz, on_clock, off_clock, switching_j / own, awake_w / own, memory_j, Bounds(*bounds), power)

    def at(
        self, clock_mhz: FloatArray | float, voltage: FloatArray, boost_mhz: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules at another clock.

        Switching scales with V^3, and SMs that are awake draw power proportional to V^3 f (`voltage_power`).
        """
        slower = self.clock_mhz / clock_mhz
        working_s = np.cbrt(self.on_clock * cubed(slower) + self.off_clock)
        logic_j = self.switching_j + self.awake_w * (working_s / slower)
        return self.bounds.applied(working_s, boost_mhz / clock_mhz), self.memory_j + logic_energy(
            voltage, self.voltage_power
        ) * logic_j
