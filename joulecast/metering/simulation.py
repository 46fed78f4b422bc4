"""Sensors of known behaviour, to check an estimator against: true power in, samples out.

True power goes through an averaging window, the update period of the power reading, and the steps of an energy counter,
and is polled at irregular moments. The classes are those of Yang et al., "Part-time power measurements" (arXiv
2312.02741), and of NVML's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from .samples import Samples

_STEP_S = 1e-3
# Beside a busy loop our sampler polls every 10.1 ms in the median and within 13.7 ms in 99 of 100; this is worse.
_POLL_S, _JITTER_S = 10e-3, 1e-3
_STALLS, _STALL_S = 0.01, 50e-3
_RIPPLE_HZ = 37.0  # A loop of kernels ripples faster than any sensor updates.
IDLE_W = 60.0
BEFORE_S = 2.0
"""Idle time before and after a simulated loop."""


@dataclass(frozen=True)
class SensorClass:
    """How a sensor sees power.

    Args:
        averaging_s: Window over which a power reading averages.
        update_s: Period of the power readings.
        sampled_share: Share of each period that is looked at.
        counter_update_s: Period of the energy counter.
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
    """Samples of a loop between two times of idling.

    Args:
        sensor: How it sees.
        load_w: Power of the loop in the mean of its ripple, at its start.
        duration_s: How long it runs, from BEFORE_S on.
        seed: For noise and polls.
        counter: Whether there is an energy counter.

    Returns:
        The samples, and the mean power that the loop truly drew.
    """
    rng = np.random.default_rng(seed)
    time_s = np.arange(0, duration_s + 2 * BEFORE_S, _STEP_S)
    running = (time_s >= BEFORE_S) & (time_s < BEFORE_S + duration_s)
    ripple = 1 + 0.1 * np.sign(np.sin(2 * np.pi * _RIPPLE_HZ * time_s)) + 0.02 * rng.standard_normal(time_s.size)
    warming = 1 + 0.002 * (time_s - BEFORE_S)
    true_w = np.where(running, load_w * ripple * warming, IDLE_W)
    total_j = np.concatenate([[0.0], np.cumsum(true_w) * _STEP_S])

    looked_at = max(1, round(sensor.sampled_share * sensor.averaging_s / _STEP_S))
    read_at = _last_update(time_s, sensor.update_s)
    begun_at = np.maximum(0, read_at + 1 - looked_at)
    power_w = np.round((total_j[read_at + 1] - total_j[begun_at]) / ((read_at + 1 - begun_at) * _STEP_S), 3)
    energy_j = np.round(total_j[_last_update(time_s, sensor.counter_update_s)], 3)

    gaps_s = _POLL_S + rng.exponential(_JITTER_S, time_s.size) + _STALL_S * (rng.random(time_s.size) < _STALLS)
    polls = np.searchsorted(time_s, np.cumsum(gaps_s))
    polls = polls[polls < time_s.size]
    readings = {"power_w": power_w[polls], **({"energy_j": energy_j[polls]} if counter else {})}
    return Samples.of(time_s[polls], **readings), float(true_w[running].mean())


def _last_update(time_s: FloatArray, period_s: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Position of the last update before each moment."""
    return np.floor(np.floor(time_s / period_s) * period_s / _STEP_S).astype(np.int64)
