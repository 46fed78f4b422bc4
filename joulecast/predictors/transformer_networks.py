"""Fitting what a transformer knows of networks beyond their operations: what a sum cannot tell.

Few networks were measured and many operations, so this comes second and moves little: the stacks, which were fitted to
operations, stay as they are, and only the head over the sum of the vectors is fitted. Networks that are put together
from measured operations take the sum of these; they keep the head from reading into a network what it does not show,
and teach it the bias of the parts there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .baseline import smooth_max
from .features import FloatArray
from .tokens import in_network
from .transformer import OperationTransformer
from .transformer_examples import NetworkExample, OperationExamples, Operations
from .transformer_losses import alone, made_up, power_loss, tensor
from .transformer_recipe import TransformerRecipe

_STEPS, _LEARNING_RATE = 400, 0.01
_MADE_UP, _AT_ONCE = 1600, 8  # Networks to put together, and how many of one GPU.
_MADE_UP_WEIGHT = 0.5
_MEAN_COUNT = 3.0  # How often an operation runs in them.
_LEAST_SPREAD = 1e-3


def fit_networks(
    model: OperationTransformer,
    examples: OperationExamples,
    measured: Sequence[NetworkExample],
    recipe: TransformerRecipe,
) -> None:
    """Fit the corrections of a model that knows operations.

    Args:
        model: Its head for networks is changed in place.
        examples: Operations to put networks together from.
        measured: At least one.
        recipe: Settings; `shrinkage` is the one that counts.
    """
    draw = np.random.default_rng(recipe.seed)
    ours = _MeasuredNetworks(model, measured)
    theirs, sums = _made_up(model, examples, draw)
    both = torch.cat([ours.vectors, theirs])
    centre, spread = both.mean(0), both.std(0) + _LEAST_SPREAD
    weights = torch.zeros(2, both.shape[1], requires_grad=True)
    bias = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, _STEPS)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        of_ours = ours.loss((ours.vectors - centre) / spread @ weights.T + bias)
        of_theirs = (((theirs - centre) / spread @ weights.T + bias)[:, 0] - sums).abs().mean()
        loss: Tensor = of_ours + _MADE_UP_WEIGHT * of_theirs + recipe.shrinkage * (weights**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        model.network_head.weight.copy_(weights / spread)
        model.network_head.bias.copy_(bias - weights / spread @ centre)
        corrections = model.network_head(both)
        model.least_correction.copy_(corrections.amin(0))
        model.most_correction.copy_(corrections.amax(0))


class _MeasuredNetworks:
    """Measured networks, and what their parts say of them."""

    def __init__(self, model: OperationTransformer, networks: Sequence[NetworkExample]) -> None:
        vectors, dynamic_j, alone_s = [], [], []
        for network in networks:
            counts, host_s = network.counts, network.host_s
            device_s, energy_factor = alone(model, network.operations)
            vectors.append(_vectors(model, network.operations[None], counts[None], device_s[None], host_s[None]))
            dynamic_j.append(float(counts @ (network.operations.dynamic_j(device_s) * energy_factor)))
            alone_s.append(float(smooth_max(counts @ device_s, counts @ host_s)))
        self.vectors = torch.cat(vectors)
        self._dynamic_j, self._alone_s = tensor(np.array(dynamic_j)), tensor(np.array(alone_s))
        self._measured_s = tensor(np.array([network.time_s for network in networks]))
        self._measured_w = tensor(np.array([network.power_w for network in networks]))
        self._static_w = tensor(np.array([network.static_w for network in networks]))
        self._cap_w = tensor(np.array([network.cap_w for network in networks]))

    def loss(self, corrections: Tensor) -> Tensor:
        """Of time and power; corrections are log ratios of time and dynamic energy."""
        time_s = self._alone_s * corrections[:, 0].exp()
        power_w = self._static_w + self._dynamic_j * corrections[:, 1].exp() / time_s
        of_time: Tensor = (time_s / self._measured_s).log().abs().mean()
        return of_time + power_loss(power_w, self._measured_w, self._cap_w)


def _made_up(
    model: OperationTransformer, examples: OperationExamples, draw: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Vectors of networks that are put together, and log ratios of what they take to what is predicted for their parts.

    Nothing in them waits for the host.
    """
    vectors, sums = [], []
    for _ in range(_MADE_UP // _AT_ONCE):
        places = made_up(examples, draw, _AT_ONCE)
        counts = draw.geometric(1 / _MEAN_COUNT, places.shape).astype(float)
        operations = examples.operations[places]
        device_s = alone(model, examples.operations[places.ravel()])[0].reshape(places.shape)
        measured_s = operations.least_s * np.exp(examples.log_ratio[places])
        vectors.append(_vectors(model, operations, counts, device_s, np.zeros(places.shape)))
        sums.append(np.log((counts * measured_s).sum(1) / (counts * device_s).sum(1)))
    return torch.cat(vectors), tensor(np.concatenate(sums))


def _vectors(
    model: OperationTransformer, operations: Operations, counts: FloatArray, device_s: FloatArray, host_s: FloatArray
) -> Tensor:
    """What the head sees of networks, shape (sequences, numbers); arrays have shape (sequences, operations)."""
    device = counts * device_s
    with torch.no_grad():
        return model.read_network(
            torch.from_numpy(in_network(operations.values, counts, device_s, host_s)),
            torch.from_numpy(operations.families),
            torch.from_numpy(operations.kinds),
            tensor(device / device.sum(-1, keepdims=True)),
        )
