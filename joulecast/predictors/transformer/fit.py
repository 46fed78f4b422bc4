"""Fitting a transformer to measured operations, which become arrays of tokens. Needs torch."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import DatasetError
from ...operations.operation import Operation
from ..measured.rows import AT_CAP, LEAST_ROWS, DeviceRow, launch_times_s, rows_by_gpu
from ..physics.energy import PRIOR_ENERGY, static_power_w
from ..recipes import TransformerRecipe
from ..regressors.descent import Descent, one_thread
from .attentive import SYNTHETIC_LENGTH, Attentive, Range, Reader
from .encoder import TransformerWeights
from .model import OperationTransformer
from .tokens import ROLES, UNKNOWN, WIDTH, tokens

_LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class Examples:
    """Measured operations as arrays with one row for each operation.

    Args:
        values, families, kinds: The input of the transformer, see `Tokens`.
        log_ratio: Logarithm of device time over least time, shape (operations,).
        weight: Weight of each operation in the loss, shape (operations,); their mean is 1.
        power_w: Board power while the operation ran, shape (operations,); NaN where it is unknown.
        dynamic_w: Power above static power: the dynamic energy by physics over the measured device time, shape
            (operations,).
        static_w, cap_w: Static power and power cap of the GPU, shape (operations,).
        groups: For each GPU and mode, the indices of its operations.
    """

    rows: tuple[DeviceRow, ...]
    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]
    log_ratio: FloatArray
    weight: FloatArray
    power_w: FloatArray
    dynamic_w: FloatArray
    static_w: FloatArray
    cap_w: FloatArray
    groups: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: Sequence[DeviceRow], vocabulary: Sequence[str]) -> Self:
        """Make the arrays from measurements at default clocks."""
        parts: list[dict[str, NDArray[Any]]] = []
        by_gpu = rows_by_gpu(rows)
        for (gpu, _), group in by_gpu.items():
            clock = float(gpu.boost_clock_mhz)
            operations = [row.operation for row in group]
            read = tokens(operations, gpu, clock, vocabulary)
            device_s = np.array([row.device_s for row in group])
            one = np.ones(len(group))
            parts.append(
                {
                    "values": read.values,
                    "families": read.families,
                    "kinds": read.kinds,
                    "log_ratio": np.log(device_s / read.least.time_s),
                    # Otherwise fifty thousand measurements of one GPU would outweigh five hundred of another.
                    "weight": one * len(group) ** -0.5,
                    "power_w": np.array([np.nan if row.power_w is None else row.power_w for row in group]),
                    "dynamic_w": PRIOR_ENERGY.dynamic_energy_j(operations, device_s, gpu, clock) / device_s,
                    "static_w": one * static_power_w(gpu, clock),
                    "cap_w": one * gpu.power_limit_w,
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

    def normalize(self, role: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Subtract the mean from the numbers of one token, and divide them by twice their standard deviation.

        Returns:
            What was subtracted and what was divided by, each of shape (len(ROLES), WIDTH). Numbers that stay as they
            are have 0 and 1 there.
        """
        centre, unit = np.zeros_like(self.values[0]), np.ones_like(self.values[0])
        spread = self.values[:, role].std(axis=0)
        varies = spread > _LEAST_SPREAD
        centre[role] = np.where(varies, self.values[:, role].mean(axis=0), 0.0)
        unit[role] = np.where(varies, 2 * spread, 1.0)
        self.values[:, role] = (self.values[:, role] - centre[role]) / unit[role]
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
    groups: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        operation = row.operation
        groups[row.gpu.name, operation.kind, operation.precision, operation.mode].append(place)
    sizes = np.array([len(places) for places in groups.values()])
    # By bisection: the largest limit on the rows of a group with which all groups together stay within `most`.
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= most else (low, middle - 1)
    draw = np.random.default_rng(seed)
    chosen = [
        place
        for places in groups.values()
        for place in (places if len(places) <= low else draw.permutation(places)[:low].tolist())
    ]
    return [rows[place] for place in sorted(chosen)]


# Standard deviation of the noise on the token that describes the GPU. Only a few GPUs were measured; with the noise,
# predictions change slowly between and beyond them.
_BLUR = 0.1
_MACHINE, _PHYSICS = ROLES.index("machine"), ROLES.index("physics")
# Operations with measured power that are added to each step. Only one in two hundred has it, so random batches would
# contain too few.
_POWERS = 16


class TorchEncoder:
    """A transformer in torch as an `Encoder`."""

    def __init__(
        self,
        model: OperationTransformer,
        recipe: TransformerRecipe,
        curves: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self.model, self.recipe, self.curves = model, recipe, curves or {}

    def to_bytes(self) -> bytes:
        """See `Encoder.to_bytes`."""
        return weights_of(self.model, self.recipe).to_bytes()

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
    ) -> tuple[FloatArray, FloatArray]:
        """See `Encoder`."""
        with torch.no_grad():
            operations, networks = self.model(*map(torch.from_numpy, (values, families, kinds, shares)))
        return operations.double().numpy(), networks.double().numpy()


def weights_of(model: OperationTransformer, recipe: TransformerRecipe) -> TransformerWeights:
    """The weights, as they are stored, of a transformer that was made by a recipe."""
    arrays = {name: weights.detach().numpy() for name, weights in model.state_dict().items()}
    # With one stack no vectors of operations are read on, to which a place could be added.
    positions = recipe.positional_encoding and recipe.stacks == "three"
    return TransformerWeights(arrays, recipe.heads, recipe.distance_weighting, recipe.operation_vector, positions)


def fit_transformer(
    datasets: Sequence[Dataset],
    rows: Sequence[DeviceRow],
    recipe: TransformerRecipe,
    new_model: Callable[[TransformerRecipe, int], OperationTransformer] = OperationTransformer,
) -> Attentive:
    """Fit time and power of operations over the measurements of many GPUs.

    On the same kind of processor, the same recipe and measurements give the same weights to the last bit. Launch times
    are taken from the datasets. `new_model` makes the model, with random weights, from the recipe and the length of its
    vocabulary; one of another form than the default can be compared with it, but not stored. Returns a residual model
    with a `TorchEncoder` and without a head for networks. Raises DatasetError: there are too few device times, or none
    has a measured power.
    """
    if len(rows) < LEAST_ROWS or all(row.power_w is None for row in rows):
        raise DatasetError(
            "there are too few device times to train a transformer",
            given=f"{len(rows)}, of which {sum(row.power_w is not None for row in rows)} have a power",
            allowed=f"at least {LEAST_ROWS}, some of them with a power",
            hint="add datasets that were collected on a GPU with power, or take a recipe of boosted trees",
        )
    rows = thinned(rows, recipe.most_rows, recipe.seed)
    vocabulary = vocabulary_of(rows)
    examples = Examples.of(rows, vocabulary)
    centre, unit = examples.normalize(_PHYSICS)
    with one_thread():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = new_model(recipe, len(vocabulary))
        model.lowest.copy_(torch.from_numpy(examples.values.min(axis=0)))
        model.highest.copy_(torch.from_numpy(examples.values.max(axis=0)))
        curves = _fit(model, examples, recipe)
        model.read_as_they_are(torch.from_numpy(centre), torch.from_numpy(unit))
    ranges = ratio_ranges([row.operation for row in examples.rows], examples.log_ratio)
    reader = Reader(TorchEncoder(model, recipe, curves), vocabulary, ranges)
    return Attentive(reader, PRIOR_ENERGY, launch_times_s(datasets))


def _fit(model: OperationTransformer, examples: Examples, recipe: TransformerRecipe) -> dict[str, list[float]]:
    """Fit the model; return name -> mean loss of each epoch, NaN where an epoch had no step of this name."""
    draw = np.random.default_rng(recipe.seed)
    batch = min(recipe.batch, len(examples.weight))
    per_epoch = len(examples.weight) // batch
    steps = recipe.epochs * per_epoch
    descent = Descent(
        model,
        # Muon trains the matrices; AdamW trains embeddings, biases and heads.
        [*model.matrices()] if recipe.matrix_learning_rate else [],
        learning_rate=recipe.learning_rate,
        matrix_learning_rate=recipe.matrix_learning_rate,
        steps=steps,
        betas=(0.9, 0.99),
    )
    losses = _Losses(model, examples, recipe, draw)
    together = draw.permutation(np.arange(steps) < recipe.together * steps)
    lost = np.empty(steps)
    for number, in_sequences in enumerate(together.tolist()):
        if number % per_epoch == 0:
            order = draw.permutation(len(examples.weight))
        first = number % per_epoch * batch
        loss = losses.together(batch) if in_sequences else losses.alone(order[first : first + batch])
        descent.step(loss)
        lost[number] = loss.item()
    names = {"loss_alone": ~together, "loss_together": together}
    by_epoch = {name: np.where(steps, lost, np.nan).reshape(-1, per_epoch) for name, steps in names.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # The mean of an epoch without a step is NaN on purpose.
        return {name: np.nanmean(losses, axis=1).tolist() for name, losses in by_epoch.items()}


class _Losses:
    """Losses of operations by themselves and in synthetic networks, as mean absolute errors of logarithms."""

    def __init__(
        self, model: OperationTransformer, examples: Examples, recipe: TransformerRecipe, draw: np.random.Generator
    ) -> None:
        self._model, self._examples, self._hidden, self._draw = model, examples, recipe.unknown_kinds, draw
        self._with_power = np.flatnonzero(~np.isnan(examples.power_w))

    def alone(self, places: NDArray[np.int64]) -> Tensor:
        """Loss of operations that are each read by themselves: of their time, and of the power of some others.

        The operations whose power counts are drawn at random.
        """
        powered = self._draw.choice(self._with_power, _POWERS)
        ratios = self._ratios(np.concatenate([places, powered])[:, None])[:, 0]
        examples = self._examples
        error = ratios[: len(places), 0] - _tensor(examples.log_ratio[places])
        of_time: Tensor = (_tensor(examples.weight[places]) * error.abs()).mean()
        power_w = (
            _tensor(examples.static_w[powered]) + _tensor(examples.dynamic_w[powered]) * ratios[len(places) :, 1].exp()
        )
        off = (power_w / _tensor(examples.power_w[powered])).log()
        # At the power cap the GPU lowered its clock, so a prediction above the measured power may be right.
        at_cap = _tensor(examples.power_w[powered] / examples.cap_w[powered]) > AT_CAP
        of_power: Tensor = torch.where(at_cap, off.clamp(max=0.0), off).abs().mean()
        return of_time + of_power

    def together(self, batch: int) -> Tensor:
        """Loss of time over synthetic networks of one GPU and mode.

        The target of each operation stays what was measured by itself: a synthetic network has no effects of its own.
        """
        places = self._examples.synthetic(self._draw, max(1, batch // SYNTHETIC_LENGTH))
        of_time: Tensor = (self._ratios(places)[..., 0] - _tensor(self._examples.log_ratio[places])).abs().mean()
        return of_time

    def _ratios(self, places: NDArray[np.int64]) -> Tensor:
        """Log ratios of sequences of operations, shape (sequences, operations, 2), with noise on the inputs."""
        values = self._examples.values[places]
        values[..., _MACHINE, :] += self._draw.normal(0.0, _BLUR, (*places.shape, WIDTH)).astype(np.float32)
        kinds = np.where(self._draw.random(places.shape) < self._hidden, 0, self._examples.kinds[places])
        families = torch.from_numpy(self._examples.families[places])
        ratios: Tensor = self._model(
            torch.from_numpy(values), families, torch.from_numpy(kinds), torch.ones(places.shape)
        )[0]
        return ratios


def _tensor(values: FloatArray) -> Tensor:
    """Numbers in fp32, in which the model computes."""
    return torch.as_tensor(values, dtype=torch.float32)
