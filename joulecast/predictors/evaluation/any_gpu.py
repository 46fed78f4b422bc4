"""Errors of a predictor for any GPU on operations, GPUs and networks that were left out of its training.

An operation is in the same fold on all GPUs, in both modes and in all precisions. A GPU is left out together with all
GPUs of the same chip. Each network is predicted twice: by a predictor that was fitted without any network of this chip,
and by one that was fitted with the networks of this chip that have other names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...datasets import Dataset, NetworkMeasurement
from ...hardware import GPU
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.cluster import in_parallel
from ..contract import Curves, Networks, ResidualModel
from ..fitting.fit import LearnNetworks, fit_operations, network_learner, quicker
from ..measured.rows import DeviceRow, device_rows
from ..measured.splits import fold_of
from ..model.boosted_residual import BoostedResidual
from ..model.fit_boosted import inputs_and_targets
from ..model.predictor import AnyGpuPredictor
from ..networks.composition import HostModel, counts_of, plain_sum
from ..networks.network_predictor import NetworkPredictor
from ..networks.parts import as_parts
from ..operation_predictions import OperationPredictions
from ..physics.least_times import LeastTimes
from ..recipes import Recipe
from ..regressors.fitted_trees import FittedTrees
from .calibrating import MOST_ERRORS, thinned
from .errors import AnyNetworkError, Known, network_log_errors

SPLITS = (
    "Operations: k-fold cross-validation, in which an operation is in the same fold on all GPUs, in both modes and in "
    "all precisions; and each GPU left out together with all GPUs of the same chip. Networks: the residual model of "
    "operations is trained without any GPU of this chip. Energies, host cost and corrections are fitted either without "
    "any network of this chip (nothing known of the chip), or with its networks of other names (networks known of the "
    "chip), but never with a network of the same name."
)

_MANY_ROWS = 20_000  # From this number of rows on, a fit takes longer than starting a process for it.

ALL = "all GPUs"
"""Name in place of a GPU for errors over all GPUs. The kind and mode are then "all"."""

QUICKLY = (
    "Quick validation: only the first fold, and only the chips whose networks were measured. For this validation, a "
    "transformer was fitted with a third of its passes over the data."
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
class AnyGpuValidation:
    """The validation of a recipe for predictors for any GPU.

    Args:
        folds: Errors on operations that were left out on all GPUs.
        left_out: Errors on GPUs that were left out.
        networks: Errors on networks; each appears twice, see `Known`.
        device_errors: Family, or "" for all families -> sorted absolute log errors of device time on chips that were
            left out. All chips have the same weight.
        power_errors: "power" and "energy" -> such errors of loops that are clearly bound by the GPU. Empty if power was
            measured on fewer than two chips, because the errors on one chip do not show those on others.
        curves: Mean absolute log errors on the operations of the first fold, by number of trees.
    """

    folds: tuple[KindErrors, ...]
    left_out: tuple[KindErrors, ...]
    networks: tuple[AnyNetworkError, ...]
    device_errors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    power_errors: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Errors per split, GPU and kind as numbers by name, for tracking."""
        found = {}
        for name, known in (("networks", "nothing"), ("networks_known", "networks")):
            errors = [e.errors for e in self.networks if e.known == known]
            for quantity in ("time", "energy", "power") if errors else ():
                found[f"{name}/{quantity}_error_mean"] = fmean(abs(each[quantity]) for each in errors)
        for split, kinds in (("folds", self.folds), ("left_out", self.left_out)):
            for e in kinds:
                found[f"{split}/{e.gpu}/{e.kind}/{e.mode}/time_median"] = e.median
                found[f"{split}/{e.gpu}/{e.kind}/{e.mode}/time_mean"] = e.mean
        return found

    def log_errors(self, mode: str) -> dict[str, tuple[float, ...]]:
        """Sorted absolute log errors by quantity on networks of chips of which nothing was known, for intervals."""
        mine = [e for e in self.networks if e.measurement.mode == mode and e.known == "nothing"]
        return network_log_errors(mine)


def log_ratios(learned: ResidualModel, rows: Sequence[DeviceRow]) -> FloatArray:
    """Log of predicted over measured device time, at default clocks."""
    found = np.empty(len(rows))
    for gpu, _, places in _by_gpu(rows):
        operations = [rows[i].operation for i in places]
        least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
        predicted = least.time_s * learned.factors(operations, gpu)[0]
        found[places] = np.log(predicted / np.array([rows[i].device_s for i in places]))
    return found


def power_log_ratios(learned: ResidualModel, rows: Sequence[DeviceRow]) -> dict[str, FloatArray]:
    """Log of predicted over measured power and energy of a call, at default clocks and caps.

    Args:
        learned: The residual model to predict with.
        rows: Measurements, all with a power.
    """
    found = {quantity: np.empty(len(rows)) for quantity in ("power", "energy")}
    for gpu, mode, places in _by_gpu(rows):
        p = AnyGpuPredictor(gpu, mode, learned).predict([rows[i].operation for i in places])
        measured_w = np.array([rows[i].power_w for i in places], dtype=float)
        measured_s = np.array([rows[i].device_s for i in places])
        found["power"][places] = np.log(p.power_w / measured_w)
        found["energy"][places] = np.log(p.power_w * p.device_time_s / (measured_w * measured_s))
    return found


def _by_gpu(rows: Sequence[DeviceRow]) -> list[tuple[GPU, str, list[int]]]:
    """Each GPU and mode with the indices of its rows."""
    groups: dict[tuple[GPU, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.gpu, row.operation.mode].append(i)
    return [(gpu, mode, places) for (gpu, mode), places in groups.items()]


def _by_kind(rows: Sequence[DeviceRow], log_ratio: Sequence[float]) -> Iterator[KindErrors]:
    """Errors by GPU, kind and mode. The first are the errors over all rows, unless there are no rows."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row, value in zip(rows, log_ratio, strict=True):
        error = abs(float(np.expm1(value)))
        groups[ALL, "all", "all"].append(error)
        groups[row.gpu.name, row.operation.kind, row.operation.mode].append(error)
    for (gpu, kind, mode), errors in sorted(groups.items(), key=lambda item: (item[0][0] != ALL, item[0])):
        median, mean, p90 = float(np.median(errors)), float(np.mean(errors)), float(np.quantile(errors, 0.9))
        yield KindErrors(gpu, kind, mode, len(errors), median, mean, p90)


def cross_validate(
    rows: Sequence[DeviceRow], recipe: Recipe, folds: int | None = None
) -> tuple[tuple[KindErrors, ...], Curves]:
    """Cross-validate: predict operations after training without them on any GPU, in any mode and in any precision.

    Args:
        rows: Device times of any GPUs.
        recipe: Settings.
        folds: Number of the recipe's folds to predict; None for all.

    Returns:
        The errors, and the learning curves as in `AnyGpuValidation.curves`.
    """
    fold = fold_of({row.operation for row in rows}, recipe.folds, recipe.seed)
    calls = [(rows, recipe, fold, held) for held in range(folds or recipe.folds)]
    found = [*in_parallel(_fold, calls, worthwhile=len(rows) >= _MANY_ROWS, what="folds")]
    tested = [row for rows_of_one, _, _ in found for row in rows_of_one]
    log_ratio = [value for _, values, _ in found for value in values]
    return tuple(_by_kind(tested, log_ratio)), found[0][2]


def _fold(
    rows: Sequence[DeviceRow], recipe: Recipe, fold: Mapping[Operation, int], held: int
) -> tuple[list[DeviceRow], list[float], Curves]:
    """Rows of a fold, log of predicted over measured device time, and for the first fold the learning curves."""
    mine = [row for row in rows if fold[row.operation] == held]
    learned = fit_operations((), [row for row in rows if fold[row.operation] != held], recipe)
    curves: Curves = {}
    if not held and mine and isinstance(learned, BoostedResidual) and isinstance(learned.time, FittedTrees):
        curves = {"time/held_out_error": learned.time.error_by_trees(*inputs_and_targets(mine, learned.typical))}
    return mine, log_ratios(learned, mine).tolist(), curves


def validate_any_gpu(
    datasets: Sequence[Dataset], networks: Networks, recipe: Recipe, *, quick: bool = False
) -> AnyGpuValidation:
    """Validate a recipe: leave operations out in folds, then leave every GPU out.

    Args:
        datasets: Measurements of several GPUs.
        networks: Measured networks with power, of any GPUs and modes.
        recipe: Settings.
        quick: Predict only the first fold, leave out only chips whose networks were measured, and use quicker settings
            of the recipe. The errors are then those of a slightly worse predictor.
    """
    if quick:
        recipe = quicker(recipe)
    rows = [row for dataset in datasets for row in device_rows(dataset)]
    chips = dict.fromkeys([row.gpu.chip for row in rows if not quick] + [gpu.chip for gpu, _, _ in networks])
    calls = [(datasets, rows, networks, recipe, chip) for chip in chips]
    found = [*in_parallel(_chip, calls, worthwhile=len(rows) >= _MANY_ROWS, what="chips left out")]
    in_folds, curves = cross_validate(rows, recipe, 1 if quick else None)
    tested = [row for chip in found for row in chip.tested]
    log_ratio = [value for chip in found for value in chip.log_ratio]
    powered = [row for chip in found for row in chip.powered]
    several = len({row.gpu.chip for row in powered}) > 1
    of_powers = {
        quantity: _device_errors(powered, [value for chip in found for value in chip.power_ratio.get(quantity, ())])
        for quantity in ("power", "energy")
        if several
    }
    return AnyGpuValidation(
        folds=in_folds,
        left_out=tuple(_by_kind(tested, log_ratio)),
        networks=tuple(error for chip in found for error in chip.networks),
        device_errors=_device_errors(tested, log_ratio),
        power_errors=of_powers,
        curves=curves,
    )


class _Chip(NamedTuple):
    """Predictions for the GPUs of one chip, made by predictors that were trained without these GPUs."""

    tested: list[DeviceRow]
    log_ratio: list[float]
    powered: list[DeviceRow]
    power_ratio: dict[str, list[float]]
    networks: list[AnyNetworkError]


def _chip(
    datasets: Sequence[Dataset], rows: Sequence[DeviceRow], networks: Networks, recipe: Recipe, chip: str
) -> _Chip:
    mine, others = ([row for row in rows if (row.gpu.chip == chip) is same] for same in (True, False))
    # Launch times depend on the host and not on the chip, so all datasets may be used for them.
    learned = fit_operations(datasets, others, recipe)
    here, on_others = ([n for n in networks if (n[0].chip == chip) is same] for same in (True, False))
    learn = network_learner(learned, others, recipe)
    powered = [row for row in mine if row.power_w is not None]
    powers = power_log_ratios(learn(on_others), powered) if powered else {}
    errors = [
        *_networks_left_out(here, on_others, "nothing", learn),
        *_networks_left_out(here, networks, "networks", learn),
    ]
    power_ratio = {quantity: values.tolist() for quantity, values in powers.items()}
    return _Chip(mine, log_ratios(learned, mine).tolist(), powered, power_ratio, errors)


def _device_errors(rows: Sequence[DeviceRow], log_ratio: Sequence[float]) -> dict[str, tuple[float, ...]]:
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, value in zip(rows, log_ratio, strict=True):
        for family in ("", row.operation.row.family):
            groups[family][row.gpu.chip].append(abs(value))
    found = {}
    for family, chips in sorted(groups.items()):
        as_many_each = np.concatenate([thinned(np.sort(errors), MOST_ERRORS) for errors in chips.values()])
        found[family] = tuple(float(f"{error:.4g}") for error in thinned(np.sort(as_many_each), MOST_ERRORS))
    return found


def operation_errors(validation: AnyGpuValidation) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Split -> GPU -> kind and mode -> median and mean error of device time, for cards and reports."""
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = {"folds": {}, "gpu left out": {}}
    for split, errors in (("folds", validation.folds), ("gpu left out", validation.left_out)):
        for e in errors:
            found[split].setdefault(e.gpu, {})[f"{e.kind} {e.mode}"] = (e.median, e.mean)
    return found


def errors_of_networks(validation: AnyGpuValidation) -> dict[str, dict[str, dict[str, float]]]:
    """What was known of the chip -> network -> relative errors of time, energy and power, for cards and reports."""
    found: dict[str, dict[str, dict[str, float]]] = {"nothing": {}, "networks": {}}
    for e in validation.networks:
        found[e.known][e.label] = e.errors
    return found


def _networks_left_out(
    mine: Networks,
    others: Networks,
    known: Known,
    learn: LearnNetworks,
) -> Iterator[AnyNetworkError]:
    for name in dict.fromkeys(m.network for _, m, _ in mine):
        of_other_names = [n for n in others if n[1].network != name]
        without = learn(of_other_names)
        hosts = fit_hosts(without, of_other_names)
        for gpu, measurement, network in (n for n in mine if n[1].network == name):
            yield network_errors(AnyGpuPredictor(gpu, measurement.mode, without), measurement, network, hosts, known)


def fit_hosts(learned: ResidualModel, networks: Networks) -> dict[str, HostModel]:
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
    return as_parts(network, predictor.predict(network.operations, clock_mhz), predictor.gpu)


def network_errors(
    predictor: AnyGpuPredictor,
    measurement: NetworkMeasurement,
    network: Network,
    hosts: Mapping[str, HostModel],
    known: Known,
) -> AnyNetworkError:
    """Predict a measured network at the clock that it was measured at."""
    host = hosts[measurement.mode]
    found = NetworkPredictor("", predictor, host, any_gpu=True).predict(network, measurement.clock_mhz)
    added = plain_sum(counts_of(network), _predictions(predictor, network, measurement.clock_mhz))
    return AnyNetworkError(
        measurement=measurement,
        left_out=0,
        time_s=found.time_s,
        energy_j=found.known_energy_j,
        gpu=predictor.gpu.name,
        known=known,
        power_w=found.known_power_w,
        sum_time_s=added.time_s,
    )
