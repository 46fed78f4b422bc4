"""Finds the update periods and the averaging window of a power sensor from its response to steps of load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from .estimate import PowerEstimate, estimate, integrated_power_w
from .samples import Samples
from .sensor import Sensor

POLLING_S = 0.001
"""Seconds between two samples while probing; the quickest sensors update every 20 ms."""

_STEPS = 3
_IDLE_S = 1.5  # Longer than the longest averaging window, which is 1 s.
_LOAD_S = 2.0
_LEVEL_S = 0.4  # The end of each load and of each idle time, where the reading is steady.
_LEAST_STEP = 0.05  # A step with a smaller relative rise cannot be distinguished from noise.

Window = tuple[float, float]
Load = Callable[[float], None]
"""Keeps the device busy for a number of seconds."""


@dataclass(frozen=True)
class SensorTraits:
    """How a sensor measures power; None for what could not be found.

    Args:
        averaging_s: Seconds over which a power reading averages, to within about one update period.
    """

    power_update_s: float | None
    counter_update_s: float | None
    averaging_s: float | None


def traits_of(samples: Samples, steps: Sequence[Window]) -> SensorTraits:
    """Traits of a sensor from its samples.

    Args:
        samples: Samples of the sensor, with several polls for each update.
        steps: Start and end of each load, with idle time before each load.
    """
    update_s = _update_period_s(samples.time_s, samples.power_w)
    return SensorTraits(
        power_update_s=update_s,
        counter_update_s=_update_period_s(samples.time_s, samples.energy_j),
        averaging_s=None if update_s is None else _averaging_s(samples, steps, update_s),
    )


def _update_period_s(time_s: FloatArray, readings: FloatArray) -> float | None:
    known = ~np.isnan(readings)
    changes_s = time_s[known][1:][np.diff(readings[known]) != 0]
    # An update that repeats the last value cannot be seen. It makes some intervals longer but none shorter, so the
    # period is taken from the short ones.
    return float(np.quantile(np.diff(changes_s), 0.25)) if changes_s.size > 2 else None


def _averaging_s(samples: Samples, steps: Sequence[Window], update_s: float) -> float | None:
    """Seconds over which a reading averages, from its lag behind steps of load; None if no step can be seen.

    A mean over the last W seconds lags W / 2 behind a step. Because a reading is held until the next update, it lags
    another half of an update period. The lag is the area between the step and the reading over the step's height.
    """
    time_s, power_w = samples.time_s, samples.power_w
    lags_s = []
    for start_s, end_s in steps:
        idle = integrated_power_w(time_s, power_w, start_s - _LEVEL_S, start_s)
        load = integrated_power_w(time_s, power_w, end_s - _LEVEL_S, end_s)
        whole = integrated_power_w(time_s, power_w, start_s, end_s)
        if idle is None or load is None or whole is None or load[0] < (1 + _LEAST_STEP) * idle[0]:
            continue
        lags_s.append((load[0] - whole[0]) / (load[0] - idle[0]) * (end_s - start_s))
    return max(0.0, 2 * float(np.mean(lags_s)) - update_s) if lags_s else None


def probe(sensor: Sensor, load: Load, check: Sensor | None = None) -> tuple[SensorTraits, float | None]:
    """Load a device in steps, and find the traits of its sensor.

    Args:
        sensor: The sensor, which was entered and polls every POLLING_S.
        load: Loads the device. It is called once before the first step, so that initialization is not measured.

    Returns:
        The traits, and the relative difference of the other sensor's power under load; None without `check`.

    Raises:
        SensorError: A sensor was lost.
    """
    load(0.1)
    begin_s = time.monotonic()
    steps = []
    for _ in range(_STEPS):
        time.sleep(_IDLE_S)
        start_s = time.monotonic()
        load(_LOAD_S)
        steps.append((start_s, time.monotonic()))
    end_s = steps[-1][1]
    samples = sensor.window(begin_s, end_s)
    difference = None
    if check is not None:
        one, other = (
            integrated_power_w(s.time_s, s.power_w, end_s - _LEVEL_S, end_s)
            for s in (samples, check.window(begin_s, end_s))
        )
        difference = other[0] / one[0] - 1 if one and other else None
    return traits_of(samples, steps), difference


def idle(sensor: Sensor, seconds: float) -> PowerEstimate:
    """Measure the power of an idle device."""
    start_s = time.monotonic()
    time.sleep(seconds)
    end_s = time.monotonic()
    return estimate(sensor.window(start_s, end_s), start_s, end_s)
