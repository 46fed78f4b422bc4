"""Fitting neural networks in one thread: matrices by Muon, the rest by AdamW, with a rising and falling learning rate.

Adam scales each weight separately. Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) sets all
singular values of a matrix's step to about 1, so that rare operations move the weights as much as frequent ones.
torch.optim.Muon computes one matrix after the other, which takes eight times as long for the many small ones here.

Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ...arrays import FloatArray
from ..recipes import TransformerRecipe

_MOMENTUM = 0.95
_ITERATIONS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Coefficients of the Newton-Schulz iteration (the same source).
_LEAST_NORM = 1e-12

_WARM_UP = 0.1  # Share of the steps until the learning rate reaches its highest value.
_MOST_GRADIENT = 1.0  # Larger gradients are scaled down to this norm.
_DECAY = 1e-4  # Weight decay of AdamW.


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Compute in one thread, because with more threads sums differ in the last bits, and draw from a seed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def descend(
    loss: Callable[[Tensor], Tensor],
    others: Sequence[Tensor],
    matrices: Sequence[Tensor],
    recipe: TransformerRecipe,
    count: int,
    betas: tuple[float, float],
) -> FloatArray:
    """Fit parameters by gradient descent.

    Args:
        loss: The loss of a batch, given the places of its examples.
        others: The parameters that AdamW updates.
        matrices: Those that Muon updates, of two dimensions, or of more for several matrices of one shape. With a
            learning rate of 0 for matrices, AdamW updates them, too.
        recipe: Passes, batches and learning rates.
        count: Number of examples.
        betas: Decay rates of AdamW's two running means.

    Returns:
        The loss of each step, shape (passes, steps of a pass).
    """
    parameters, batch, by_muon = [*others, *matrices], min(recipe.batch, count), recipe.matrix_learning_rate > 0
    losses = np.empty((recipe.epochs, count // batch))
    by_adam = others if by_muon else parameters
    adam = torch.optim.AdamW(by_adam, lr=recipe.learning_rate, weight_decay=_DECAY, betas=betas, foreach=True)
    optimizers = [adam, Muon(matrices, recipe.matrix_learning_rate)] if by_muon else [adam]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step / losses.size))
        for optimizer in optimizers
    ]
    for of_pass in losses:
        order = torch.randperm(count)[: batch * len(of_pass)].reshape(-1, batch)
        for step, places in enumerate(order):
            lost = loss(places)
            for optimizer in optimizers:
                optimizer.zero_grad()
            lost.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, _MOST_GRADIENT)
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
            of_pass[step] = lost.item()
    return losses


def share_of_rate(done: float) -> float:
    """Share of the highest rate after a share of the steps: a warm-up, then a cosine that ends at zero."""
    after = max(0.0, (done - _WARM_UP) / (1 - _WARM_UP))
    return min(1.0, done / _WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * after))


class Muon(torch.optim.Optimizer):
    """Muon over matrices.

    Args:
        matrices: Parameters with two dimensions, or with more for several matrices of one shape.
        learning_rate: Spectral norm of each step of a square matrix.
    """

    def __init__(self, matrices: Iterable[Tensor], learning_rate: float) -> None:
        super().__init__(matrices, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no loss is given
        """Move the matrices by their gradients."""
        for group in self.param_groups:
            for matrices in group["params"]:
                if matrices.grad is not None:
                    momentum = self.state[matrices].setdefault("momentum", torch.zeros_like(matrices))
                    momentum.lerp_(matrices.grad, 1 - _MOMENTUM)
                    step = orthogonalized(matrices.grad.lerp(momentum, _MOMENTUM))
                    size = group["lr"] * math.sqrt(max(1.0, matrices.shape[-2] / matrices.shape[-1]))
                    matrices.add_(step, alpha=-size)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Matrices with the same singular vectors and singular values between 0.7 and 1.2, shape (..., rows, columns).

    Computed by the Newton-Schulz iteration, which needs matrix products only. Singular values that are below a
    hundredth of the norm come out lower than 0.7.
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + _LEAST_NORM)
    first, third, fifth = _QUINTIC
    for _ in range(_ITERATIONS):
        squared = x @ x.mT
        x = first * x + (third * squared + fifth * squared @ squared) @ x
    orthogonal: Tensor = x.mT if is_tall else x
    return orthogonal
