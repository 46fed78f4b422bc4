"""Operations as torch.compile runs them: fewer kernels, which move fewer bytes.

What is computed element by element is bound by the memory, so a kernel that moves a third of the bytes takes a third of
the time and of the dynamic energy, but for the least time that any kernel takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...hardware import GPU
from ...operations.fusion import fusion_of
from ...operations.network import Network
from ..operation_predictions import OperationPredictions
from ..physics.bounds import kernel_floor_s
from ..physics.operation_numbers import numbers_of
from .execution import COMPILED_LAUNCH_S, KERNELS_IN_TRAINING

_LEAST_S = 1e-15  # Instead of a division by zero.


def as_compiled(network: Network, predictions: OperationPredictions, gpu: GPU) -> OperationPredictions:
    """Operations of a compiled network: what is left of their times and energies, and of their launches.

    Args:
        network: The network.
        predictions: Predictions of its operations as eager PyTorch runs them, in the order of the network.
        gpu: The GPU that they run on.
    """
    fusion = fusion_of(network)
    whole_s = np.maximum(predictions.device_time_s, _LEAST_S)
    launched_s = np.minimum(kernel_floor_s(gpu) * numbers_of(network.operations).kernels, whole_s)
    left = (launched_s * fusion.kernels + (whole_s - launched_s) * fusion.traffic) / whole_s
    launches = fusion.kernels * (KERNELS_IN_TRAINING if network.mode == "training" else 1)
    works = predictions.device_time_s > 0  # (not what is missing, and not what nothing runs for)
    host_s = np.where(works, COMPILED_LAUNCH_S * launches, 0.0 * predictions.host_time_s)
    return replace(predictions.times(left, left), host_time_s=host_s)
