"""How long operations in TF32 take inside networks relative to their loops, learned from measured networks.

Eight measured networks in TF32 are bound by the A30 itself, not by its host. Even when all of their operations were
measured in loops, these are predicted 0.6 to 5.4 % too slow in inference. Networks in fp32 are not. So operations in
TF32 count with 0.95 of their loops' device times and dynamic energies. The cause is not known. The factor is one number
per GPU, so an operation costs the same in all networks.

In training, the same correction makes some errors of networks that were left out smaller and others larger
(benchmarks/notes.md), so none is learned there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ..operation_predictions import OperationPredictions
from ..physics.norms import smooth_max
from .composition import HostModel

TF32_FACTORS = (0.8, 1.2)
"""The least and the most that is learned, and that an entry may hold."""

_TRIED = np.arange(320, 481) / 400  # In this range.
_ALIKE = 1e-9  # Sums of errors that differ by less are equal.


def fit_tf32_factor(networks: Sequence[tuple[FloatArray, OperationPredictions, float]], host: HostModel) -> float:
    """Factor on operations in TF32 such that the times of networks come out best.

    It is the one with the smallest sum of errors, as a median, over the networks that have operations in TF32 and take
    the device longer than the host. Few networks say little: of n, the n + 1st root of the nth power is taken, as if
    one more had shown a factor of 1. If several factors are equally good, that closest to 1 is taken.

    Args:
        networks: For each measured network the calls of each operation per iteration, shape (operations,), the
            predictions of its operations, and the measured seconds of an iteration.
        host: The host's time in networks.
    """
    errors, known = np.zeros(len(_TRIED)), 0
    for counts, predictions, measured_s in networks:
        device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
        in_tf32_s = float(np.nansum((counts * predictions.device_time_s)[predictions.in_tf32]))
        if in_tf32_s and host_s < device_s:
            known += 1
            errors += abs(np.log(smooth_max(device_s + (_TRIED - 1) * in_tf32_s, host_s) / measured_s))
    best = _TRIED[np.flatnonzero(errors <= errors.min() + _ALIKE)]
    return float(best[np.argmin(abs(np.log(best)))] ** (known / (known + 1)))
