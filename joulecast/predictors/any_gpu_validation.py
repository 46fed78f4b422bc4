"""How good a predictor for any GPU is: on operations and on GPUs that it has not seen, and on networks.

Splits are honest: an operation lies in one fold on all GPUs, in both modes and all precisions, and a GPU that is left
out takes along every GPU with the same chip. Networks are never learned from but for the energies and the host
cost, and for those each network's name is left out in turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..datasets import Dataset, NetworkMeasurement
from ..hardware import GPU
from ..networks import Network
from .any_gpu import AnyGpuPredictor, Learned
from .boosting import DeviceRow, Networks, device_rows, fit_any_gpu, fit_energies
from .composition import HostModel, compose, plain_sum
from .features import FloatArray
from .physics import LeastTimes
from .predictor import OperationPredictions
from .recipe import BoostingRecipe
from .relative import relative_features
from .validation import counts_of

SPLITS = (
    "Operations: k-fold over unique operations; one lies in one fold on all GPUs, in both modes and all precisions; "
    "and each GPU left out together with those of the same chip. Networks: predicted by trees that have seen no "
    "measurement of a GPU with their chip, with energies and host cost learned without any network of their name."
)


@dataclass(frozen=True)
class KindErrors:
    """Absolute relative errors of the device times of one kind on one GPU."""

    gpu: str
    kind: str
    mode: str
    operations: int
    median: float
    mean: float
    p90: float


@dataclass(frozen=True)
class NetworkErrors:
    """One measured network, predicted by trees that had not seen its GPU; relative errors."""

    gpu: str
    measurement: NetworkMeasurement
    time: float
    energy: float
    power: float
    sum_time: float

    @property
    def label(self) -> str:
        """What was measured, in a few words."""
        m = self.measurement
        shape = "x".join(map(str, m.input_shape))
        clock = "" if m.clock_mhz is None else f" at {m.clock_mhz:.0f} MHz"
        return f"{self.gpu}: {m.network} {shape} {m.precision} {m.mode}{clock}"


@dataclass(frozen=True)
class AnyGpuValidation:
    """All that is known about how good a recipe is.

    Args:
        folds: Operations that the trees had not seen on any GPU; empty where that was not asked for.
        left_out: Operations on GPUs that the trees had not seen.
        networks: See NetworkErrors.
    """

    folds: tuple[KindErrors, ...]
    left_out: tuple[KindErrors, ...]
    networks: tuple[NetworkErrors, ...]

    def log_errors(self, mode: str) -> dict[str, tuple[float, ...]]:
        """Sorted absolute log errors on networks by quantity, for intervals."""
        mine = [e for e in self.networks if e.measurement.mode == mode]
        quantities: Mapping[str, Callable[[NetworkErrors], float]] = {
            "time": lambda e: 1 + e.time,
            "energy": lambda e: 1 + e.energy,
            "power": lambda e: 1 + e.power,
            "edp": lambda e: (1 + e.time) * (1 + e.energy),
        }
        return {
            name: tuple(sorted(abs(float(np.log(ratio(e)))) for e in mine))
            for name, ratio in quantities.items()
            if mine
        }


def _log_ratio(learned: Learned, rows: Sequence[DeviceRow]) -> FloatArray:
    """Log of predicted over measured device time, at default clocks."""
    found = np.empty(len(rows))
    groups: dict[tuple[GPU, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.gpu, row.operation.mode].append(i)
    for (gpu, _), places in groups.items():
        operations = [rows[i].operation for i in places]
        least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
        predicted = least.time_s * learned.ratio(operations, relative_features(operations, gpu))
        found[places] = np.log(predicted / np.array([rows[i].device_s for i in places]))
    return found


def _by_kind(rows: Sequence[DeviceRow], log_ratio: FloatArray) -> Iterator[KindErrors]:
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row, value in zip(rows, log_ratio.tolist(), strict=True):
        groups[row.gpu.name, row.operation.kind, row.operation.mode].append(abs(np.expm1(value)))
    for (gpu, kind, mode), errors in sorted(groups.items()):
        median, mean, p90 = float(np.median(errors)), float(np.mean(errors)), float(np.quantile(errors, 0.9))
        yield KindErrors(gpu, kind, mode, len(errors), median, mean, p90)


def cross_validate(rows: Sequence[DeviceRow], recipe: BoostingRecipe) -> tuple[KindErrors, ...]:
    """Predict every operation by trees that have not seen it: on no GPU, in no mode and in no precision."""
    alike = {row.operation: row.operation.replace(mode="inference", precision="fp32") for row in rows}
    unique = sorted(set(alike.values()), key=lambda operation: operation.digest)
    order = np.random.default_rng(recipe.seed).permutation(len(unique))
    fold_of = {unique[i]: place % recipe.folds for place, i in enumerate(order)}
    fold = {operation: fold_of[like] for operation, like in alike.items()}
    tested: list[DeviceRow] = []
    log_ratio = []
    for held in range(recipe.folds):
        mine = [row for row in rows if fold[row.operation] == held]
        others = [row for row in rows if fold[row.operation] != held]
        log_ratio.append(_log_ratio(fit_any_gpu((), (), recipe, others), mine))
        tested += mine
    return tuple(_by_kind(tested, np.concatenate(log_ratio)))


def validate_any_gpu(
    datasets: Sequence[Dataset], networks: Networks, recipe: BoostingRecipe, *, folds: bool = True
) -> AnyGpuValidation:
    """Leave operations out, then every GPU.

    Args:
        datasets: Of any GPUs.
        networks: Measured networks with power, of any GPUs and modes.
        recipe: Settings.
        folds: Whether to leave operations out, too; that takes longest.
    """
    rows = [row for dataset in datasets for row in device_rows(dataset)]
    left_out: list[KindErrors] = []
    errors: list[NetworkErrors] = []
    chips = dict.fromkeys([row.gpu.chip for row in rows] + [gpu.chip for gpu, _, _ in networks])
    for chip in chips:
        mine = [row for row in rows if row.gpu.chip == chip]
        others = [row for row in rows if row.gpu.chip != chip]
        learned = fit_any_gpu(datasets, networks, recipe, others)
        left_out += _by_kind(mine, _log_ratio(learned, mine))
        # Launching costs what it costs on any host; nothing of the chip is in that.
        errors += _networks_left_out([n for n in networks if n[0].chip == chip], networks, learned, others)
    return AnyGpuValidation(cross_validate(rows, recipe) if folds else (), tuple(left_out), tuple(errors))


def _networks_left_out(
    mine: Networks, networks: Networks, learned: Learned, rows: Sequence[DeviceRow]
) -> Iterator[NetworkErrors]:
    for name in dict.fromkeys(m.network for _, m, _ in mine):
        others = [n for n in networks if n[1].network != name]
        without = replace(learned, energy=fit_energies(rows, others, learned)) if others else learned
        hosts = fit_hosts(without, others)
        for gpu, measurement, network in (n for n in mine if n[1].network == name):
            yield network_errors(AnyGpuPredictor(gpu, measurement.mode, without), measurement, network, hosts)


def fit_hosts(learned: Learned, networks: Networks) -> dict[str, HostModel]:
    """Learn what a call costs the host inside a network, by mode."""
    hosts = {}
    for mode in learned.host_s:
        mine = [(gpu, m, network) for gpu, m, network in networks if m.mode == mode]
        predicted = [
            (counts_of(network), _predictions(AnyGpuPredictor(gpu, mode, learned), network, m.clock_mhz), m.time_s)
            for gpu, m, network in mine
        ]
        hosts[mode] = HostModel.fit(predicted, mode)
    return hosts


def _predictions(predictor: AnyGpuPredictor, network: Network, clock_mhz: float | None) -> OperationPredictions:
    return predictor.predict([entry.operation for entry in network], clock_mhz)


def network_errors(
    predictor: AnyGpuPredictor, measurement: NetworkMeasurement, network: Network, hosts: Mapping[str, HostModel]
) -> NetworkErrors:
    """Predict a measured network at the clock that it was measured at."""
    counts, predictions = counts_of(network), _predictions(predictor, network, measurement.clock_mhz)
    totals = compose(counts, predictions, hosts[measurement.mode], predictor.gpu.power_limit_w)
    return NetworkErrors(
        gpu=predictor.gpu.name,
        measurement=measurement,
        time=totals.time_s / measurement.time_s - 1,
        energy=totals.energy_j / measurement.energy_j - 1,
        power=totals.energy_j / totals.time_s / measurement.power_w - 1,
        sum_time=plain_sum(counts, predictions).time_s / measurement.time_s - 1,
    )
