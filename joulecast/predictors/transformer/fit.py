"""Fitting a transformer to measured operations, which become arrays of tokens. Needs torch.

It is fitted in one thread: matrices by Muon, the rest by AdamW, with a rising and falling learning rate. Adam scales
each weight separately. Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) sets all singular values
of a matrix's step to about 1, so that rare operations move the weights as much as frequent ones. torch.optim.Muon
computes one matrix after the other, which takes eight times as long for the many small ones here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ...arrays import FloatArray, grouped
from ...datasets import Dataset
from ...errors import DatasetError
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..measured import LEAST_ROWS, DeviceRow, launch_times_s
from ..physics.energy import PRIOR_ENERGY
from ..physics.fp32_kernels import counted_s
from ..recipes import TransformerRecipe
from .attentive import Attentive, Range
from .encoder import MACHINE, ROLES, UNKNOWN, Encoder, Functions, shapes, tokens

TORCH = Functions(partial(functional.gelu, approximate="tanh"), functional.softmax, torch.from_numpy)
"""The functions of an `Encoder` that is trained."""

SYNTHETIC_LENGTH = 12
"""Number of operations in a synthetic network, which is put together from measured operations."""

_LEAST_SPREAD = 1e-3
SPREAD = 0.2  # Standard deviation of the initial weights that are applied to tokens.
_FIXED = ("lowest", "highest")  # Arrays that are not trained.
# Standard deviation of the noise on the token that describes the GPU. Only a few GPUs were measured; with the noise,
# predictions change slowly between and beyond them.
_BLUR = 0.1
_PHYSICS = ROLES.index("physics")


@dataclass(frozen=True)
class Examples:
    """Measured operations as arrays with one row for each operation.

    Args:
        values, families, kinds: The input of the transformer, see `Tokens`.
        log_ratio: Logarithm of device time over least time, shape (operations,).
        weight: Weight of each operation in the loss, shape (operations,); their mean is 1.
        groups: For each GPU and mode, the indices of its operations.
    """

    rows: tuple[DeviceRow, ...]
    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]
    log_ratio: FloatArray
    weight: FloatArray
    groups: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: Sequence[DeviceRow], vocabulary: Sequence[str]) -> Self:
        """Make the arrays from measurements at default clocks."""
        parts: list[dict[str, NDArray[Any]]] = []
        by_gpu = grouped(((row.gpu, row.operation.mode), row) for row in rows)
        for (gpu, _), group in by_gpu.items():
            operations = OperationList(row.operation for row in group)
            device_s = np.array([row.device_s for row in group])
            parts.append(
                {
                    **tokens(operations, gpu, vocabulary)._asdict(),
                    "log_ratio": np.log(device_s / counted_s(operations, gpu)),
                    # Otherwise fifty thousand measurements of one GPU would outweigh five hundred of another.
                    "weight": np.full(len(group), len(group) ** -0.5),
                }
            )
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        columns["weight"] /= columns["weight"].mean()
        ends = np.cumsum([len(group) for group in by_gpu.values()])
        return cls(
            rows=tuple(row for group in by_gpu.values() for row in group),
            groups=tuple(np.split(np.arange(ends[-1]), ends[:-1])),
            **columns,
        )

    def units(self, role: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Means of the numbers of one token, and twice their standard deviations.

        Returns:
            Each of shape (len(ROLES), WIDTH), with 0 and 1 for all other tokens and for numbers that do not vary.
        """
        centre, unit = np.zeros_like(self.values[0]), np.ones_like(self.values[0])
        spread = self.values[:, role].std(axis=0)
        varies = spread > _LEAST_SPREAD
        centre[role] = np.where(varies, self.values[:, role].mean(axis=0), 0.0)
        unit[role] = np.where(varies, 2 * spread, 1.0)
        return centre, unit

    def synthetic(self, draw: np.random.Generator, networks: int) -> NDArray[np.int64]:
        """Draw synthetic networks from the operations of one GPU in one mode.

        Returns:
            Indices of operations, shape (networks, SYNTHETIC_LENGTH).
        """
        # The square root keeps a GPU with many measurements from being drawn almost always, as in `weight`.
        sizes = np.sqrt([len(group) for group in self.groups])
        group = self.groups[draw.choice(len(sizes), p=sizes / sizes.sum())]
        return draw.choice(group, (networks, SYNTHETIC_LENGTH))


_QUANTILES = (0.005, 0.995)


def ratio_ranges(operations: Sequence[Operation], log_ratio: FloatArray) -> dict[str, Range]:
    """Family or kind -> lowest and highest log ratio, without the most extreme hundredth of the measurements."""
    ranges = {}
    for names in ([operation.row.family for operation in operations], [operation.kind for operation in operations]):
        array = np.array(names)
        for name in sorted(set(names)):
            low, high = np.quantile(log_ratio[array == name], _QUANTILES)
            ranges[name] = (float(low), float(high))
    return ranges


def vocabulary_of(rows: Sequence[DeviceRow]) -> tuple[str, ...]:
    """UNKNOWN and the kinds that were measured; only these get vectors of their own."""
    return (UNKNOWN, *sorted({row.operation.kind for row in rows}))


def thinned(rows: Sequence[DeviceRow], most: int, seed: int) -> list[DeviceRow]:
    """Select rows so that rare groups stay complete and frequent groups are sampled at random.

    A group is a kind on one GPU in one precision and mode.

    Returns:
        The selected rows, in the order of `rows`.
    """
    taken: Counter[tuple[str, str, str, str]] = Counter()
    turn = np.empty(len(rows), dtype=int)  # A row is the first of its group to be drawn, the second, ...
    for place in np.random.default_rng(seed).permutation(len(rows)).tolist():
        row = rows[place]
        group = row.gpu.name, row.operation.kind, row.operation.precision, row.operation.mode
        taken[group] += 1
        turn[place] = taken[group]
    return [rows[place] for place in sorted(np.argsort(turn, kind="stable")[:most].tolist())]


def starting_weights(recipe: TransformerRecipe, kinds: int) -> dict[str, Tensor]:
    """Random weights by the names of `shapes`, from torch's random numbers.

    With zeros in the last matrix of each part, each layer starts as the identity. Without layer norm, a sum over many
    layers with random weights would start far from its target.
    """
    found = {}
    for name, shape in shapes(recipe, kinds).items():
        if name in ("read", "roles", "family.weight", "kind.weight"):
            found[name] = torch.randn(shape) * SPREAD
        elif name.endswith(("attend.weight", "widen.weight")):
            found[name] = (2 * torch.rand(shape) - 1) / shape[1] ** 0.5
        else:
            found[name] = torch.zeros(shape)
    return found


def reading(weights: Mapping[str, Tensor], centre: Tensor, unit: Tensor) -> dict[str, Tensor]:
    """Weights that read tokens as they are, of weights that read them less a centre and in units.

    Both have the shape (len(ROLES), WIDTH).
    """
    read = weights["read"] / unit[:, :, None]
    return {**weights, "read": read, "roles": weights["roles"] - (centre[:, None] @ read)[:, 0]}


def fit_transformer(
    datasets: Sequence[Dataset],
    rows: Sequence[DeviceRow],
    recipe: TransformerRecipe,
    form: type[Encoder] = Encoder,
    start: Callable[[TransformerRecipe, int], dict[str, Tensor]] = starting_weights,
) -> Attentive:
    """Fit the time of operations over the measurements of many GPUs.

    On the same kind of processor, the same recipe and measurements give the same weights to the last bit. Launch times
    are taken from the datasets, energies are those of the prior. `form` and `start` are the arithmetic and its first
    weights, given the recipe and the length of the vocabulary: another form than the default can be compared with it,
    but not stored. Raises DatasetError: there are too few device times.
    """
    if len(rows) < LEAST_ROWS:
        raise DatasetError(
            "there are too few device times to train a transformer",
            given=len(rows),
            allowed=f"at least {LEAST_ROWS}",
            hint="add datasets that were collected on GPUs, or take the recipe any-gpu",
        )
    rows = thinned(rows, recipe.most_rows, recipe.seed)
    vocabulary = vocabulary_of(rows)
    examples = Examples.of(rows, vocabulary)
    with repeatable(recipe.seed):
        weights = start(recipe, len(vocabulary))
        ends = {"lowest": examples.values.min(axis=0), "highest": examples.values.max(axis=0)}
        weights |= {name: torch.from_numpy(each) for name, each in ends.items()}
        trained, curves = _trained(weights, examples, recipe, form)
    arrays = {name: each.detach().numpy() for name, each in trained.items()}
    ranges = ratio_ranges([row.operation for row in examples.rows], examples.log_ratio)
    return Attentive(form(recipe, arrays, curves=curves), vocabulary, ranges, PRIOR_ENERGY, launch_times_s(datasets))


def _trained(
    weights: dict[str, Tensor], examples: Examples, recipe: TransformerRecipe, form: type[Encoder]
) -> tuple[dict[str, Tensor], dict[str, list[float]]]:
    """Train weights on operations by themselves and in synthetic networks of one GPU and mode.

    The target of each operation in a synthetic network is what was measured by itself, without effects of a network.
    Losses are mean absolute errors of logarithms.

    Returns:
        The weights for tokens as they are, and name -> mean loss of each pass, NaN where a pass had no such step.
    """
    draw, (centre, unit) = np.random.default_rng(recipe.seed), examples.units(_PHYSICS)
    in_units, blurs = [torch.from_numpy(each) for each in (centre, unit)], _BLUR * unit[_PHYSICS, MACHINE]
    count = len(examples.weight)
    batch = min(recipe.batch, count)
    losses = np.empty((recipe.epochs, count // batch))
    together = draw.permutation(np.arange(losses.size) < recipe.together * losses.size).reshape(losses.shape)

    def loss(places: NDArray[np.int64], weight: FloatArray) -> Tensor:
        """The loss of sequences of operations at some places of the examples, shape (sequences, operations)."""
        values = examples.values[places]
        values[..., _PHYSICS, MACHINE] += (blurs * draw.normal(size=(*places.shape, len(MACHINE)))).astype(np.float32)
        kinds = np.where(draw.random(places.shape) < recipe.unknown_kinds, 0, examples.kinds[places])
        given = map(torch.from_numpy, (values, examples.families[places], kinds))
        ratios = form(recipe, reading(weights, *in_units), TORCH).log_ratios(*given)
        found: Tensor = (_tensor(weight) * (ratios - _tensor(examples.log_ratio[places])).abs()).mean()
        return found

    parameters = {name: each.requires_grad_() for name, each in weights.items() if name not in _FIXED}
    # Muon trains the matrices that are applied to tokens and those of layers; AdamW embeddings, biases and heads.
    layers = [name for name, each in parameters.items() if name.startswith("over_") and each.ndim > 1]
    matrices = [parameters.pop(name) for name in ("read", *layers)]
    others = [*parameters.values()]
    adam = torch.optim.AdamW(others, lr=recipe.learning_rate, weight_decay=_DECAY, betas=_BETAS, foreach=True)
    optimizers = [adam, Muon(matrices, recipe.matrix_learning_rate)]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step / losses.size))
        for optimizer in optimizers
    ]
    for epoch in range(recipe.epochs):
        order = torch.randperm(count)[: batch * losses.shape[1]].reshape(-1, batch)
        for step, alone in enumerate(order.numpy()[:, :, None]):
            if together[epoch, step]:
                places = examples.synthetic(draw, max(1, batch // SYNTHETIC_LENGTH))
                lost = loss(places, np.ones(places.shape))
            else:
                lost = loss(alone, examples.weight[alone])
            for optimizer in optimizers:
                optimizer.zero_grad()
            lost.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_([*others, *matrices], _MOST_GRADIENT)
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
            losses[epoch, step] = lost.item()
    of_other_steps = {"loss_alone": together, "loss_together": ~together}
    means = {name: np.ma.masked_array(losses, other).mean(axis=1) for name, other in of_other_steps.items()}
    return reading(weights, *in_units), {name: each.filled(np.nan).tolist() for name, each in means.items()}


def _tensor(values: FloatArray) -> Tensor:
    """Numbers in fp32, in which the model computes."""
    return torch.as_tensor(values, dtype=torch.float32)


_MOMENTUM = 0.95
_ITERATIONS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Coefficients of the Newton-Schulz iteration (the same source).
_LEAST_NORM = 1e-12

_WARM_UP = 0.1  # Share of the steps until the learning rate reaches its highest value.
_MOST_GRADIENT = 1.0  # Larger gradients are scaled down to this norm.
_DECAY, _BETAS = 1e-4, (0.9, 0.99)  # Weight decay of AdamW, and decay rates of its two running means.


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
