"""Fitting a transformer to operations. Needs torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import DatasetError
from ..any_gpu.ranges import ratio_ranges
from ..measured.device_rows import AT_CAP, LEAST_ROWS, DeviceRow, launch_times_s
from ..physics.energy import PRIOR_ENERGY
from ..recipes import TransformerRecipe
from ..regressors.descent import Descent, one_thread
from .attentive import Attentive, Reader
from .examples import SYNTHETIC_LENGTH, Examples, thinned, vocabulary_of
from .model import OperationTransformer
from .tokens import ROLES, WIDTH
from .weights import TransformerWeights

# Standard deviation of the noise on the token that describes the GPU. Only a few GPUs were measured; with the noise,
# predictions change slowly between and beyond them.
_BLUR = 0.1
_MACHINE, _PHYSICS = ROLES.index("machine"), ROLES.index("physics")
# Operations with measured power that are added to each step. Only one in two hundred has it, so random batches would
# contain too few.
_POWERS = 16


class TorchEncoder:
    """A transformer in torch as an `Encoder`.

    Args:
        model: The transformer with its weights.
        recipe: The recipe by which it was trained.
        curves: Name -> learning curve, see `curves_of`.
    """

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

    On the same kind of processor, the same recipe and measurements give the same weights to the last bit.

    Args:
        datasets: Measurements of several GPUs, from which the launch times are taken.
        rows: Device times of operations.
        recipe: Settings of the transformer and of its training.
        new_model: Makes the model, with random weights, from the recipe and the length of its vocabulary. A model of
            another form than the default can be compared with it, but not stored.

    Returns:
        A residual model with a `TorchEncoder` and without a head for networks.

    Raises:
        DatasetError: There are too few device times, or none has a measured power.
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

        Args:
            places: Indices of the operations whose time counts; those whose power counts are drawn at random.
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

        Args:
            batch: Number of operations in all networks together.
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
