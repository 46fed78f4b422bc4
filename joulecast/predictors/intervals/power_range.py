"""The range of power that a board can draw. No interval of power goes beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...hardware import GPU


def power_range_w(gpu: GPU, power_limit_w: float) -> tuple[float, float]:
    """Least and most watts that a board can draw under a cap."""
    idle_w = gpu.idle_power_w
    if idle_w is None:
        idle_w = 0.0 if gpu.idle_curve is None else float(gpu.idle_curve.at(float(gpu.min_clock_mhz)))
    return min(idle_w, power_limit_w), power_limit_w


def within_range(low: Any, value: Any, high: Any, power_range_w: tuple[float, float]) -> tuple[Any, Any]:
    """An interval of power, cut off at what the board can draw."""
    least, most = power_range_w
    return np.minimum(np.maximum(low, least), value), np.maximum(np.minimum(high, most), value)
