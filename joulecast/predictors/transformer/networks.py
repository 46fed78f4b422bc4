"""Fits the head of a transformer to whole networks, after the transformer was fitted to operations.

Many operations but few networks were measured. So the stacks stay unchanged, and only the head over the sum of the
vectors is fitted, by ridge regression. Synthetic networks are added, which take exactly the sum of their measured
operations. They keep the head from overfitting the few real ones, and teach it the bias of predictions for operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement
from ...hardware import GPU
from ...operations.network import Network
from ...operations.operation import MODES
from ...operations.operation_list import OperationList
from ..contract import Networks, launch_s
from ..measured.rows import DeviceRow, rows_by_gpu
from ..model.shared import SharedByAll
from ..networks.composition import HostModel, counts_of
from ..networks.parts import as_parts
from ..networks.prepared import NetworkPredictor, over_clocks
from ..recipes import TransformerRecipe
from .attentive import Attentive, NetworkHead

SYNTHETIC_LENGTH = 12
"""Number of operations in a synthetic network, which is put together from measured operations."""

_SYNTHETIC = 600  # Number of synthetic networks.
_SYNTHETIC_WEIGHT = 0.5  # Weight of all synthetic networks together; all measured ones together have a weight of 1.
_MEAN_COUNT = 3.0  # Mean number of calls of an operation in a synthetic network.
_LEAST_DYNAMIC = 0.05  # Least share of dynamic power in measured power, because static power is not known better.
_LEAST_SPREAD = 1e-3


class Example(NamedTuple):
    """A network to learn from.

    Args:
        vector: The vector that a transformer makes of the network, shape (numbers,).
        log_time, log_energy: Logarithms of measured time and energy over the values predicted from its operations.
        device: How much its time depends on the device: 1 where only the device counts, 0 where only the host does.
    """

    vector: FloatArray
    log_time: float
    log_energy: float
    device: float
    weight: float


def read_networks(
    base: Attentive, rows: Sequence[DeviceRow], recipe: TransformerRecipe
) -> Callable[[Networks], Attentive]:
    """Prepare to fit heads to several sets of networks.

    Returns:
        A function from measured networks to `base` with a head that is fitted to them.
    """
    synthetic = [*_synthetic(base, rows, np.random.default_rng(recipe.seed))]

    def learn(networks: Networks) -> Attentive:
        hosts = {mode: _host(base, networks, mode) for mode in MODES}
        # Otherwise a campaign with hundreds of networks would outweigh one with tens.
        sizes = Counter((gpu, m.mode, m.precision) for gpu, m, _ in networks)
        share = 1 / len(sizes)
        measured = [
            _measured(base, hosts[m.mode], gpu, m, network, share / sizes[gpu, m.mode, m.precision])
            for gpu, m, network in networks
        ]
        return replace(base, head=fit_head([*measured, *synthetic], recipe.shrinkage))

    return learn


def fit_head(examples: Sequence[Example], shrinkage: float) -> NetworkHead:
    """Fit a head by ridge regression, with the numbers of the vectors in units of their standard deviation.

    The shrinkage is the penalty on the squared weights; the weights of the examples sum up to one.
    """
    vectors, log_time, log_energy, device, weight = (np.array(column) for column in zip(*examples, strict=True))
    weight = weight / weight.sum()
    centre = weight @ vectors
    spread = np.sqrt(weight @ (vectors - centre) ** 2) + _LEAST_SPREAD
    inputs = np.column_stack([(vectors - centre) / spread, np.ones(len(vectors))])
    found = []
    for follows, target in ((inputs * device[:, None], log_time), (inputs, log_energy)):
        weighted = follows * weight[:, None]
        moments = follows.T @ weighted + shrinkage * np.eye(inputs.shape[1])
        found.append(np.linalg.solve(moments, weighted.T @ target))
    logs, weights = np.array(found) @ inputs.T, np.array(found)[:, :-1] / spread
    return NetworkHead(weights, np.array(found)[:, -1] - weights @ centre, logs.min(1), logs.max(1))


def _host(base: Attentive, networks: Networks, mode: str) -> HostModel:
    """What a call costs the host inside a network in a mode."""
    examples = []
    for gpu, m, network in networks:
        if m.mode == mode:
            found = SharedByAll(base).on(gpu, mode).predict(network.operations, m.clock_mhz)
            examples.append((counts_of(network), as_parts(network, found, gpu), m.time_s))
    return HostModel.fit(examples, mode)


def _measured(
    base: Attentive, host: HostModel, gpu: GPU, m: NetworkMeasurement, network: Network, weight: float
) -> Example:
    """A measured network as an example: its time and energy over those predicted from its operations."""
    predictor = NetworkPredictor("", SharedByAll(base).on(gpu, m.mode), host)
    found = over_clocks(predictor.prepared(network), [gpu.checked_clock_mhz(m.clock_mhz)])
    (time_s,), (energy_j,), (device_s,) = found.time_s, found.energy_j, found.device_time_s
    static_w = found.operations_at(0).static_power_w
    measured_w = max(m.known_power_w - static_w, _LEAST_DYNAMIC * m.known_power_w)
    log_time = float(np.log(m.time_s / time_s))
    log_energy = log_time + float(np.log(measured_w / (energy_j / time_s - static_w)))
    # Device and host are joined by a 4-norm (physics/norms.py), whose derivative d(log time) / d(log device time) is:
    device = float(device_s**4 / (device_s**4 + found.host_time_s**4))
    return Example(base.vector(network.operations, counts_of(network), gpu), log_time, log_energy, device, weight)


def _synthetic(base: Attentive, rows: Sequence[DeviceRow], draw: np.random.Generator) -> Iterator[Example]:
    """Networks put together from measured operations of one GPU and mode, with the sums of their times as targets."""
    groups = rows_by_gpu(rows)
    # The square root keeps a GPU with many measurements from outweighing others, as in the fit to operations.
    share = np.sqrt([len(group) for group in groups.values()])
    for ((gpu, mode), group), networks in zip(groups.items(), np.ceil(_SYNTHETIC * share / share.sum()), strict=True):
        shape = (int(networks), SYNTHETIC_LENGTH)
        some = [group[place] for place in draw.choice(len(group), shape).ravel().tolist()]
        counts = draw.geometric(1 / _MEAN_COUNT, shape).astype(float)
        operations = OperationList(row.operation for row in some)
        device_s = base.reader.device_s(operations, gpu).reshape(shape)
        measured_s = np.array([row.device_s for row in some]).reshape(shape)
        launches_s = launch_s(operations, mode, base.host_s).reshape(shape)
        vectors = base.reader.vectors(operations, counts, device_s, launches_s, gpu)
        log_time = np.log((counts * measured_s).sum(1) / (counts * device_s).sum(1))
        for vector, log in zip(vectors, log_time.tolist(), strict=True):
            # The energy was not measured, so the target is a factor of 1.
            yield Example(vector, log, 0.0, 1.0, _SYNTHETIC_WEIGHT / _SYNTHETIC)
