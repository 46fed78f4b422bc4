"""Fitting neural networks in one thread: matrices by Muon, the rest by AdamW, with a rising and falling learning rate.

Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .muon import Muon

_WARM_UP = 0.1  # Share of the steps until the learning rate reaches its highest value.
_MOST_GRADIENT = 1.0  # Larger gradients are scaled down to this norm.
_DECAY = 1e-4  # Weight decay of AdamW.


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread, because with more threads sums differ in the last bits between runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Descent:
    """Gradient descent on a loss.

    Args:
        network: The network that is fitted.
        matrices: The parameters that Muon updates; if empty, AdamW updates all parameters.
        learning_rate, matrix_learning_rate: Highest learning rates of AdamW and of Muon.
        steps: Number of steps.
        betas: Decay rates of AdamW's two running means.
    """

    def __init__(
        self,
        network: nn.Module,
        matrices: Sequence[Tensor],
        *,
        learning_rate: float,
        matrix_learning_rate: float,
        steps: int,
        betas: tuple[float, float],
    ) -> None:
        apart = {id(matrix) for matrix in matrices}
        others = [parameter for parameter in network.parameters() if id(parameter) not in apart]
        adam = torch.optim.AdamW(others, lr=learning_rate, weight_decay=_DECAY, betas=betas, foreach=True)
        self._network = network
        self._optimizers = [adam, Muon(matrices, matrix_learning_rate)] if matrices else [adam]
        self._schedules = [
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step / steps))
            for optimizer in self._optimizers
        ]

    def step(self, loss: Tensor) -> None:
        """Move the network by the gradient of a loss."""
        self._network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.parameters(), _MOST_GRADIENT)
        for optimizer, schedule in zip(self._optimizers, self._schedules, strict=True):
            optimizer.step()
            schedule.step()


def share_of_rate(done: float) -> float:
    """Share of the highest rate after a share of the steps: a warm-up, then a cosine that ends at zero."""
    after = max(0.0, (done - _WARM_UP) / (1 - _WARM_UP))
    return min(1.0, done / _WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * after))
