"""In training, depthwise convolutions take longer inside networks that keep their tensors in channels-last order.

ConvNeXt and networks like it permute images to (batch, height, width, channels), because their layer norms and linear
layers work on the last dimension. They permute the result back without moving data, so the next convolution gets a
tensor whose channels are contiguous. In fp32, PyTorch then leaves a depthwise convolution to cuDNN instead of its own
kernel (`use_cudnn_depthwise` in ATen/native/Convolution.cpp). The forward pass takes as long as before. The gradients
take several times as long, because cuDNN computes them in direct kernels for grouped convolutions.

Loops measure convolutions on contiguous tensors, so this is seen in networks alone. A list of operations does not say
how tensors lie, but a layer norm or linear layer on the same image with the channels last does.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.network import Network
from ...operations.operation import Operation
from ...operations.rules import Shape

_SLOWER = {"tf32": 1.8, "fp32": 3.3}
"""Precision that a convolution runs in -> device time of its forward and backward relative to contiguous tensors.

Both are what is missing in convnext_base on an A30: its operations add up to 470 and 476 ms in training, 86 and 84 ms
of these in depthwise convolutions; 540 and 668 ms were measured (nicolai2025). Half precision needs no factor, because
cuDNN computes such convolutions in either order (physics/half_precision.py)."""

_LAST_DIMENSION = ("layer_norm", "rms_norm", "linear")


def layout_slowdowns(network: Network, gpu: GPU) -> FloatArray:
    """Device time of each operation relative to that on contiguous tensors, shape (operations,).

    It is 1 for everything but depthwise convolutions in training on NVIDIA's GPUs.

    Args:
        network: The network.
        gpu: The GPU that it runs on.
    """
    slower = np.ones(len(network))
    if network.mode != "training" or not gpu.is_nvidia:
        return slower
    images = {_channels_first(entry.operation) for entry in network if entry.operation.kind in _LAST_DIMENSION}
    for place, entry in enumerate(network):
        if entry.operation.is_depthwise and entry.operation.output_shape in images:
            slower[place] = _SLOWER.get(gpu.running_precision(entry.operation.precision), 1.0)
    return slower


def _channels_first(operation: Operation) -> Shape | None:
    """Shape of an image that an operation sees with its channels last; None if it sees no image."""
    shape = operation.input_shapes[0]
    if len(shape) != 4:
        return None
    batch, height, width, channels = shape
    return batch, channels, height, width
