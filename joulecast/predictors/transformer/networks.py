"""Fits the head of a transformer to whole networks, after the transformer was fitted to operations.

Many operations but few networks were measured. So the stacks stay unchanged, and only the head over the sum of the
vectors is fitted, by ridge regression. Synthetic networks are added, which take exactly the sum of their measured
operations. They keep the head from overfitting the few real ones, and teach it the bias of predictions for operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

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
from ..networks.composition import HostModel, composed, counts_of
from ..networks.parts import as_parts
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from ..physics.power_cap import Jobs
from ..recipes import TransformerRecipe
from .attentive import SYNTHETIC_LENGTH, Attentive, Example, NetworkHead

_SYNTHETIC = 600  # Number of synthetic networks.
_SYNTHETIC_WEIGHT = 0.5  # Weight of all synthetic networks together; all measured ones together have a weight of 1.
_LEAST_DYNAMIC = 0.05  # Least share of dynamic power in measured power, because static power is not known better.
_Parts = tuple[FloatArray, OperationPredictions]
_MEAN_COUNT = 3.0  # Mean number of calls of an operation in a synthetic network.


def read_networks(
    base: Attentive, rows: Sequence[DeviceRow], recipe: TransformerRecipe
) -> Callable[[Networks], Attentive]:
    """Prepare to fit heads to several sets of networks; what these fits have in common is computed once.

    Returns:
        A function from measured networks to `base` with a head that is fitted to them.
    """
    synthetic = [*_synthetic(base, rows, np.random.default_rng(recipe.seed))]
    known: dict[tuple[GPU, int], tuple[Network, _Parts]] = {}  # By identity: shapes of some inputs cannot be hashed.

    def parts(gpu: GPU, m: NetworkMeasurement, network: Network) -> _Parts:
        if (gpu, id(network)) not in known:
            known[gpu, id(network)] = network, _parts(base, gpu, m, network)
        return known[gpu, id(network)][1]

    def learn(networks: Networks) -> Attentive:
        hosts = {
            mode: HostModel.fit([(*parts(*each), each[1].time_s) for each in networks if each[1].mode == mode], mode)
            for mode in MODES
        }
        # Otherwise a campaign with hundreds of networks would outweigh one with tens.
        sizes = Counter((gpu, m.mode, m.precision) for gpu, m, _ in networks)
        measured = [
            _measured(base, gpu, m, *parts(gpu, m, network), hosts[m.mode], 1 / sizes[gpu, m.mode, m.precision])
            for gpu, m, network in networks
        ]
        all_s = sum(example.weight for example in measured)
        scaled = [example._replace(weight=example.weight / all_s) for example in measured]
        return replace(base, head=NetworkHead.fit([*scaled, *synthetic], recipe.shrinkage))

    return learn


def _parts(base: Attentive, gpu: GPU, m: NetworkMeasurement, network: Network) -> _Parts:
    predictor = SharedByAll(base).on(gpu, m.mode)
    return counts_of(network), as_parts(network, predictor.predict(network.operations, m.clock_mhz), gpu)


def _measured(
    base: Attentive,
    gpu: GPU,
    m: NetworkMeasurement,
    counts: FloatArray,
    predictions: OperationPredictions,
    host: HostModel,
    weight: float,
) -> Example:
    """A measured network as an example: its time and energy over those predicted from its operations."""
    cap_w, clock = float(gpu.power_limit_w), gpu.checked_clock_mhz(m.clock_mhz)
    if predictions.work is None:
        raise ValueError("a network of which nothing is covered")
    host_s, static = host.total_s(counts, predictions), predictions.static_power_w / static_power_w(gpu, clock)
    jobs, asked = Jobs.of([predictions.work], [counts], [(host_s, static, cap_w)]), np.array([[clock]])
    shared, _, time_s, energy_j, device_s = composed(jobs, asked, np.zeros((1, 1)))
    static_w = float(jobs.static_w(shared)[0, 0])
    predicted_w = float(energy_j[0, 0] / time_s[0, 0]) - static_w
    measured_w = max(m.known_power_w - static_w, _LEAST_DYNAMIC * m.known_power_w)
    log_time = float(np.log(m.time_s / time_s[0, 0]))
    # Device and host are joined by a 4-norm (physics/norms.py), whose derivative d(log time) / d(log device time) is:
    device = float(device_s[0, 0] ** 4 / (device_s[0, 0] ** 4 + host_s**4))
    vector = base.vector(predictions.operations, counts, gpu)
    return Example(vector, log_time, log_time + float(np.log(measured_w / predicted_w)), device, weight)


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
