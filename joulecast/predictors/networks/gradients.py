"""In training the first layer of a model does less work, because the gradient of the model's input is not needed.

A training operation stands for what loops measure: the forward pass, the gradient of its input, and the gradient of its
weights. For a convolution or a linear layer these are three products of the same size. The input of a model's first
layer is data without a gradient, so autograd omits one of the three products; `torch.utils.flop_counter` counts the
same. In a ResNet-18 on large images, the first layer takes a sixth of the GPU's time.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...operations.network import Network

INPUT_GRADIENT = 1 / 3  # Of the FLOPs of forward and backward.
_LAYERS = ("convolution", "matmul")


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
