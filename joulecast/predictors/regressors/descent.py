"""Fitting neural networks in one thread: matrices by Muon, the rest by AdamW, with a rising and falling learning rate.

Adam scales each weight separately. Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) sets all
singular values of a matrix's step to about 1, so that rare operations move the weights as much as frequent ones. The
ablation in benchmarks/transformer compares it with AdamW. torch.optim.Muon computes in bfloat16, one matrix after the
other. The matrices here are many and small, so this implementation computes all matrices of one shape together.

Needs torch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_MOMENTUM = 0.95
_ITERATIONS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Coefficients of the Newton-Schulz iteration (the same source).
_LEAST_NORM = 1e-12

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
        matrices: The parameters that Muon updates; if empty, AdamW updates all parameters.
        learning_rate, matrix_learning_rate: Highest learning rates of AdamW and of Muon.
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


class Muon(torch.optim.Optimizer):
    """Muon over matrices.

    Args:
        matrices: Parameters with two dimensions, or with three for several matrices of one shape.
        learning_rate: Spectral norm of each step of a square matrix.
    """

    def __init__(self, matrices: Iterable[Tensor], learning_rate: float) -> None:
        super().__init__(matrices, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no loss is given
        """Move the matrices by their gradients."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append((parameter, parameter.grad))
            for shape, pairs in shapes.items():
                gradients = torch.stack([gradient for _, gradient in pairs])
                momentum = self.state[pairs[0][0]].setdefault("momentum", torch.zeros_like(gradients))
                momentum.lerp_(gradients, 1 - _MOMENTUM)
                wanted = gradients.lerp(momentum, _MOMENTUM)
                steps = orthogonalized(wanted.flatten(0, -3)).view_as(wanted)
                size = group["lr"] * math.sqrt(max(1.0, shape[-2] / shape[-1]))
                for (parameter, _), step in zip(pairs, steps, strict=True):
                    parameter.add_(step, alpha=-size)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Matrices with the same singular vectors and singular values between 0.7 and 1.2, shape (matrices, rows, columns).

    Computed by the Newton-Schulz iteration, which needs matrix products only. Singular values that are below a
    hundredth of the norm come out lower than 0.7.
    """
    wide = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x = wide / (wide.norm(dim=(1, 2), keepdim=True) + _LEAST_NORM)
    first, third, fifth = _QUINTIC
    for _ in range(_ITERATIONS):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=third, alpha=fifth), x, beta=first)
    orthogonal: Tensor = x.mT if wide is not matrices else x
    return orthogonal
