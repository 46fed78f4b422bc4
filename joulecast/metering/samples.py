"""Samples: readings of a power sensor, as arrays over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..errors import InputError


@dataclass(frozen=True)
class Samples:
    """Readings of a sensor, oldest first, each of shape (samples,). Missing readings are NaN, never zero.

    Args:
        power_w: Board power as the sensor reports it, which may be an average over the last second.
        instant_w: Board power over the shortest window that the sensor has.
        throttle_reasons: Bit mask of the reasons that limit the clock; see `THROTTLE_REASONS`.
        utilization: Share of the time in which a kernel ran, 0 to 1.
    """

    time_s: FloatArray
    power_w: FloatArray
    instant_w: FloatArray
    energy_j: FloatArray
    clock_mhz: FloatArray
    memory_clock_mhz: FloatArray
    temperature_c: FloatArray
    throttle_reasons: FloatArray
    utilization: FloatArray
    processes: FloatArray

    def __post_init__(self) -> None:
        if np.any(np.diff(self.time_s) < 0):
            place = int(np.flatnonzero(np.diff(self.time_s) < 0)[0])
            raise InputError(
                "the times of samples do not ascend",
                given=f"{self.time_s[place]:g} s before {self.time_s[place + 1]:g} s",
                allowed="times in ascending order",
                hint="sort the samples by time",
            )

    def refuse_sinking_counter(self) -> None:
        """Refuse an energy counter that falls without having restarted. Raises InputError: it does."""
        known_j = self.energy_j[~np.isnan(self.energy_j)]
        wrong = np.flatnonzero(~is_possible_next(known_j[1:], known_j[:-1]))
        if len(wrong):
            place = int(wrong[0])
            raise InputError(
                "an energy counter sinks",
                given=f"{known_j[place]:g} J, then {known_j[place + 1]:g} J",
                allowed="a counter that rises, or restarts near zero",
                hint="use a copy that is intact",
            )

    @classmethod
    def of(cls, time_s: FloatArray, **known: FloatArray) -> Self:
        """Samples with only some readings; all other readings are missing.

        Args:
            known: Name of a reading -> its values, shape (samples,).
        """
        missing = np.full(len(time_s), np.nan)
        return cls(time_s, *(known.get(name, missing) for name in FIELDS[1:]))

    def __len__(self) -> int:
        return len(self.time_s)

    def between(self, start_s: float, end_s: float) -> Samples:
        """The samples of a window, and the last one before it, which is valid until the next one."""
        first = max(0, int(np.searchsorted(self.time_s, start_s, side="right")) - 1)
        last = int(np.searchsorted(self.time_s, end_s, side="right"))
        return Samples(*(getattr(self, name)[first:last] for name in FIELDS))

    def trace(self, start_s: float) -> dict[str, list[float | None]]:
        """The samples in which power or counter changed. They are few, and contain all that an estimator uses.

        Returns lists of "time_s", "power_w" and "energy_j"; energies are relative to the first reading of the counter.
        """
        seen = np.column_stack([self.power_w, self.energy_j])
        changed = np.ones(len(self), dtype=bool)
        if len(self) > 2:
            same = (seen[1:] == seen[:-1]) | (np.isnan(seen[1:]) & np.isnan(seen[:-1]))
            changed[1:-1] = ~same.all(axis=1)[:-1]
        known = self.energy_j[~np.isnan(self.energy_j)]
        origin_j = known[0] if known.size else 0.0
        return {
            "time_s": _rounded(self.time_s[changed] - start_s, 4),
            "power_w": _rounded(self.power_w[changed], 3),
            "energy_j": _rounded(self.energy_j[changed] - origin_j, 3),
        }


FIELDS = tuple(field.name for field in fields(Samples))

RANGES: Mapping[str, tuple[float, float]] = {
    "time_s": (-1e12, 1e12),
    "power_w": (0.0, 1e6),
    "instant_w": (0.0, 1e6),
    "energy_j": (0.0, 1e18),
    "clock_mhz": (0.0, 1e6),
    "memory_clock_mhz": (0.0, 1e6),
    "temperature_c": (-273.15, 1e4),
    "throttle_reasons": (0.0, 2.0**64),
    "utilization": (0.0, 1.0),
    "processes": (0.0, 1e6),
}
"""Reading -> smallest and largest value that a sensor can report. No board takes a megawatt."""

_ROUNDING_J = 0.1


def is_possible_next(energy_j: FloatArray | float, before_j: FloatArray | float) -> NDArray[np.bool_]:
    """Whether a counter can have a value after another one: it rises, or it has restarted near zero."""
    # A counter that restarts begins at zero, so less than half of what it had is left.
    now, before = np.asarray(energy_j), np.asarray(before_j)
    found: NDArray[np.bool_] = (now >= before - _ROUNDING_J) | (now < before / 2)
    return found


# Of the reasons for which NVML reports a lowered clock, those of power and heat (nvml.h, nvmlClocksEventReasons).
THROTTLE_REASONS = {
    0x4: "the power cap",
    0x8: "a hardware slowdown",
    0x20: "a software slowdown because of heat",
    0x40: "a hardware slowdown because of heat",
    0x80: "the power brake",
}


def _rounded(values: FloatArray, digits: int) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), digits) for value in values]


Reader = Callable[[], Mapping[str, float]]
"""Reads a device once.

Returns name -> value, with the names of `Samples`, for the readings that the device has. If the sensor knows the moment
of the reading, "time_s" is its monotonic time. Raises SensorError when the device is lost.
"""
