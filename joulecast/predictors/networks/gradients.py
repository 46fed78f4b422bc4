"""In training the first layer of a model does less: the gradient of the model's input is not needed.

A training operation stands for what loops measure: the forward, the gradient of its input and the gradient of its
weights. In a convolution and in a linear layer these are three products of the same size. The first layer of a model is
given data, which need no gradient, so autograd leaves one of the three products out; `torch.utils.flop_counter` shows
the same. In a ResNet-18 on large images, that layer is a sixth of the GPU's time.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...operations.network import Network
from ..operation_predictions import OperationPredictions

_INPUT_GRADIENT = 1 / 3  # Of the FLOPs of forward and backward.
_LAYERS = ("convolution", "matmul")


def gradient_fractions(network: Network) -> FloatArray:
    """The fraction of each operation's work that a network does: 1, or less for the first layer in training.

    A list of operations has no first layer; nor has a model that begins with something else that is learned, such as
    an embedding, whose input has no gradient by itself.
    """
    shares = np.ones(len(network))
    if network.mode != "training" or network.input_shape is None:
        return shares
    for place, entry in enumerate(network):
        if entry.operation.parameters:
            if entry.operation.row.family in _LAYERS:
                # (the same layer may run again further on)
                shares[place] -= _INPUT_GRADIENT / entry.count
            break
    return shares


def as_parts(network: Network, predictions: OperationPredictions) -> OperationPredictions:
    """Operations as parts of a network: without the gradient that its first layer leaves out.

    Args:
        network: The network.
        predictions: Predictions of its operations, in the order of the network.
    """
    shares = gradient_fractions(network)
    return predictions if shares.min() == 1 else predictions.times(shares, shares)
