"""What the order of tensors in memory costs: convolutions in networks that keep images in channels-last order.

Loops measure convolutions on contiguous tensors, that is, with channels first. A list of operations does not say how
tensors lie. There are three cases in which a network shows it.

**Networks that were converted** (`module.to(memory_format=torch.channels_last)`, `Network.channels_last`). On tensor
cores, cuDNN computes convolutions in half precision with channels last. Where tensors have channels first, it
transposes the input before and the output after, which reads and writes each of them once more. Converted networks
spare that. Nothing in this is fitted. Without it, ResNet-50 in inference on an RTX 3090 was predicted 35 % too slow,
and with it 9 %; its training in mixed precision 51 and 22 % on an A100, and 27 and 1 % on a V100 (benchmarks/public,
benchmarks/training).

**Batch norms in training in half precision** take longer with channels first, which loops in fp32 do not show. The
factor was chosen with timm's published times on an RTX 3090 in view (the half of benchmarks/public that is not held
back for tests). With channels last, NVIDIA's published training steps need no factor.

**Depthwise convolutions in training.** ConvNeXt and networks like it permute images to (batch, height, width,
channels), because their layer norms and linear layers work on the last dimension. They permute the result back without
moving data, so the next convolution gets a tensor whose channels are contiguous. In fp32, PyTorch then leaves a
depthwise convolution to cuDNN instead of its own kernel (`use_cudnn_depthwise` in ATen/native/Convolution.cpp). The
forward pass takes as long as before. The gradients take several times as long, because cuDNN computes them in direct
kernels for grouped convolutions. A layer norm or linear layer on the same image with the channels last shows this.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.network import Network
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.precisions import HALF_BYTES
from ...operations.rules import Shape
from ..physics.least_times import LeastTimes
from ..physics.operation_numbers import KIND_PLACES, numbers_of
from ..physics.roofline import on_tensor_cores

_SLOWER = {"tf32": 1.8, "fp32": 3.3}
"""Precision that a convolution runs in -> device time of its forward and backward relative to contiguous tensors.

Both are what is missing in convnext_base on an A30: its operations add up to 470 and 476 ms in training, 86 and 84 ms
of these in depthwise convolutions; 540 and 668 ms were measured (nicolai2025). Half precision needs no factor, because
cuDNN computes such convolutions in either order (physics/half_precision.py)."""

_PRODUCTS_IN_TRAINING = 3
"""The forward product and both gradients, each of which reads or writes tensors as large as input and output."""

_NORMS_IN_TRAINING = 1.3
_LAST_DIMENSION = ("layer_norm", "rms_norm", "linear")


def layout_factors(network: Network, gpu: GPU) -> FloatArray:
    """Device time of each operation relative to that on contiguous tensors, shape (operations,).

    It is 1 for everything but the operations of the three cases above, on NVIDIA's GPUs.

    Args:
        network: The network.
        gpu: The GPU that it runs on.
    """
    training = network.mode == "training"
    if not gpu.is_nvidia or not (training or network.channels_last):
        return np.ones(len(network))
    layout = _without_transposes if network.channels_last else _slower_norms
    factors = layout(network.operations, gpu)
    if not training:
        return factors
    images = {_channels_first(entry.operation) for entry in network if entry.operation.kind in _LAST_DIMENSION}
    for place, entry in enumerate(network):
        if entry.operation.is_depthwise and entry.operation.output_shape in images:
            factors[place] = _SLOWER.get(gpu.running_precision(entry.operation.precision), 1.0)
    return factors


def _without_transposes(operations: OperationList, gpu: GPU) -> FloatArray:
    """Least time of convolutions on tensor cores over that with their transposes, shape (operations,); 1 for others."""
    n = numbers_of(operations)
    transposed = (n.is_convolution > 0) & (n.element_bytes == HALF_BYTES) & on_tensor_cores(n, gpu)
    transposed &= ~((n.groups > 1) & (n.groups == n.channels_in))
    passes = np.where(n.is_training > 0, _PRODUCTS_IN_TRAINING, 1)
    moved = 2 * n.element_bytes * (n.input_size + n.output_size) * passes
    least_s = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s
    factors: FloatArray = np.where(transposed, least_s / (least_s + moved / gpu.memory_bandwidth), 1.0)
    return factors


def _slower_norms(operations: OperationList, gpu: GPU) -> FloatArray:
    """Time of batch norms in training in half precision over that by loops, shape (operations,); 1 for others."""
    n = numbers_of(operations)
    slower = (n.kind == KIND_PLACES["batch_norm"]) & (n.element_bytes == HALF_BYTES) & (n.is_training > 0)
    factors: FloatArray = np.where(slower, _NORMS_IN_TRAINING, 1.0)
    return factors


def _channels_first(operation: Operation) -> Shape | None:
    """Shape of an image that an operation sees with its channels last; None if it sees no image."""
    shape = operation.input_shapes[0]
    if len(shape) != 4:
        return None
    batch, height, width, channels = shape
    return batch, channels, height, width
