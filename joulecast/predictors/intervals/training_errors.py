"""Errors of training steps in half precision: what was published of whole steps, against what is predicted.

No dataset has operations of training in half precision, so there are no networks to leave out. These are steps that
others published and that nothing was fitted to: 8 of NVIDIA's (A100 and V100), 35 of timm's (RTX 3090 and 4090) and 25
of MPT's (8 to 128 A100). Each number is the root mean square of the log errors of one network on one GPU; `python
benchmarks/training_errors.py` makes them. Nobody published their power, whose errors are those in inference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...arrays import FloatArray

BASIS = "published training steps in half precision (time) and networks in inference (power)"

_TIMES = (
    "0.003 0.007 0.009 0.011 0.012 0.017 0.024 0.027 0.032 0.033 0.036 0.037 0.037 0.038 0.041 0.041 0.042 "
    "0.063 0.063 0.066 0.072 0.078 0.082 0.082 0.085 0.087 0.092 0.107 0.115 0.125 0.125 0.127 0.128 0.134 "
    "0.142 0.153 0.156 0.166 0.175 0.186 0.194 0.195 0.200 0.215 0.246 0.295 0.320"
)

STEP_ERRORS: FloatArray = np.array(_TIMES.split(), dtype=float)
"""Sorted absolute log errors of time."""


def of(power: Sequence[float]) -> Mapping[str, Sequence[float]]:
    """Sorted absolute log errors of each quantity.

    Args:
        power: Those of power in inference. Time and power are taken to err independently.
    """
    time, watts = np.meshgrid(STEP_ERRORS, np.asarray(power, dtype=float))

    def as_many(errors: FloatArray) -> Sequence[float]:
        """As many errors as there are of time, so that no more is claimed than these support."""
        levels = (np.arange(len(STEP_ERRORS)) + 0.5) / len(STEP_ERRORS)
        return [float(error) for error in np.quantile(errors, levels)]

    return {
        "time": STEP_ERRORS.tolist(),
        "power": sorted(map(float, power)),
        "energy": as_many(np.hypot(time, watts)),
        "edp": as_many(np.hypot(2 * time, watts)),
    }
