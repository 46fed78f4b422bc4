"""Operations as torch.compile runs them: in fewer kernels, which move fewer bytes.

Element-wise operations are bound by the memory. So a fused kernel that moves a third of the bytes takes a third of the
time and of the dynamic energy, apart from the least time that every kernel takes.
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
    """Operations of a compiled network, with the times, energies and launches that are left after fusion."""
    fusion = fusion_of(network)
    whole_s = np.maximum(predictions.device_time_s, _LEAST_S)
    launched_s = np.minimum(kernel_floor_s(gpu) * numbers_of(network.operations).kernels, whole_s)
    left = (launched_s * fusion.kernels + (whole_s - launched_s) * fusion.traffic) / whole_s
    launches = fusion.kernels * (KERNELS_IN_TRAINING if network.mode == "training" else 1)
    works = predictions.device_time_s > 0  # False for missing operations, and for those that need no kernel.
    host_s = np.where(works, COMPILED_LAUNCH_S * launches, 0.0 * predictions.host_time_s)
    return replace(predictions.times(left, left), host_time_s=host_s)
