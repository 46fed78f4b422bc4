"""Fitting a transformer: operations alone, and networks as sequences, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..datasets import Dataset
from ..errors import DatasetError
from .attentive import Attentive, Range
from .baseline import smooth_max
from .boosting import LEAST_ROWS, DeviceRow, device_rows, launch_times_s
from .features import FloatArray
from .tokens import IN_NETWORK, ROLES, in_network
from .transformer import OperationTransformer
from .transformer_examples import (
    ENERGY,
    NetworkExample,
    Networks,
    OperationExamples,
    Operations,
    network_example,
    thinned,
    vocabulary_of,
)
from .transformer_recipe import TransformerRecipe

_WARM_UP = 0.1  # Share of the steps until the learning rate is at its highest.
_MOST_GRADIENT = 1.0
_DECAY = 1e-4
_RANGE = (0.005, 0.995)  # Quantiles of the ratios of a kind; predictions stay within.
_POWERS = 16  # Operations with power that join each step: they are one in two hundred.
_AT_CAP = 0.97  # Of the cap, from where a power reading says "at least".
_MADE_UP, _MADE_UP_LENGTH = 8, 12  # Networks put together for a step, and operations in each.
_MEAN_COUNT = 3.0  # How often an operation runs in them.
_NETWORK_WEIGHT, _SHRINK = 0.3, 1.0  # Of a network's errors beside an operation's, and of its squared corrections.


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
    vocabulary = vocabulary_of(rows, networks)
    examples = OperationExamples.of(rows, vocabulary, ENERGY)
    measured = [network_example(*network, vocabulary, ENERGY, launch_s) for network in networks]
    # With more threads, sums differ in the last bits between runs.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = OperationTransformer(recipe, len(vocabulary))
        model.varied.copy_(torch.from_numpy(_varied(examples.operations)))
        _train(model, examples, measured, recipe)
    finally:
        torch.set_num_threads(threads)
    learned = Attentive(torch_encoder(model), vocabulary, _ranges(examples), ENERGY, launch_s, bool(measured))
    return FittedTransformer(model, learned)


def _varied(operations: Operations) -> NDArray[np.float32]:
    varied: NDArray[np.bool_] = np.ptp(operations.values, axis=0) > 0
    varied[ROLES.index("kind"), -IN_NETWORK:] = True
    mask: NDArray[np.float32] = varied.astype(np.float32)
    return mask


def torch_encoder(model: OperationTransformer) -> Callable[..., tuple[FloatArray, FloatArray]]:
    """A model in torch as an encoder."""

    def encode(*arrays: NDArray[np.float32]) -> tuple[FloatArray, FloatArray]:
        with torch.no_grad():
            of_operations, of_networks = model(*map(torch.from_numpy, arrays))
        return of_operations.double().numpy(), of_networks.double().numpy()

    return encode


def _ranges(examples: OperationExamples) -> dict[str, Range]:
    ranges = {}
    for names in ([row.operation.row.family for row in examples.rows], [row.operation.kind for row in examples.rows]):
        array = np.array(names)
        for name in sorted(set(names)):
            low, high = np.quantile(examples.log_ratio[array == name], _RANGE)
            ranges[name] = (float(low), float(high))
    return ranges


def _train(
    model: OperationTransformer,
    examples: OperationExamples,
    measured: Sequence[NetworkExample],
    recipe: TransformerRecipe,
) -> None:
    draw = np.random.default_rng(recipe.seed)
    batch = min(recipe.batch, len(examples.rows))
    per_epoch = len(examples.rows) // batch
    network_steps = recipe.network_steps if measured else 0
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=_DECAY, betas=(0.9, 0.99), foreach=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.epochs * per_epoch + 1, pct_start=_WARM_UP
    )

    def step(loss: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), _MOST_GRADIENT)
        optimizer.step()

    operations = _OperationSteps(model, examples, recipe, draw)
    networks = _network_losses(model, examples, measured, draw)
    # Networks come in turns with operations, spread evenly.
    turns = np.linspace(0, per_epoch, network_steps + 1)[1:] if network_steps else np.empty(0)
    for _ in range(recipe.epochs):
        order = draw.permutation(len(examples.rows))
        for number in range(per_epoch):
            step(operations.loss(order[number * batch : (number + 1) * batch]))
            schedule.step()
            for _ in range(int(((turns > number) & (turns <= number + 1)).sum())):
                step(next(networks))


class _OperationSteps:
    """Losses of operations that are read alone."""

    def __init__(
        self,
        model: OperationTransformer,
        examples: OperationExamples,
        recipe: TransformerRecipe,
        draw: np.random.Generator,
    ) -> None:
        self._model, self._examples, self._hidden, self._draw = model, examples, recipe.unknown_kinds, draw
        self._with_power = np.flatnonzero(~np.isnan(examples.power_w))

    def loss(self, places: NDArray[np.int64]) -> Tensor:
        """Of time, over these operations; and of power, over some that were drawn."""
        powered = self._draw.choice(self._with_power, _POWERS)
        both = np.concatenate([places, powered])
        operations, examples = self._examples.operations, self._examples
        kinds = np.where(self._draw.random(len(both)) < self._hidden, 0, operations.kinds[both])
        ratios, _ = self._model(
            torch.from_numpy(operations.values[both][:, None]),
            torch.from_numpy(operations.families[both][:, None]),
            torch.from_numpy(kinds[:, None]),
            torch.ones(len(both), 1),
        )
        error = ratios[: len(places), 0, 0] - _tensor(examples.log_ratio[places])
        time_loss: Tensor = (_tensor(examples.weight[places]) * error.abs()).mean()
        device_s = operations.least_s[powered] * np.exp(examples.log_ratio[powered])
        dynamic_w = operations[powered].dynamic_j(device_s) / device_s
        power_loss = _power_loss(
            _tensor(examples.static_w[powered]) + _tensor(dynamic_w) * ratios[len(places) :, 0, 1].exp(),
            _tensor(examples.power_w[powered]),
            _tensor(examples.cap_w[powered]),
        )
        return time_loss + power_loss


def _power_loss(predicted_w: Tensor, measured_w: Tensor, cap_w: Tensor) -> Tensor:
    """A reading at the cap says only that the work would draw that much or more."""
    error = (predicted_w / measured_w).log()
    at_cap = measured_w > _AT_CAP * cap_w
    loss: Tensor = torch.where(at_cap, error.clamp(max=0.0), error).abs().mean()
    return loss


def _tensor(values: FloatArray | float) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32)


def _network_losses(
    model: OperationTransformer,
    examples: OperationExamples,
    measured: Sequence[NetworkExample],
    draw: np.random.Generator,
) -> Iterator[Tensor]:
    """Losses of measured networks, each in its turn, and of networks that are put together, by turns."""
    while True:
        for place in draw.permutation(len(measured)):
            yield _NETWORK_WEIGHT * _measured_loss(model, measured[place])
            yield _NETWORK_WEIGHT * _made_up_loss(model, examples, draw)


def _measured_loss(model: OperationTransformer, network: NetworkExample) -> Tensor:
    device_s, energy_factor = _alone(model, network.operations)
    dynamic_j = network.operations.dynamic_j(device_s) * energy_factor
    time, energy = _read_together(model, network.operations, network.counts, device_s, network.host_s)[0]
    alone_s = smooth_max(float(network.counts @ device_s), float(network.counts @ network.host_s))
    time_s = alone_s * time.exp()
    power_w = network.static_w + float(network.counts @ dynamic_j) * energy.exp() / time_s
    power_loss = _power_loss(power_w, _tensor(network.power_w), _tensor(network.cap_w))
    loss: Tensor = (time_s / network.time_s).log().abs() + power_loss + _SHRINK * (time**2 + energy**2)
    return loss


def _made_up_loss(model: OperationTransformer, examples: OperationExamples, draw: np.random.Generator) -> Tensor:
    """Sums of measured operations of one GPU and mode; nothing in them waits for the host."""
    sizes = np.sqrt([len(group) for group in examples.groups])
    group = examples.groups[draw.choice(len(sizes), p=sizes / sizes.sum())]
    places = draw.choice(group, (_MADE_UP, _MADE_UP_LENGTH))
    counts = draw.geometric(1 / _MEAN_COUNT, places.shape).astype(float)
    operations = examples.operations[places]
    device_s, _ = _alone(model, examples.operations[places.ravel()])
    device_s = device_s.reshape(places.shape)
    measured_s = operations.least_s * np.exp(examples.log_ratio[places])
    ratios = _read_together(model, operations, counts, device_s, np.zeros(places.shape))
    target = _tensor(np.log((counts * measured_s).sum(1) / (counts * device_s).sum(1)))
    loss: Tensor = (ratios[:, 0] - target).abs().mean()
    return loss


def _alone(model: OperationTransformer, operations: Operations) -> tuple[FloatArray, FloatArray]:
    """Device seconds, and dynamic energy over what physics says, of operations that are read alone."""
    values, families, kinds = operations.values[:, None], operations.families[:, None], operations.kinds[:, None]
    ratios, _ = torch_encoder(model)(values, families, kinds, np.ones(kinds.shape, dtype=np.float32))
    return operations.least_s * np.exp(ratios[:, 0, 0]), np.exp(ratios[:, 0, 1])


def _read_together(
    model: OperationTransformer, operations: Operations, counts: FloatArray, device_s: FloatArray, host_s: FloatArray
) -> Tensor:
    """Corrections of networks, shape (sequences, 2)."""
    if counts.ndim == 1:
        operations, counts, device_s, host_s = operations[None], counts[None], device_s[None], host_s[None]
    device = counts * device_s
    _, ratios = model(
        torch.from_numpy(in_network(operations.values, counts, device_s, host_s)),
        torch.from_numpy(operations.families),
        torch.from_numpy(operations.kinds),
        _tensor(device / device.sum(-1, keepdims=True)),
    )
    corrections: Tensor = ratios
    return corrections
