"""Validation of a recipe for one GPU, with operations left out in folds, and networks by name and by family; a search.

All repeats of an operation are in one fold, together with the operation in the other mode and in other precisions. A
network is left out together with every operation that no other network has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...datasets import Dataset, NetworkMeasurement
from ...errors import DatasetError
from ...hardware import find_gpu
from ...operations.network import Network
from ...system.cluster import in_parallel
from ..fitting.fit import LEAST_OPERATIONS, fit_cpu, fit_serial, quickest_loops, quickest_networks
from ..intervals.calibration import Calibration, Closeness
from ..intervals.conformal import power_range_w
from ..intervals.network_calibration import NetworkCalibration
from ..measured import MeasuredLoop, fold_of, only_in
from ..networks.on_cpu import CpuNetworkPredictor
from ..recipes import Recipe, XGBoostRecipe
from . import left_out
from .calibrating import LEVEL, calibrate, fit_networks, network_coverage, operation_coverage, with_variances
from .errors import SUMMED, Errors, Validation

SPLITS, CPU_SPLITS = left_out.TEXTS["one GPU"], left_out.TEXTS["CPU"]

_TRIAL_FOLDS, _JUDGED = 3, ("median", "mean")  # Folds and statistics by which the settings of a search are judged.
_BY: tuple[left_out.NetworkSplit, ...] = ("name", "family", "nothing")

ALL_FOLDS = "folds over all campaigns"
"""Split whose errors the intervals are made from: folds, with training on all campaigns."""


def calibrated(
    validation: Validation, closeness: Closeness, seen: Errors
) -> tuple[Calibration | None, NetworkCalibration | None]:
    """Make calibrations for new operations and networks from a GPU's validation, and from what was `seen` twice."""
    calibration = calibrate(closeness, Errors.joined([validation.held_out, seen]))
    if calibration is None or not len(validation.networks):
        return calibration, None
    measured = len(set(validation.networks.of))
    basis = f"{measured} networks on {validation.title.partition(',')[0]}, left out by name and by family"
    return calibration, fit_networks(_compositions(validation.networks, calibration), basis)


def _compositions(networks: Errors, calibration: Calibration) -> dict[str, Errors]:
    """Errors on networks left out by name and by family, as they are composed and as plain sums."""
    if not len(networks):
        return {"overlap": networks, "sum": networks}
    networks = with_variances(networks, calibration)
    seen, summed = (np.char.find(networks["split"], text) >= 0 for text in (left_out.split_of("nothing"), SUMMED))
    return {"overlap": networks.where(~seen & ~summed), "sum": networks.where(~seen & summed)}


def validate(dataset: Dataset, mode: str, recipe: Recipe, networks: Mapping[NetworkMeasurement, Network]) -> Validation:
    """Cross-validate every campaign that is large enough, and leave every measured network out."""
    operations = []
    for campaign in dataset.campaigns(mode):
        rows = [m for m in dataset.usable(mode) if m.campaign == campaign]
        with_power = {m.operation for m in rows if m.power_usable and m.power_w is not None}
        # Every fold must leave enough to train on.
        if len(with_power) * (1 - 1 / recipe.folds) >= 2 * LEAST_OPERATIONS:
            operations.append(left_out.cross_validate(dataset, mode, recipe, campaign))
    pairs = [left_out.leave_networks_out(dataset, mode, recipe, networks, by=by) for by in _BY]
    networks_left_out = Errors.joined([errors for errors, _ in pairs])
    held_out = Errors.joined(
        [
            left_out.cross_validate(dataset, mode, recipe, split=ALL_FOLDS) if operations else Errors(),
            left_out.leave_kinds_out(dataset, mode, recipe),
            *(errors for _, errors in pairs),
        ]
    )
    gpu = find_gpu(dataset.card.gpu)
    limits_w = power_range_w(gpu, gpu.power_limit_w)
    coverage = operation_coverage(held_out, LEVEL, recipe.seed, power_range_w=limits_w)
    calibration = calibrate(Closeness({}), held_out)
    if calibration is not None:
        coverage += network_coverage(_compositions(networks_left_out, calibration)["overlap"], LEVEL)
    title = f"{dataset.card.gpu}, {mode}"
    return Validation(title, Errors.joined(operations), networks_left_out, held_out, coverage=tuple(coverage))


def validate_cpu(
    dataset: Dataset, mode: str, recipe: Recipe, networks: Mapping[NetworkMeasurement, Network]
) -> Validation:
    """Cross-validate the operations of a CPU, and leave every measured network out by its name.

    Raises DatasetError: too few usable operations.
    """
    loops = quickest_loops(dataset, mode)
    fold = fold_of([loop.operation for loop in loops], recipe.folds, recipe.seed)
    column = [fold[loop.operation] for loop in loops]
    folds = left_out.each_left_out(column, _cpu_fold, dataset, mode, recipe, loops, what="folds")
    measured = [(m, networks[m]) for m in quickest_networks(dataset.usable_networks(mode))]
    judged = left_out.each_left_out(
        [m.network for m, _ in measured], _networks_judged, dataset, mode, recipe, measured, what="networks left out"
    )
    operations, errors = (Errors.joined([mine for _, mine in each]) for each in (folds, judged))
    return Validation(f"{dataset.card.gpu}, {mode}", operations, errors)


def _cpu_fold(
    dataset: Dataset, mode: str, recipe: Recipe, loops: Sequence[MeasuredLoop], held: left_out.Held
) -> Errors:
    """Errors on loops that are left out."""
    mine, _ = left_out.sides(loops, held)
    operations = tuple(loop.operation for loop in mine)
    found = fit_cpu(dataset, mode, recipe, without=operations).predict(operations)
    predicted = {"time": found.time_s, "power": found.power_w}
    measured = {
        name: [getattr(loop, f"{name}_{unit}") for loop in mine] for name, unit in (("time", "s"), ("power", "w"))
    }
    return Errors.of_operations(left_out.FOLDS, dataset.campaigns(mode)[0], operations, measured, predicted)


def _networks_judged(
    dataset: Dataset,
    mode: str,
    recipe: Recipe,
    measured: Sequence[tuple[NetworkMeasurement, Network]],
    held: left_out.Held,
) -> Errors:
    mine, others = left_out.sides(measured, held)
    only_here = only_in(*([network.operations for _, network in part] for part in (mine, others)))
    try:
        operations = fit_cpu(dataset, mode, recipe, without=only_here)
    except DatasetError:  # Too few operations remain: nothing is known of these networks.
        return Errors()
    predictor = CpuNetworkPredictor("", operations, fit_serial(operations, others), {})
    lost = len(only_here & {m.operation for m in dataset.usable(mode)})
    found = [predictor.predict(network) for _, network in mine]
    return Errors.of_networks(
        left_out.split_of("name"),
        dataset.card.gpu,
        [m for m, _ in mine],
        [each.time_s for each in found],
        [each.energy_j for each in found],
        left_out=[lost] * len(mine),
    )


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and their errors on operations that were held out.

    Args:
        metrics: Median and mean absolute errors of time and power, and "loss", which a search minimizes: the sum of the
            mean absolute log errors of time and power.
    """

    recipe: XGBoostRecipe
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]


def search(dataset: Dataset, mode: str, recipe: XGBoostRecipe, trials: int) -> Iterator[Trial]:
    """Try settings: first the recipe's own, then others drawn from its search space.

    Raises DatasetError: too few operations.
    """
    rng = np.random.default_rng(recipe.seed)
    names = sorted(recipe.search)
    tried: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number in range(trials):
        if number == 0:
            settings = {name: getattr(recipe, name) for name in names}
        else:
            settings = {name: recipe.search[name][int(rng.integers(len(recipe.search[name])))] for name in names}
        tried.setdefault(tuple(settings.values()), settings)
    calls = [(dataset, mode, recipe, settings) for settings in tried.values()]
    yield from in_parallel(_trial, calls, worthwhile=False, what="settings")


def _trial(dataset: Dataset, mode: str, recipe: XGBoostRecipe, settings: Mapping[str, Any]) -> Trial:
    candidate = replace(recipe, **settings)
    # These folds differ from those of the evaluation, so that the choice of settings does not see its test data.
    judged = replace(candidate, folds=_TRIAL_FOLDS, seed=recipe.seed + 1)
    errors = left_out.cross_validate(dataset, mode, judged)
    found = errors.row(left_out.FOLDS)
    metrics = {f"{name}_{statistic}": found[name][statistic] for name in ("time", "power") for statistic in _JUDGED}
    loss = sum(float(np.nanmean(np.abs(errors.log_errors(quantity)))) for quantity in ("time", "power"))
    return Trial(candidate, settings, {**metrics, "loss": loss})
