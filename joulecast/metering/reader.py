"""Reader: reads a device once. What every sensor comes down to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Reader = Callable[[], Mapping[str, float]]
"""Reads a device once: readings by the names of `Samples`, those that it does not have left out; raises SensorError
when the device is gone. It may give "time_s", the monotonic moment of the reading, where the sensor tells it."""
