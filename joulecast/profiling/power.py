"""From sensor samples to mean power: pure functions, no sensor in here.

A loop runs steadily for seconds, so what is wanted is its mean power. Two readings tell it: the slope of the
total-energy counter between the first and the last of its updates inside the window, which is exact but for its
resolution; and the time-weighted mean of the power readings, each held until the next one. The sensor's rise is
discarded from both: a reading may be an average over the second before it (Yang et al., "Part-time power
measurements", arXiv 2312.02741).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

FloatArray = NDArray[np.float64]

DISAGREEMENT = 0.02
"""Relative difference of counter and integrated power from which on a measurement is flagged."""

_LEAST_UPDATES = 4  # Below that the counter's slope says little.


@dataclass(frozen=True)
class Samples:
    """What a sensor said, oldest first; NaN where a reading is missing, which is never zero.

    Args:
        time_s: Monotonic clock.
        power_w: Board power.
        energy_j: Total-energy counter.
        clock_mhz: Graphics clock.
        temperature_c: Of the chip.
        throttled: Whether the clock was held back by power or temperature; NaN, 0 or 1.
    """

    time_s: FloatArray
    power_w: FloatArray
    energy_j: FloatArray
    clock_mhz: FloatArray
    temperature_c: FloatArray
    throttled: FloatArray

    def __post_init__(self) -> None:
        if np.any(np.diff(self.time_s) < 0):
            raise InputError("samples must be in the order of their times")

    def between(self, start_s: float, end_s: float) -> Samples:
        """The samples of a window, with the one before it, which holds until the next."""
        first = max(0, int(np.searchsorted(self.time_s, start_s, side="right")) - 1)
        last = int(np.searchsorted(self.time_s, end_s, side="right"))
        return Samples(*(getattr(self, name)[first:last] for name in FIELDS))


FIELDS = ("time_s", "power_w", "energy_j", "clock_mhz", "temperature_c", "throttled")


@dataclass(frozen=True)
class PowerEstimate:
    """Mean power over a window.

    Args:
        power_w: The best estimate: the counter's where it can be used, else the integrated one; None where neither.
        power_std_w: Spread of the readings around it.
        counter_w: From the total-energy counter.
        integrated_w: From the power readings.
        clock_mhz: Mean graphics clock that was held.
        temperature_c: At the end.
        remarks: What speaks against the estimate.
    """

    power_w: float | None
    power_std_w: float | None = None
    counter_w: float | None = None
    integrated_w: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    remarks: tuple[str, ...] = field(default=())


def counter_power_w(samples: Samples, start_s: float, end_s: float) -> float | None:
    """Slope of the energy counter between its first and last update in a window; None where it hardly updates.

    The counter steps; between the steps it says nothing, so only the moments at which it changes count.
    """
    known = ~np.isnan(samples.energy_j)
    time_s, energy_j = samples.time_s[known], samples.energy_j[known]
    updates = np.flatnonzero(np.diff(energy_j) > 0) + 1
    updates = updates[(time_s[updates] >= start_s) & (time_s[updates] <= end_s)]
    if len(updates) < _LEAST_UPDATES:
        return None
    first, last = updates[0], updates[-1]
    return float((energy_j[last] - energy_j[first]) / (time_s[last] - time_s[first]))


def integrated_power_w(
    samples: Samples, start_s: float, end_s: float, *, three_sigma: bool = False
) -> tuple[float, float] | None:
    """Time-weighted mean and spread of the power readings in a window; None where there is none.

    Args:
        samples: Each reading holds until the next one; the last one to the window's end.
        start_s: Start of the window.
        end_s: Its end.
        three_sigma: Drop readings more than three standard deviations from the mean first, as Nicolai (2025) does.
    """
    known = ~np.isnan(samples.power_w)
    time_s, power_w = samples.time_s[known], samples.power_w[known]
    edges = np.clip(np.append(time_s, end_s), start_s, end_s)
    held_s = np.diff(edges)
    if three_sigma and held_s.sum() > 0:
        mean = float(np.average(power_w, weights=held_s))
        deviation = np.sqrt(np.average((power_w - mean) ** 2, weights=held_s))
        held_s = np.where(np.abs(power_w - mean) <= 3 * deviation, held_s, 0.0)
    if not held_s.sum() > 0:
        return None
    mean = float(np.average(power_w, weights=held_s))
    return mean, float(np.sqrt(np.average((power_w - mean) ** 2, weights=held_s)))


def estimate(
    samples: Samples, start_s: float, end_s: float, *, discard_s: float = 1.5, three_sigma: bool = False
) -> PowerEstimate:
    """Mean power of a steady loop.

    Args:
        samples: Of the whole loop, better with some before it.
        start_s: When the loop started, on the samples' clock.
        end_s: When it ended.
        discard_s: What to leave out at the start while the sensor rises; at most half of the loop.
        three_sigma: See `integrated_power_w`.

    Raises:
        InputError: The window is empty.
    """
    if not end_s > start_s:
        raise InputError("a window ends after it starts", given=f"{start_s} to {end_s}")
    begin_s = start_s + min(discard_s, (end_s - start_s) / 2)
    window = samples.between(begin_s, end_s)
    counter_w = counter_power_w(window, begin_s, end_s)
    integrated = integrated_power_w(window, begin_s, end_s, three_sigma=three_sigma)
    integrated_w = None if integrated is None else integrated[0]
    remarks = []
    if counter_w is None and integrated_w is None:
        remarks.append("no power reading")
    elif counter_w is None:
        remarks.append("no energy counter")
    elif integrated_w is not None and abs(integrated_w / counter_w - 1) > DISAGREEMENT:
        remarks.append(f"counter and power readings differ by {100 * abs(integrated_w / counter_w - 1):.1f} %")
    throttled = window.throttled[~np.isnan(window.throttled)]
    if throttled.size and throttled.mean() > 0:
        remarks.append(f"throttled for {100 * throttled.mean():.0f} % of the time")
    return PowerEstimate(
        power_w=integrated_w if counter_w is None else counter_w,
        power_std_w=None if integrated is None else integrated[1],
        counter_w=counter_w,
        integrated_w=integrated_w,
        clock_mhz=_mean(window.clock_mhz),
        temperature_c=_mean(window.temperature_c[-1:]),
        remarks=tuple(remarks),
    )


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None
