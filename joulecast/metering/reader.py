"""Reader: the function by which every sensor is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Reader = Callable[[], Mapping[str, float]]
"""Reads a device once.

Returns name -> value, with the names of `Samples`, for the readings that the device has. If the sensor knows the moment
of the reading, "time_s" is its monotonic time. Raises SensorError when the device is lost.
"""
