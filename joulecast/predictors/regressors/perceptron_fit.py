"""Fitting a perceptron. Needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...arrays import FloatArray
from ..recipes import PerceptronRecipe
from .descent import Descent, one_thread
from .perceptron import Array, Perceptron

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

    Args:
        inputs: Inputs, shape (measurements, columns).
        targets: What to predict, shape (measurements,).
        weights: Weight of each measurement, 1 in the mean.
        recipe: Settings of the perceptron.
        columns: The inputs that noise is added to, and those that are hidden.
        seed: Seed of the random numbers, so that training is repeatable.
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
