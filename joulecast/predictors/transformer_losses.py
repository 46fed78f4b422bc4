"""What fitting operations and fitting networks share. Needs torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .features import FloatArray
from .transformer import OperationTransformer
from .transformer_examples import OperationExamples, Operations

MADE_UP_LENGTH = 12
"""Operations in a network that is put together."""

_AT_CAP = 0.97  # Of the cap, from where a power reading says "at least".


def power_loss(predicted_w: Tensor, measured_w: Tensor, cap_w: Tensor) -> Tensor:
    """Mean absolute log error; a reading at the cap says only that the work would draw that much or more."""
    error = (predicted_w / measured_w).log()
    at_cap = measured_w > _AT_CAP * cap_w
    loss: Tensor = torch.where(at_cap, error.clamp(max=0.0), error).abs().mean()
    return loss


def tensor(values: FloatArray | float) -> Tensor:
    """Numbers as the model computes with them."""
    return torch.as_tensor(values, dtype=torch.float32)


def torch_encoder(model: OperationTransformer) -> Callable[..., tuple[FloatArray, FloatArray]]:
    """A model in torch as an encoder (see attentive.py)."""

    def encode(*arrays: NDArray[np.float32]) -> tuple[FloatArray, FloatArray]:
        with torch.no_grad():
            of_operations, of_networks = model(*map(torch.from_numpy, arrays))
        return of_operations.double().numpy(), of_networks.double().numpy()

    return encode


def alone(model: OperationTransformer, operations: Operations) -> tuple[FloatArray, FloatArray]:
    """Device seconds, and dynamic energy over what physics says, of operations that are read alone."""
    values, families, kinds = operations.values[:, None], operations.families[:, None], operations.kinds[:, None]
    ratios, _ = torch_encoder(model)(values, families, kinds, np.ones(kinds.shape, dtype=np.float32))
    return operations.least_s * np.exp(ratios[:, 0, 0]), np.exp(ratios[:, 0, 1])


def made_up(examples: OperationExamples, draw: np.random.Generator, sequences: int) -> NDArray[np.int64]:
    """Places of operations of one GPU and mode, shape (sequences, MADE_UP_LENGTH)."""
    # As in the weights of operations: one GPU must not outvote another.
    sizes = np.sqrt([len(group) for group in examples.groups])
    group = examples.groups[draw.choice(len(sizes), p=sizes / sizes.sum())]
    return draw.choice(group, (sequences, MADE_UP_LENGTH))
