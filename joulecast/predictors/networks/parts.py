"""Operations as parts of a network, where some cost less or more than in the loop that they were measured in.

Loops measure convolutions on contiguous tensors, that is, with channels first. A list of operations does not say how
tensors lie, but a network shows it (the table of effects in docs/how-it-works.md has the numbers with their evidence):

- A network that was converted (`module.to(memory_format=torch.channels_last)`, `Network.channels_last`) spares cuDNN
  the transposes before and after convolutions in half precision on tensor cores.
- Networks like ConvNeXt permute images to channels last for their layer norms and linear layers, and permute the result
  back without moving data. The depthwise convolution that follows gets a tensor whose channels are contiguous.

In training the first layer does less work. A training operation stands for what loops measure: the forward, the
gradient of its input, and that of its weights. For a convolution or a linear layer these are three products of the same
size. The input of a model's first layer is data without a gradient, so autograd omits one of the three products;
`torch.utils.flop_counter` counts the same. In a ResNet-18 on large images, the first layer takes a sixth of the time.

torch.compile runs operations in fewer kernels, which move fewer bytes. Element-wise operations are bound by the memory,
so a fused kernel that moves a third of the bytes takes a third of the time and of the dynamic energy, apart from the
least time that every kernel takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES
from ...operations.fusion import fusion_of
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ..operation_predictions import OperationPredictions
from ..physics.convolutions import TRANSPOSED
from ..physics.least_times import LeastTimes
from ..physics.operation_numbers import KIND_PLACES, numbers_of
from ..physics.roofline import kernel_floor_s, on_tensor_cores, reached_bandwidth
from .composition import COMPILED_LAUNCH_S, KERNELS_IN_TRAINING

SLOWER_DEPTHWISE = {"tf32": 1.8, "fp32": 3.3}
"""Precision that a depthwise convolution runs in -> time of forward and backward with channels last over that with
channels first, in training."""

SLOWER_NORMS = 1.3
"""Time of batch norms in training in half precision, with channels first, over that by loops in fp32."""

_PRODUCTS_IN_TRAINING = 3  # The forward product and both gradients; each reads or writes input and output.
_LEAST_S = 1e-15  # Instead of a division by zero.
_LAST_DIMENSION = ("layer_norm", "rms_norm", "linear")

INPUT_GRADIENT = 1 / 3  # Of the FLOPs of forward and backward.
_LAYERS = ("convolution", "matmul")


def part_factors(network: Network, gpu: GPU) -> FloatArray:
    """Work of each operation in a network over that in a loop, shape (operations,).

    In inference, it is 1 for all operations of networks that keep channels first.
    """
    factors = network.derived(gradient_fractions) * unconfirmed_factors(network, gpu)
    return (
        factors * _without_transposes(network.operations, gpu) if network.channels_last and gpu.is_nvidia else factors
    )


def as_parts(network: Network, predictions: OperationPredictions, gpu: GPU) -> OperationPredictions:
    """Operations as parts of a network: without the gradient that the first layer omits, and in its tensors' order."""
    factors = part_factors(network, gpu)
    return predictions if (factors == 1).all() else predictions.times(factors, factors)


def gradient_fractions(network: Network) -> FloatArray:
    """The fraction of each operation's work that the network does, shape (operations,).

    It is 1 except for the first layer in training. A plain list of operations has no first layer. Nor has a model that
    begins with another learned operation, such as an embedding, whose input never has a gradient.
    """
    shares = np.ones(len(network))
    if network.mode != "training" or network.input_shape is None:
        return shares
    if any(operation.gradients not in ("all", "recomputed") for operation in network.operations):
        return shares  # Each operation says by itself which gradients it computes.
    for place, entry in enumerate(network):
        if entry.operation.parameters:
            if entry.operation.row.family in _LAYERS:
                # If the same layer is called again later, only its first call omits the gradient.
                shares[place] -= INPUT_GRADIENT / entry.count
            break
    return shares


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


def unconfirmed_factors(network: Network, gpu: GPU) -> FloatArray:
    """What effects in training that no other measurements confirm do to the time of each operation, (operations,).

    Batch norms in half precision take longer with channels first. Depthwise convolutions take longer with channels last
    inside a network with channels first: without that, the operations of convnext_base add up to 470 ms (TF32) and
    476 ms (fp32) on an A30, 86 and 84 ms of these in such convolutions; 540 and 668 ms were measured (nicolai2025). A
    layer norm or linear layer on the same image with the channels last shows how tensors lie. Half precision needs no
    factor (physics/variants.py).
    """
    factors = np.ones(len(network))
    if network.mode != "training" or not gpu.is_nvidia:
        return factors
    n = numbers_of(network.operations)
    if not network.channels_last:
        factors[(n.kind == KIND_PLACES["batch_norm"]) & (n.element_bytes == HALF_BYTES)] = SLOWER_NORMS
    depthwise = np.flatnonzero((n.is_convolution > 0) & (n.groups > 1)).tolist()
    if depthwise:
        seen = (each.input_shapes[0] for each in network.operations if each.kind in _LAST_DIMENSION)
        images = {(shape[0], shape[3], *shape[1:3]) for shape in seen if len(shape) == 4}
        for place in depthwise:
            operation = network.operations[place]
            if operation.is_depthwise and operation.output_shape in images:
                factors[place] = SLOWER_DEPTHWISE.get(gpu.running_precision(operation.precision), 1.0)
    return factors


def unconfirmed_share(network: Network, gpu: GPU, counts: FloatArray, predictions: OperationPredictions) -> float:
    """Share of a network's device time that unconfirmed effects add."""
    factors = unconfirmed_factors(network, gpu)
    if (factors == 1).all():
        return 0.0
    device_s = counts * predictions.device_time_s
    return float(np.nansum(device_s * (1 - 1 / factors)) / max(float(np.nansum(device_s)), _LEAST_S))


def _without_transposes(operations: OperationList, gpu: GPU) -> FloatArray:
    """Least time of convolutions on tensor cores over that with their transposes, shape (operations,); 1 for others.

    Physics contains the transposes of windows of more than one pixel (physics/convolutions.py). In half precision, the
    images of other windows are transposed as well.
    """
    n = numbers_of(operations)
    transposed = (n.is_convolution > 0) & (n.element_bytes == HALF_BYTES) & on_tensor_cores(n, gpu)
    transposed &= ~((n.groups > 1) & (n.groups == n.channels_in))
    passes = np.where(n.is_training > 0, _PRODUCTS_IN_TRAINING, 1)
    images_s = n.element_bytes * (n.input_size + n.output_size) * passes / reached_bandwidth(gpu)
    least = LeastTimes.of(operations, gpu)
    counted = (n.kernel > 1) & ((n.groups == 1) | (n.is_training > 0))
    without = replace(least, memory_s=np.maximum(least.memory_s - (TRANSPOSED - 1) * images_s, images_s)).time_s
    found = np.where(counted, without / least.time_s, least.time_s / (least.time_s + 2 * images_s))
    factors: FloatArray = np.where(transposed, found, 1.0)
    return factors
