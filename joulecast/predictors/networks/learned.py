"""What measured networks teach about a GPU: the cost of operations in TF32, and the power of a waiting board.

Each is one number per GPU (and mode), as the offset of the host's time is (composition.py). What they mean, and what
they rest on, stands in the table of effects (effects.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ...arrays import FloatArray
from ..operation_predictions import OperationPredictions
from ..physics.norms import smooth_max
from .composition import HostModel, overlap

Measured: TypeAlias = Sequence[tuple[FloatArray, OperationPredictions, float]]
"""For each measured network the calls of each operation per iteration, shape (operations,), the predictions of its
operations, and the measured value: seconds of an iteration, or watts."""

TF32_FACTORS = (0.8, 1.2)
"""The least and the most that is learned, and that an entry may hold."""

MOST_NETWORK_STATIC_W = 40.0
"""The most that is learned, and the most that an entry may hold."""

_FACTORS = np.arange(320, 481) / 400
_WATTS = np.arange(0.0, MOST_NETWORK_STATIC_W + 0.5)
_ALIKE = 1e-9  # Sums of errors that differ by less are equal.


def fit_tf32_factor(networks: Measured, host: HostModel) -> float:
    """Factor on operations in TF32 such that the times of networks come out best.

    It is the one with the smallest sum of errors, as a median, over the networks that have operations in TF32 and take
    the device longer than the host. Few networks say little: of n, the n + 1st root of the nth power is taken, as if
    one more had shown a factor of 1. If several factors are equally good, that closest to 1 is taken.
    """
    errors, known = np.zeros(len(_FACTORS)), 0
    for counts, predictions, measured_s in networks:
        device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
        in_tf32_s = float(np.nansum((counts * predictions.device_time_s)[predictions.in_tf32]))
        if in_tf32_s and host_s < device_s:
            known += 1
            errors += abs(np.log(smooth_max(device_s + (_FACTORS - 1) * in_tf32_s, host_s) / measured_s))
    best = _FACTORS[np.flatnonzero(errors <= errors.min() + _ALIKE)]
    return float(best[np.argmin(abs(np.log(best)))] ** (known / (known + 1)))


def fit_network_static_w(networks: Measured, host: HostModel, power_limit_w: float) -> float:
    """Watts in addition to the static power of loops, such that the mean powers of networks come out best.

    Powers are compared, not energies, so that errors of time have no part in it. A network at the power cap draws no
    more with any addition. If several additions are equally good, the least is taken; without any network it is 0. At
    lower clocks the addition is assumed to fall as static power does, which no measurement tests.
    """
    errors = np.zeros(len(_WATTS))
    for counts, predictions, measured_w in networks:
        dynamic_j = np.nansum(counts * predictions.dynamic_energy_j)
        device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
        static_w = predictions.static_power_w + _WATTS
        time_s, energy_j = overlap(device_s, host_s, dynamic_j, static_w, power_limit_w)
        errors += abs(np.log(energy_j / time_s / measured_w))
    return float(_WATTS[np.flatnonzero(errors <= errors.min() + _ALIKE)[0]])
