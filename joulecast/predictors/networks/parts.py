"""Operations as parts of a network, where some cost less or more than in the loop that they were measured in."""

from __future__ import annotations

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.network import Network
from ..operation_predictions import OperationPredictions
from .channels_last import layout_factors
from .gradients import gradient_fractions


def part_factors(network: Network, gpu: GPU) -> FloatArray:
    """Work of each operation in a network over that in a loop, shape (operations,).

    In inference, it is 1 for all operations of networks that keep channels first.

    Args:
        network: The network.
        gpu: The GPU that it runs on.
    """
    return gradient_fractions(network) * layout_factors(network, gpu)


def as_parts(network: Network, predictions: OperationPredictions, gpu: GPU) -> OperationPredictions:
    """Operations without the gradient that the first layer omits, and with what the order of tensors costs.

    Args:
        network: The network.
        predictions: Predictions of its operations, in the order of the network.
        gpu: The GPU that they run on.
    """
    factors = part_factors(network, gpu)
    return predictions if (factors == 1).all() else predictions.times(factors, factors)
