"""Muon: an optimizer that makes the momentum step of each matrix orthogonal. Needs torch.

Adam scales each weight separately. Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) sets all
singular values of a matrix's step to about 1, so that rare operations move the weights as much as frequent ones. The
ablation in benchmarks/transformer compares it with AdamW. torch.optim.Muon computes in bfloat16, one matrix after the
other. The matrices here are many and small, so this implementation computes all matrices of one shape together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_MOMENTUM = 0.95
_ITERATIONS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Coefficients of the Newton-Schulz iteration (the same source).
_LEAST_NORM = 1e-12


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
