"""OperationPredictions: time, power and energy of single operations, as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..operations.operation import Operation
from ..operations.operation_list import IDENTITY, identity, operation_text
from ..rendering.answers import Answer, Table
from ..rendering.pictures import Bar, Picture, bars, short
from ..units import counted, si
from .intervals.conformal import within_range
from .intervals.operation_spread import OperationIntervals, OperationSpread
from .physics.clock import Work

Source = Literal["measured", "modelled", "missing"]
_COSTS = ("time_s", "power_w", "energy_j", "device_time_s")
_COLUMNS = (*_COSTS, "dynamic_energy_j", "host_time_s")
_ARRAYS = (*_COLUMNS, "held_clock_mhz")
_SHOWN = 20  # Operations in a picture.
_LEAST = 1e-30  # Seconds and joules, instead of a division by zero.


def known_si(value: float, unit: str) -> str:
    """A value with its unit, as people read it; "-" where it is missing."""
    return "-" if math.isnan(value) else si(value, unit)


@dataclass(frozen=True, repr=False)
class OperationPredictions(Answer):
    """Times and energies of operations as arrays, one value per operation; NaN where missing.

    Of several GPUs (`Boards`), arrays have the shape (gpus, operations), and `static_power_w` (gpus, 1).

    Args:
        operations: The operations, in the order of the arrays.
        time_s: Seconds per call when the operation runs alone in a loop, as `torch.utils.benchmark` shows it.
        power_w: Mean board power of that loop.
        energy_j: Joules per call of that loop.
        device_time_s: Seconds that the GPU works; less than time_s where the loop waits for the host.
        dynamic_energy_j: Joules above static power; they do not depend on the host.
        host_time_s: Seconds that launching the operation takes in a loop.
        source: measured (the predictor was trained on this very operation, at this clock), modelled, or missing.
        static_power_w: Board power while the GPU waits with its clocks up.
        held_clock_mhz: The clock that each runs at: the one asked for, or less where the power cap bites.
        work: Their work, from which the clock law computes other clocks and caps; None where the predictor has no such
            law.
        spread: What is known of their errors; None where nothing is.
        power_range_w: Least and most watts that the board can draw.
    """

    operations: tuple[Operation, ...]
    time_s: FloatArray
    power_w: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    dynamic_energy_j: FloatArray
    host_time_s: FloatArray
    source: tuple[Source, ...]
    static_power_w: float
    held_clock_mhz: FloatArray
    work: Work | None = field(default=None, repr=False)
    spread: OperationSpread | None = field(default=None, repr=False)
    power_range_w: tuple[float, float] = (0.0, math.inf)

    def __post_init__(self) -> None:
        if self.time_s.ndim > 1:
            return  # Of several GPUs, those on each are looked at (`on_each`).
        # Costs that are negative or not finite count as missing. They must never pass for those of a cheap operation.
        costs = np.array([getattr(self, name) for name in _COSTS])
        impossible = ~((costs >= 0) & (costs < np.inf)).all(axis=0) | ~np.isfinite(self.dynamic_energy_j)
        if not impossible.any():
            return
        impossible &= np.array([source != "missing" for source in self.source], dtype=bool)
        for name in _ARRAYS:
            object.__setattr__(self, name, np.where(impossible, np.nan, getattr(self, name)))
        sources = zip(self.source, impossible.tolist(), strict=True)
        object.__setattr__(self, "source", tuple("missing" if wrong else source for source, wrong in sources))

    def __getstate__(self) -> dict[str, Any]:
        """What pickle stores: of the errors, what was looked up for these operations, and not the whole table."""
        spread = self.spread.as_sent(self) if isinstance(self.spread, OperationSpread) else self.spread
        return {**self.__dict__, "spread": spread}

    def interval(self, level: float = 0.9) -> OperationIntervals | None:
        """Intervals of time, power and energy, from errors on operations that were held out; None if none are known.

        The errors are those of operations of the same family that are bound by the same (host or GPU) and about as far
        from measured operations. At clocks that were not measured intervals are wider, by what networks on the A100
        showed.

        Raises InputError: the level is not between 0 and 1, or too high for the number of errors.

        Args:
            level: Share of such operations that should lie within, above 0 and below 1.
        """
        if self.spread is None:
            return None
        factors = {quantity: np.exp(half) for quantity, half in self.spread.log_errors(self, level).items()}
        values = {"time": self.time_s, "power": self.power_w, "energy": self.energy_j}
        low_high = {name: (value / factors[name], value * factors[name]) for name, value in values.items()}
        low, high = low_high["power"]
        power_w = within_range(low, self.power_w, high, self.power_range_w)
        return OperationIntervals(level, low_high["time"], power_w, low_high["energy"])

    @property
    def far_outside(self) -> NDArray[np.bool_]:
        """Which operations are farther from all measured ones than 99 % of those that errors are known on."""
        if self.spread is None:
            return np.zeros(len(self.operations), dtype=bool)
        return self.spread.far_outside(self.operations)

    @property
    def host_bound(self) -> NDArray[np.bool_]:
        """Which operations take longer to launch than to run on the GPU."""
        return self.device_time_s < self.host_time_s

    @property
    def in_tf32(self) -> NDArray[np.bool_]:
        """Which operations are in TF32."""
        return np.array([operation.precision == "tf32" for operation in self.operations], dtype=bool)

    def _table(self) -> Table:
        columns = ([None if value != value else value for value in getattr(self, name).tolist()] for name in _COLUMNS)
        # Rows of a table share operations, and describing one takes longer than predicting it.
        rows = zip(map(cache(identity), self.operations), zip(*columns, strict=True), self.source, strict=True)
        return Table((*IDENTITY, *_COLUMNS, "source"), ((*who, *values, source) for who, values, source in rows))

    def __str__(self) -> str:
        return f"{counted(len(self.operations), 'operation')}, each alone in a loop"

    def to_dict(self) -> dict[str, Any]:
        """One object for each operation, and the watts that the board draws without work; NaN where unknown."""
        columns = {name: getattr(self, name).tolist() for name in _COLUMNS}
        return {
            "operations": [
                {**operation.to_dict(), **{name: column[i] for name, column in columns.items()}, "source": source}
                for i, (operation, source) in enumerate(zip(self.operations, self.source, strict=True))
            ],
            "static_power_w": self.static_power_w,
        }

    def _picture(self) -> Picture:
        """Bars: the energy of each operation that is known."""
        items = [
            Bar(short(operation_text(operation)), energy, si(energy, "J"))
            for operation, energy in zip(self.operations, self.energy_j.tolist(), strict=True)
            if not math.isnan(energy)
        ]
        return Picture(bars(items[:_SHOWN], "Energy of operations"))

    def times(self, device: float | FloatArray, energy: float | FloatArray) -> OperationPredictions:
        """Scale device times and dynamic energies; times and energies of loops stay as they are.

        Args:
            device: Factor for device times, one for all operations or one for each.
            energy: Factor for dynamic energies, one for all operations or one for each.
        """
        if np.all(device == 1.0) and np.all(energy == 1.0):
            return self
        device_s, dynamic_j = device * self.device_time_s, energy * self.dynamic_energy_j
        work = None if self.work is None else self.work.scaled_by(device, energy)
        return replace(self, device_time_s=device_s, dynamic_energy_j=dynamic_j, work=work)

    def loading(self, cycles: FloatArray) -> OperationPredictions:
        """Operations whose load units need a number of cycles beside everything else; loops stay as they are."""
        if self.work is None or not (cycles > 0).any():
            return self
        work = self.work.loading(cycles)
        before, after = (each.at(each.clock_mhz) for each in (self.work, work))
        longer, more = (new / np.maximum(old, _LEAST) for old, new in zip(before, after, strict=True))
        device_s, dynamic_j = longer * self.device_time_s, more * self.dynamic_energy_j
        return replace(self, device_time_s=device_s, dynamic_energy_j=dynamic_j, work=work)

    def on_each(self) -> list[OperationPredictions]:
        """Those on each of several GPUs; copies, so that none keeps the arrays of the others."""
        if self.work is None:
            return []
        watts = np.reshape(self.static_power_w, -1).tolist()
        return [
            replace(
                self, work=work, static_power_w=static_w, **{name: getattr(self, name)[row].copy() for name in _ARRAYS}
            )
            for row, (work, static_w) in enumerate(zip(self.work.on_each(), watts, strict=True))
        ]

    def take(self, places: NDArray[np.intp], operations: Sequence[Operation]) -> OperationPredictions:
        """The predictions of some of the operations.

        Args:
            places: Index of each into these operations; a place may come twice.
            operations: The operations at these places.
        """
        arrays = {name: getattr(self, name)[places] for name in _ARRAYS}
        source = tuple(self.source[place] for place in places.tolist())
        work = None if self.work is None else self.work.take(places)
        spread = None if self.spread is None else self.spread.take(places)
        return replace(self, operations=tuple(operations), source=source, work=work, spread=spread, **arrays)
