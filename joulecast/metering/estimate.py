"""From samples to mean power: pure functions, no sensor in here.

A loop runs steadily for seconds, so what is wanted is its mean power. Two readings tell it: the slope of the
total-energy counter over its updates inside the window, which is exact but for its resolution; and the time-weighted
mean of the power readings, each held until the next one. The sensor's rise is discarded from both: a reading may be an
average over the second before it (Yang et al., "Part-time power measurements", arXiv 2312.02741).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from .samples import THROTTLE_REASONS, Samples

DISCARDED_S = 1.5
"""Left out at the start of a loop, while the sensor rises; half of a loop that is shorter than twice that."""

DISAGREEMENT = 0.02
"""Relative difference of counter and integrated power from which on a measurement is flagged."""

_LEAST_UPDATES = 4  # Below that the counter's slope says little.
# A clock moves in steps of about 1 %; leakage grows by some tenths of a percent per degree.
_CLOCK_VARIES = 0.03
_WARMING_C = 5.0


@dataclass(frozen=True)
class PowerEstimate:
    """Mean power over a window.

    Args:
        power_w: The best estimate: the counter's where it can be used, else the integrated one; None where neither.
        power_std_w: Spread of the readings around it.
        counter_w: From the total-energy counter.
        integrated_w: From the power readings.
        instant_w: From the readings over the sensor's shortest window.
        naive_w: Plain mean of all readings from the loop's first moment on, as scripts do it; only to compare with.
        clock_mhz: Mean graphics clock that was held.
        memory_clock_mhz: Mean memory clock.
        temperature_c: At the end.
        utilization: Mean share of the time in which a kernel ran.
        warnings: What speaks against the estimate.
    """

    power_w: float | None
    power_std_w: float | None = None
    counter_w: float | None = None
    integrated_w: float | None = None
    instant_w: float | None = None
    naive_w: float | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    utilization: float | None = None
    warnings: tuple[str, ...] = field(default=())


def counter_power_w(samples: Samples, start_s: float, end_s: float) -> float | None:
    """Slope of the energy counter over its updates inside a window; None where it hardly updates.

    The counter steps; between the steps it says nothing, so only the moments at which it changes count. A poll sees
    a change a little late, by up to the time since the poll before: the moment in the middle is taken, and the slope
    is that between the mean of the first quarter of the updates and the mean of the last (Wald's grouping), which
    averages over what is left.
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
) -> tuple[float, float] | None:
    """Time-weighted mean and spread of power readings in a window; None where there is none.

    Args:
        time_s: When they were read.
        power_w: Each reading holds until the next one; the last one to the window's end.
        start_s: Start of the window.
        end_s: Its end.
        three_sigma: Drop readings more than three standard deviations from the mean first, as Nicolai (2025) does.
    """
    known = ~np.isnan(power_w)
    time_s, power_w = time_s[known], power_w[known]
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
    samples: Samples, start_s: float, end_s: float, *, discard_s: float = DISCARDED_S, three_sigma: bool = False
) -> PowerEstimate:
    """Mean power of a steady loop.

    Args:
        samples: Of the whole loop, better with some before it.
        start_s: When the loop started, on the samples' clock.
        end_s: When it ended.
        discard_s: What to leave out at the start while the sensor rises; at most half of the loop.
        three_sigma: Three standard errors of the mean, see `integrated_power_w`.

    Raises:
        InputError: The window is empty.
    """
    if not end_s > start_s:
        raise InputError("a window ends after it starts", given=f"{start_s} to {end_s}")
    begin_s = start_s + min(discard_s, (end_s - start_s) / 2)
    window = samples.between(begin_s, end_s)
    counter_w = counter_power_w(window, begin_s, end_s)
    integrated = integrated_power_w(window.time_s, window.power_w, begin_s, end_s, three_sigma=three_sigma)
    instant = integrated_power_w(window.time_s, window.instant_w, begin_s, end_s, three_sigma=three_sigma)
    integrated_w = None if integrated is None else integrated[0]
    return PowerEstimate(
        power_w=integrated_w if counter_w is None else counter_w,
        power_std_w=None if integrated is None else integrated[1],
        counter_w=counter_w,
        integrated_w=integrated_w,
        instant_w=None if instant is None else instant[0],
        naive_w=_mean(samples.between(start_s, end_s).power_w),
        clock_mhz=_mean(window.clock_mhz),
        memory_clock_mhz=_mean(window.memory_clock_mhz),
        temperature_c=_mean(window.temperature_c[-1:]),
        utilization=_mean(window.utilization),
        warnings=(*_doubts_about_power(counter_w, integrated_w), *_disturbances(window)),
    )


def _doubts_about_power(counter_w: float | None, integrated_w: float | None) -> list[str]:
    if counter_w is None:
        return ["no power reading" if integrated_w is None else "no energy counter"]
    if integrated_w is None:
        return []
    difference = abs(integrated_w / counter_w - 1)
    return [f"counter and power readings differ by {100 * difference:.1f} %"] if difference > DISAGREEMENT else []


def _disturbances(window: Samples) -> list[str]:
    warnings = []
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
