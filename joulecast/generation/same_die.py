"""Energy of kernels on a board whose power nobody measured, from another board with the same die.

The power of kernels was learned on H200, B200 and GB200 (predictors/kernels/power.py), as watts. An H100 has the die of
an H200 but less bandwidth: it moves the same bytes in 1.4 times the time. Both boards have the joules of a kernel in
common, and not its watts, which would make the H100 pay for bandwidth that it does not have.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU, gpus
from ..operations.operation_list import OperationList
from ..predictors.kernels.learned import Kernels
from ..predictors.physics.energy import static_power_w

_LEAST_J = 1e-15


def energy_factors(operations: OperationList, gpu: GPU, kernels: Kernels | None) -> FloatArray:
    """What the dynamic energy of each operation is to be multiplied with, shape (operations,).

    One where the power of such kernels was measured on this GPU, or on none with its die.

    Args:
        operations: Operations of a step.
        gpu: The GPU that they run on.
        kernels: What was learned of kernels; None where there is nothing.
    """
    measured = None if kernels is None else _measured_with_die(gpu, kernels)
    if kernels is None or measured is None:
        return np.ones(len(operations))
    # A board without work draws no less than another with the same die, whichever of the two was looked at.
    own_w, other_w = (float(static_power_w(each, float(each.boost_clock_mhz))) for each in (gpu, measured))
    own_j = (kernels.demand_w(operations, gpu) - own_w) * kernels.device_s(operations, gpu)
    other_j = (kernels.demand_w(operations, measured) - max(own_w, other_w)) * kernels.device_s(operations, measured)
    found: FloatArray = np.maximum(other_j, _LEAST_J) / np.maximum(own_j, _LEAST_J)
    return np.where(np.isnan(found), 1.0, found)


def _measured_with_die(gpu: GPU, kernels: Kernels) -> GPU | None:
    names = {name for variant in kernels.variants.values() if variant.power for name in variant.power.gpus}
    if gpu.name in names:
        return None
    return next((each for each in gpus().values() if each.name in names and each.chip == gpu.chip), None)
