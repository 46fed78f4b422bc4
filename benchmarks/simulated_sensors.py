"""Simulates sensors of known behaviour, against which estimators are checked: from true power to samples.

The true power is averaged over a window, updated periodically, summed up by an energy counter that moves in steps, and
polled at irregular moments. The classes of sensors are those of Yang et al., "Part-time power measurements" (arXiv
2312.02741), and of NVML's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulecast.arrays import FloatArray
from joulecast.metering.samples import Samples

_STEP_S = 1e-3
# Worse than our sampler beside a busy loop, where the time between polls has a median of 10.1 ms and a 99th percentile
# of 13.7 ms.
_POLL_S, _JITTER_S = 10e-3, 1e-3
_STALLS, _STALL_S = 0.01, 50e-3
_RIPPLE_HZ = 37.0  # The power of a loop of kernels varies faster than any sensor updates.
IDLE_W = 60.0
BEFORE_S = 2.0
"""Seconds of idle time before and after a simulated loop."""


@dataclass(frozen=True)
class SensorClass:
    """How a sensor measures power.

    Args:
        averaging_s: Seconds over which a power reading averages.
        update_s: Seconds between two updates of the power reading.
        sampled_share: Share of the averaging window in which the sensor measures at all, 0 to 1.
        counter_update_s: Seconds between two updates of the energy counter.
    """

    averaging_s: float
    update_s: float
    sampled_share: float
    counter_update_s: float


SENSOR_CLASSES = {
    "volta": SensorClass(0.02, 0.02, 1.0, 0.02),
    "ga100": SensorClass(0.1, 0.1, 0.25, 0.1),
    "ampere-ada": SensorClass(1.0, 0.1, 1.0, 0.1),
    "hopper-average": SensorClass(1.0, 0.1, 1.0, 0.05),
    "hopper-instant": SensorClass(0.025, 0.025, 1.0, 0.05),
}


def simulate(
    sensor: SensorClass, load_w: float, duration_s: float, *, seed: int = 0, counter: bool = True
) -> tuple[Samples, float]:
    """Simulate the samples of a loop with idle time before and after it.

    Args:
        sensor: The simulated sensor.
        load_w: Mean power at the start of the loop in watts; it varies around the mean and rises slowly.
        duration_s: Length of the loop in seconds; it starts at BEFORE_S.
        seed: Seed of the noise and of the moments of polls.
        counter: Whether the sensor has an energy counter.

    Returns:
        The samples, and the true mean power of the loop in watts.
    """
    rng = np.random.default_rng(seed)
    time_s = np.arange(0, duration_s + 2 * BEFORE_S, _STEP_S)
    running = (time_s >= BEFORE_S) & (time_s < BEFORE_S + duration_s)
    ripple = 1 + 0.1 * np.sign(np.sin(2 * np.pi * _RIPPLE_HZ * time_s)) + 0.02 * rng.standard_normal(time_s.size)
    warming = 1 + 0.002 * (time_s - BEFORE_S)
    true_w = np.where(running, load_w * ripple * warming, IDLE_W)
    total_j = np.concatenate([[0.0], np.cumsum(true_w) * _STEP_S])

    sampled_steps = max(1, round(sensor.sampled_share * sensor.averaging_s / _STEP_S))
    read_at = _last_update(time_s, sensor.update_s)
    begun_at = np.maximum(0, read_at + 1 - sampled_steps)
    power_w = np.round((total_j[read_at + 1] - total_j[begun_at]) / ((read_at + 1 - begun_at) * _STEP_S), 3)
    energy_j = np.round(total_j[_last_update(time_s, sensor.counter_update_s)], 3)

    gaps_s = _POLL_S + rng.exponential(_JITTER_S, time_s.size) + _STALL_S * (rng.random(time_s.size) < _STALLS)
    polls = np.searchsorted(time_s, np.cumsum(gaps_s))
    polls = polls[polls < time_s.size]
    readings = {"power_w": power_w[polls], **({"energy_j": energy_j[polls]} if counter else {})}
    return Samples.of(time_s[polls], **readings), float(true_w[running].mean())


def _last_update(time_s: FloatArray, period_s: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Index of the last update before each moment."""
    return np.floor(np.floor(time_s / period_s) * period_s / _STEP_S).astype(np.int64)
