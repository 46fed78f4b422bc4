"""Estimates the mean power of a loop from samples. Pure functions without access to a sensor.

A loop runs steadily for seconds, so its mean power is wanted. There are two estimates: the slope of the
total-energy counter over its updates inside the window, which is exact but for its resolution; and the time-weighted
mean of the power readings, each held until the next one. The sensor's rise is discarded from both: a reading may be an
average over the second before it (Yang et al., "Part-time power measurements", arXiv 2312.02741).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from ..arrays import FloatArray
from ..checked import in_range
from .sampler import Sensor
from .samples import THROTTLE_REASONS, Samples

DISCARDED_S = 1.5
"""Time left out at the start of a loop, while the reading rises; half of the loop if it is shorter than twice this."""

DISAGREEMENT = 0.02
"""Relative difference between counter and integrated power above which a measurement gets a warning."""

_LEAST_UPDATES = 4  # With fewer updates, the slope of the counter is too uncertain.
# A clock moves in steps of about 1 %; leakage grows by some tenths of a percent per degree.
_CLOCK_VARIES = 0.03
_WARMING_C = 5.0


@dataclass(frozen=True)
class PowerEstimate:
    """Mean power over a window.

    Args:
        power_w: Best estimate in watts: from the counter if possible, otherwise integrated; None if there is neither.
        instant_w: Mean power in watts from the readings over the sensor's shortest window.
        three_sigma_w: Mean power in watts of the readings within three standard deviations, each weighted by the time
            that it was held.
        nicolai_w: The same without weights, as Nicolai (2025) takes it.
        naive_w: Plain mean in watts of all readings since the start of the loop, for comparison only.
        temperature_c: Temperature at the end of the window in degrees Celsius.
        utilization: Mean share of the time in which a kernel ran, 0 to 1.
    """

    power_w: float | None
    power_std_w: float | None = None
    counter_w: float | None = None
    integrated_w: float | None = None
    instant_w: float | None = None
    three_sigma_w: float | None = None
    nicolai_w: float | None = None
    naive_w: float | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    utilization: float | None = None
    warnings: tuple[str, ...] = field(default=())


def counter_power_w(samples: Samples, start_s: float, end_s: float) -> float | None:
    """Slope of the energy counter over its updates in a window, in watts; None if there are too few updates.

    The counter changes in steps, so only the moments of its updates are used. A poll notices an update late, by up to
    the time since the previous poll, so the middle between the two polls is taken as the moment. The slope is that
    between the mean of the first quarter of the updates and the mean of the last quarter (Wald's grouping method),
    which averages out the remaining errors.
    """
    known = ~np.isnan(samples.energy_j)
    time_s, energy_j = samples.time_s[known], samples.energy_j[known]
    updates = np.flatnonzero(np.diff(energy_j) > 0) + 1
    updates = updates[(time_s[updates - 1] >= start_s) & (time_s[updates] <= end_s)]
    if len(updates) < _LEAST_UPDATES:
        return None
    changed_s = (time_s[updates - 1] + time_s[updates]) / 2
    quarter = len(updates) // 4
    first, last = slice(None, quarter), slice(-quarter, None)
    counted_j = energy_j[updates][last].mean() - energy_j[updates][first].mean()
    return float(counted_j / (changed_s[last].mean() - changed_s[first].mean()))


def integrated_power_w(
    time_s: FloatArray, power_w: FloatArray, start_s: float, end_s: float, *, three_sigma: bool = False
) -> tuple[float, float] | tuple[None, None]:
    """Time-weighted mean and spread of power readings in a window; None for both where there is none.

    Args:
        power_w: Readings in watts, shape (readings,). Each is held until the next one, the last one until the end.
        three_sigma: Whether to drop readings more than three standard deviations from the mean, like Nicolai (2025).
    """
    known = ~np.isnan(power_w)
    time_s, power_w = time_s[known], power_w[known]
    held_s = np.diff(np.clip(np.append(time_s, end_s), start_s, end_s))
    if not held_s.sum() > 0:
        return None, None
    mean, deviation = _mean_and_deviation(power_w, held_s)
    if three_sigma:
        mean, deviation = _mean_and_deviation(power_w, np.where(np.abs(power_w - mean) <= 3 * deviation, held_s, 0.0))
    return mean, deviation


def _mean_and_deviation(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    mean = float(np.average(values, weights=weights))
    return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


def estimate(
    samples: Samples, start_s: float, end_s: float, *, discard_s: float = DISCARDED_S, three_sigma: bool = False
) -> PowerEstimate:
    """Mean power of a steady loop. Raises InputError: the window is empty.

    Args:
        samples: Samples of the whole loop, preferably with some before it.
        discard_s: Seconds to leave out at the start, while the reading rises; at most half of the loop is left out.
    """
    in_range("the end of the loop in seconds", end_s, start_s, above=True)
    begin_s = start_s + min(discard_s, (end_s - start_s) / 2)
    window = samples.between(begin_s, end_s)
    counter_w = counter_power_w(window, begin_s, end_s)
    integrated_w, std_w = integrated_power_w(window.time_s, window.power_w, begin_s, end_s, three_sigma=three_sigma)
    instant_w, _ = integrated_power_w(window.time_s, window.instant_w, begin_s, end_s, three_sigma=three_sigma)
    three_sigma_w, _ = integrated_power_w(window.time_s, window.power_w, begin_s, end_s, three_sigma=True)
    known_w = _known(window.power_w)
    return PowerEstimate(
        power_w=integrated_w if counter_w is None else counter_w,
        power_std_w=std_w,
        counter_w=counter_w,
        integrated_w=integrated_w,
        instant_w=instant_w,
        three_sigma_w=three_sigma_w,
        nicolai_w=_mean(known_w[np.abs(known_w - known_w.mean()) <= 3 * known_w.std()]) if known_w.size else None,
        naive_w=_mean(samples.between(start_s, end_s).power_w),
        clock_mhz=_mean(window.clock_mhz),
        memory_clock_mhz=_mean(window.memory_clock_mhz),
        temperature_c=_mean(window.temperature_c[-1:]),
        utilization=_mean(window.utilization),
        warnings=tuple(_warnings(window, counter_w, integrated_w)),
    )


def _warnings(window: Samples, counter_w: float | None, integrated_w: float | None) -> list[str]:
    """Reasons to doubt the power, and what disturbed the loop."""
    warnings = []
    if counter_w is None:
        warnings.append("no power reading" if integrated_w is None else "no energy counter")
    elif integrated_w is not None and (difference := abs(integrated_w / counter_w - 1)) > DISAGREEMENT:
        warnings.append(f"counter and power readings differ by {100 * difference:.1f} %")
    reasons = _known(window.throttle_reasons).astype(np.int64)
    for bit, reason in THROTTLE_REASONS.items():
        if (held_back := (reasons & bit) != 0).any():
            warnings.append(f"throttled by {reason} for {100 * held_back.mean():.0f} % of the time")
    clock_mhz = _known(window.clock_mhz)
    if clock_mhz.size and np.ptp(clock_mhz) > _CLOCK_VARIES * clock_mhz.mean():
        warnings.append(f"clock varied from {clock_mhz.min():.0f} to {clock_mhz.max():.0f} MHz")
    temperature_c = _known(window.temperature_c)
    if temperature_c.size and abs(warming_c := temperature_c[-1] - temperature_c[0]) > _WARMING_C:
        warnings.append(f"temperature changed by {warming_c:+.0f} degrees")
    if (others := int(max(_known(window.processes), default=1)) - 1) > 0:
        warnings.append(f"{others} other process{'es' if others > 1 else ''} on the device")
    return warnings


def _known(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


def _mean(values: FloatArray) -> float | None:
    known = _known(values)
    return float(known.mean()) if known.size else None


def idle(sensor: Sensor, seconds: float) -> PowerEstimate:
    """Measure the power of an idle device."""
    start_s = time.monotonic()
    time.sleep(seconds)
    end_s = time.monotonic()
    return estimate(sensor.window(start_s, end_s), start_s, end_s)
