"""Fitting a transformer: first operations, each alone, then networks as sequences of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..datasets import Dataset
from ..errors import DatasetError
from .attentive import Attentive, Range
from .boosting import LEAST_ROWS, device_rows, launch_times_s
from .contract import Networks
from .device_row import DeviceRow
from .physics import PRIOR_ENERGY
from .tokens import ROLES, WIDTH
from .transformer import OperationTransformer
from .transformer_examples import (
    OperationExamples,
    network_example,
    thinned,
    vocabulary_of,
)
from .transformer_losses import MADE_UP_LENGTH, made_up, power_loss, tensor, torch_encoder
from .transformer_networks import fit_networks
from .transformer_recipe import TransformerRecipe

_WARM_UP = 0.1  # Share of the steps until the learning rate is at its highest.
_MOST_GRADIENT = 1.0
_DECAY = 1e-4
_RANGE = (0.005, 0.995)  # Quantiles of the ratios of a kind; predictions stay within.
# Noise on what a GPU is, which is a handful of points: between them and beyond, predictions change slowly.
_BLUR = 0.1
_MACHINE = ROLES.index("machine")
_POWERS = 16  # Operations with power that join each step: they are one in two hundred.


@dataclass(frozen=True)
class FittedTransformer:
    """A transformer with its weights, and what belongs to it."""

    model: OperationTransformer
    learned: Attentive


def fit_transformer(
    datasets: Sequence[Dataset],
    networks: Networks,
    recipe: TransformerRecipe,
    rows: Sequence[DeviceRow] | None = None,
) -> FittedTransformer:
    """Fit time and energy of operations and networks over the measurements of many GPUs.

    The same recipe and measurements give the same weights, to the last bit, on one kind of processor.

    Args:
        datasets: Of any GPUs; what each says of device times, and of launching, is used.
        networks: Measured networks with power.
        recipe: Settings.
        rows: Device times to learn from instead of all that the datasets hold.

    Raises:
        DatasetError: Too few device times, or none with power.
    """
    if rows is None:
        rows = [row for dataset in datasets for row in device_rows(dataset)]
    if len(rows) < LEAST_ROWS or all(row.power_w is None for row in rows):
        raise DatasetError(
            "too few device times", given=len(rows), allowed=f"from {LEAST_ROWS}, some of them with power"
        )
    rows = thinned(rows, recipe.most_rows, recipe.seed)
    launch_s = launch_times_s(datasets)
    vocabulary = vocabulary_of(rows)
    examples = OperationExamples.of(rows, vocabulary, PRIOR_ENERGY)
    measured = [network_example(*network, vocabulary, PRIOR_ENERGY, launch_s) for network in networks]
    # With more threads, sums differ in the last bits between runs.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = OperationTransformer(recipe, len(vocabulary))
        model.lowest.copy_(torch.from_numpy(examples.operations.values.min(axis=0)))
        model.highest.copy_(torch.from_numpy(examples.operations.values.max(axis=0)))
        _fit_operations(model, examples, recipe)
        if measured:
            fit_networks(model, examples, measured, recipe)
    finally:
        torch.set_num_threads(threads)
    learned = Attentive(torch_encoder(model), vocabulary, _ranges(examples), PRIOR_ENERGY, launch_s, bool(measured))
    return FittedTransformer(model, learned)


def _ranges(examples: OperationExamples) -> dict[str, Range]:
    ranges = {}
    for names in ([row.operation.row.family for row in examples.rows], [row.operation.kind for row in examples.rows]):
        array = np.array(names)
        for name in sorted(set(names)):
            low, high = np.quantile(examples.log_ratio[array == name], _RANGE)
            ranges[name] = (float(low), float(high))
    return ranges


def _fit_operations(model: OperationTransformer, examples: OperationExamples, recipe: TransformerRecipe) -> None:
    draw = np.random.default_rng(recipe.seed)
    batch = min(recipe.batch, len(examples.rows))
    per_epoch = len(examples.rows) // batch
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=_DECAY, betas=(0.9, 0.99), foreach=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.epochs * per_epoch + 1, pct_start=_WARM_UP
    )

    losses = _Losses(model, examples, recipe, draw)
    together = draw.permutation(np.arange(recipe.epochs * per_epoch) < recipe.together * recipe.epochs * per_epoch)
    for number, in_sequences in enumerate(together.tolist()):
        if number % per_epoch == 0:
            order = draw.permutation(len(examples.rows))
        first = number % per_epoch * batch
        loss = losses.together(batch) if in_sequences else losses.alone(order[first : first + batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), _MOST_GRADIENT)
        optimizer.step()
        schedule.step()


class _Losses:
    """Losses of operations."""

    def __init__(
        self,
        model: OperationTransformer,
        examples: OperationExamples,
        recipe: TransformerRecipe,
        draw: np.random.Generator,
    ) -> None:
        self._model, self._examples, self._hidden, self._draw = model, examples, recipe.unknown_kinds, draw
        self._with_power = np.flatnonzero(~np.isnan(examples.power_w))

    def alone(self, places: NDArray[np.int64]) -> Tensor:
        """Of time, of operations that are read alone; and of power, of some that are drawn."""
        powered = self._draw.choice(self._with_power, _POWERS)
        ratios = self._ratios(np.concatenate([places, powered])[:, None])[:, 0]
        examples = self._examples
        error = ratios[: len(places), 0] - tensor(examples.log_ratio[places])
        of_time: Tensor = (tensor(examples.weight[places]) * error.abs()).mean()
        device_s = examples.operations.least_s[powered] * np.exp(examples.log_ratio[powered])
        dynamic_w = examples.operations[powered].dynamic_j(device_s) / device_s
        of_power = power_loss(
            tensor(examples.static_w[powered]) + tensor(dynamic_w) * ratios[len(places) :, 1].exp(),
            tensor(examples.power_w[powered]),
            tensor(examples.cap_w[powered]),
        )
        return of_time + of_power

    def together(self, batch: int) -> Tensor:
        """Of time, of operations that are read as made-up networks of one GPU and mode: what each takes stays."""
        places = made_up(self._examples, self._draw, max(1, batch // MADE_UP_LENGTH))
        error = self._ratios(places)[..., 0] - tensor(self._examples.log_ratio[places])
        of_time: Tensor = error.abs().mean()
        return of_time

    def _ratios(self, places: NDArray[np.int64]) -> Tensor:
        """Log ratios of sequences of operations."""
        operations = self._examples.operations
        values = operations.values[places]
        machine = values[..., _MACHINE, :]
        blur = self._draw.normal(0.0, _BLUR, (*places.shape, WIDTH)).astype(np.float32)
        values[..., _MACHINE, :] = machine + blur
        kinds = np.where(self._draw.random(places.shape) < self._hidden, 0, operations.kinds[places])
        ratios: Tensor = self._model(
            torch.from_numpy(values),
            torch.from_numpy(operations.families[places]),
            torch.from_numpy(kinds),
            torch.ones(places.shape),
        )[0]
        return ratios
