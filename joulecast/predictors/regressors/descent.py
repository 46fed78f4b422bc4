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
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...arrays import FloatArray
from ..recipes import PerceptronRecipe
from .perceptron import Array, Perceptron

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


_LEAST_SPREAD = 1e-3


class Columns(NamedTuple):
    """Inputs that are altered in training.

    Args:
        blurred: Inputs that get noise: the few that describe the GPU, so that predictions change slowly between GPUs.
        hidden: Inputs that name the kind. Now and then all of them are hidden at once, because there are kinds that
            were never measured.
    """

    blurred: Sequence[int] = ()
    hidden: Sequence[int] = ()


def _gelu(values: Tensor) -> Tensor:
    return nn.functional.gelu(values, approximate="tanh")


class _Examples(NamedTuple):
    """Training data of a perceptron, with inputs in units of their standard deviation.

    Args:
        inputs: Shape (measurements, columns).
        targets, weights: Value to predict and weight of each measurement, shape (measurements,).
        absent: Values of the hidden columns for an operation whose kind none of them names, shape (hidden columns,).
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor
    absent: Tensor


class _Layers(nn.Module):
    """The same function as `Perceptron`, in torch, for inputs in units of their standard deviation."""

    def __init__(self, columns: int, recipe: PerceptronRecipe) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(columns, recipe.width), nn.Linear(recipe.width, 1)
        self.inner, self.outer = (
            [nn.Linear(recipe.width, recipe.width) for _ in range(recipe.layers)] for _ in range(2)
        )
        self.pairs = nn.ModuleList([*self.inner, *self.outer])

    def forward(self, inputs: Tensor) -> Tensor:
        found = _gelu(self.first(inputs))
        for inner, outer in zip(self.inner, self.outer, strict=True):
            found = found + outer(_gelu(inner(found)))
        values: Tensor = self.head(found)[:, 0]
        return values

    def matrices(self) -> list[Tensor]:
        """The matrices, which Muon updates."""
        return [each.weight for each in (self.first, *self.inner, *self.outer)]


def fit_perceptron(
    inputs: Array, targets: FloatArray, weights: FloatArray, recipe: PerceptronRecipe, columns: Columns, seed: int
) -> Perceptron:
    """Fit a perceptron to the mean absolute error.

    The same arguments give the same numbers, to the last bit, on one kind of processor.
    Inputs have the shape (measurements, columns), targets and weights (measurements,); weights are 1 in the mean.
    """
    lowest, highest = inputs.min(axis=0), inputs.max(axis=0)
    centre, spread = inputs.mean(axis=0, dtype=np.float64), inputs.std(axis=0, dtype=np.float64)
    unit = np.where(spread > _LEAST_SPREAD, 2 * spread, 1.0)
    absent = (-centre / unit)[[*columns.hidden]]
    examples = _Examples(*map(_tensor, ((inputs - centre) / unit, targets, weights, absent)))
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = _Layers(inputs.shape[1], recipe)
        _fit(layers, examples, recipe, columns)
    return _as_arrays(layers, lowest, highest, centre, unit)


def _tensor(values: Array | FloatArray) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32)


def _fit(layers: _Layers, examples: _Examples, recipe: PerceptronRecipe, columns: Columns) -> None:
    batch = min(recipe.batch, len(examples.inputs))
    per_epoch = len(examples.inputs) // batch
    descent = Descent(
        layers,
        layers.matrices(),
        learning_rate=recipe.learning_rate,
        matrix_learning_rate=recipe.matrix_learning_rate,
        steps=recipe.epochs * per_epoch,
        betas=(0.9, 0.999),
    )
    blurred, hidden = [*columns.blurred], [*columns.hidden]
    for _ in range(recipe.epochs):
        order = torch.randperm(len(examples.inputs))
        for places in order[: per_epoch * batch].reshape(per_epoch, batch):
            inputs = examples.inputs[places]
            inputs[:, blurred] += recipe.blur * torch.randn(batch, len(blurred))
            unknown = torch.rand(batch, 1) < recipe.unknown_kinds
            inputs[:, hidden] = torch.where(unknown, examples.absent, inputs[:, hidden])
            errors = (layers(inputs) - examples.targets[places]).abs()
            descent.step((examples.weights[places] * errors).mean())


def _as_arrays(layers: _Layers, lowest: Array, highest: Array, centre: FloatArray, unit: FloatArray) -> Perceptron:
    """The fitted perceptron, for inputs that are not scaled."""
    first = layers.first.weight.detach().double().numpy().T / unit[:, None]
    bias = layers.first.bias.detach().double().numpy() - centre @ first
    pairs = [*zip(layers.inner, layers.outer, strict=True)]
    weights = np.array([[each.weight.detach().numpy().T for each in pair] for pair in pairs])
    biases = np.array([[each.bias.detach().numpy() for each in pair] for pair in pairs])
    head, head_bias = layers.head.weight.detach().numpy()[0], layers.head.bias.detach().numpy()
    numbers = (lowest, highest, first, bias, weights, biases, head, head_bias)
    return Perceptron(*(np.ascontiguousarray(each, dtype=np.float32) for each in numbers))
