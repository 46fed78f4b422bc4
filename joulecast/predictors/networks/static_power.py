"""What a board draws inside networks in addition to the static power of its loops, learned from measured networks.

Static power is the least that loops draw: those that hardly use the board. Inside networks, the A30 draws more than its
loops explain: 15 W in inference and 7 W in training. It is most visible in networks of small images, which stay far
below the power cap: 85 W were measured where the loops of all operations explain 72 W. The cause is not known; leakage
of a warmer chip would be one. It is one number per GPU and mode, as the offset of the host's time is (composition.py).

Networks at the power cap cannot show it: they draw the cap. At lower clocks it is assumed to fall as static power does,
which no measurement tests: ResNet-50 in inference at 900 MHz is predicted to take a tenth more energy than without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ..operation_predictions import OperationPredictions
from .composition import HostModel, overlap

MOST_NETWORK_STATIC_W = 40.0
"""The most that is learned, and the most that an entry may hold."""

_TRIED_W = np.arange(0.0, MOST_NETWORK_STATIC_W + 0.5)
_ALIKE = 1e-9  # Sums of errors that differ by less are equal.


def fit_network_static_w(
    networks: Sequence[tuple[FloatArray, OperationPredictions, float]], host: HostModel, power_limit_w: float
) -> float:
    """Watts in addition to the static power of loops, such that the mean powers of networks come out best.

    Powers are compared, not energies, so that errors of time have no part in it. A network at the power cap draws no
    more with any addition. If several additions are equally good, the least is taken; without any network it is 0.

    Args:
        networks: For each measured network the calls of each operation per iteration, shape (operations,), the
            predictions of its operations, and the measured mean power in watts.
        host: The host's time in networks.
        power_limit_w: The power cap in watts under which they were measured.
    """
    errors = np.zeros(len(_TRIED_W))
    for counts, predictions, measured_w in networks:
        dynamic_j = np.nansum(counts * predictions.dynamic_energy_j)
        device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
        static_w = predictions.static_power_w + _TRIED_W
        time_s, energy_j = overlap(device_s, host_s, dynamic_j, static_w, power_limit_w)
        errors += abs(np.log(energy_j / time_s / measured_w))
    return float(_TRIED_W[np.flatnonzero(errors <= errors.min() + _ALIKE)[0]])
