"""Intervals of served models: errors of their kernels, and what nobody measured here of engines.

Kernels of one kind err together inside a step, so their errors add up as shares of the step. Runs of an engine were not
among the data of this project: that what an engine takes for itself is known within a factor of two, and that a step
adds 6 % to all, are assumptions (one standard deviation), and `basis` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError

BASIS = "errors of kernels on sizes that were left out; of engines an assumption: their own time within a factor of two"
KERNEL_LEVEL = 0.9
"""Level at which errors of kernels are looked up."""

_ENGINE_SIGMA = math.log(2.0)
_STEP_SIGMA = 0.06


def normal_quantile(level: float) -> float:
    """Standard deviations around the mean within which a share `level` of a normal distribution lies.

    Raises:
        InputError: The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise InputError("the level of an interval lies between 0 and 1", given=level)
    return NormalDist().inv_cdf((1 + level) / 2)


def step_sigmas(halves: Mapping[str, FloatArray], seconds: FloatArray, waiting_share: float) -> Mapping[str, float]:
    """Standard deviations of the logarithms of a step's time, power and energy.

    Args:
        halves: Quantity -> half widths of the logarithm of each operation's, at KERNEL_LEVEL, shape (operations,).
        seconds: Of all calls of each operation, shape (operations,).
        waiting_share: Share of the step's time in which the GPU waits for the engine, or for a host that launches.
    """
    shares = (1 - max(0.0, waiting_share)) * seconds / max(float(seconds.sum()), 1e-15)
    found = {}
    for quantity, half in halves.items():
        of_kernels = float((shares * np.nan_to_num(half)).sum()) / normal_quantile(KERNEL_LEVEL)
        # (what the board draws while it waits is known far better than for how long)
        of_engine = max(0.0, waiting_share) * _ENGINE_SIGMA if quantity == "time" else 0.0
        found[quantity] = math.hypot(of_kernels, of_engine, _STEP_SIGMA)
    return found


@dataclass(frozen=True)
class GenerationInterval:
    """Low and high of each quantity, for a share `level` of runs.

    Args:
        level: That share.
        time_to_first_token_s, time_per_output_token_s: Seconds.
        power_w: Watts.
        energy_per_token_j: Joules.
        basis: What it rests on, in words.
    """

    level: float
    time_to_first_token_s: tuple[float, float]
    time_per_output_token_s: tuple[float, float]
    power_w: tuple[float, float]
    energy_per_token_j: tuple[float, float]
    basis: str = BASIS

    def to_dict(self) -> dict[str, Any]:
        """The interval as plain lists; quantities in SI units."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
