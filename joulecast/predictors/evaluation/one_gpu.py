"""Validation of a recipe for one GPU, with operations left out in folds, and networks by name and by family; a search.

All repeats of an operation are in one fold, together with the operation in the other mode and in other precisions. A
network is left out together with every operation that no other network has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...datasets import Dataset, NetworkMeasurement
from ...hardware import find_gpu
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.cluster import in_parallel
from ..contract import Curves, curves_of
from ..fitting.fit import LEAST_OPERATIONS, fit_cpu, fit_serial, quickest_loops, quickest_networks
from ..intervals.calibration import Calibration, Closeness
from ..intervals.conformal import power_range_w
from ..intervals.network_calibration import NetworkCalibration
from ..measured import fold_of, only_in
from ..networks.on_cpu import CpuNetworkPredictor
from ..recipes import Recipe, XGBoostRecipe
from .calibrating import Coverage, calibrate, fit_networks, network_coverage, operation_coverage
from .errors import NetworkError, OperationErrors, network_summary
from .left_out import (
    TEXTS,
    Held,
    NetworksLeftOut,
    cross_validate,
    each_left_out,
    leave_kinds_out,
    leave_networks_out,
)

SPLITS, CPU_SPLITS = TEXTS["one GPU"], TEXTS["CPU"]

_TRIAL_FOLDS = 3  # Folds by which the settings of a search are judged.

FOLDS = "folds over all campaigns"
"""Title of the split whose errors the intervals are made from: folds, with training on all campaigns."""


@dataclass(frozen=True)
class Validation:
    """The validation of a recipe on one dataset and mode.

    Args:
        operations: Cross-validation of each campaign that has enough operations.
        networks: Errors on networks that were left out by name; empty if no network was measured.
        families: Errors on the same networks, each left out with its whole family.
        networks_seen: Errors on networks whose operations were all seen, which shows the composition alone.
        held_out: Split -> errors on operations by predictors that were trained on everything else; for intervals. Empty
            on a CPU, as are all that follow the networks.
    """

    gpu: str
    mode: str
    operations: tuple[OperationErrors, ...]
    networks: tuple[NetworkError, ...]
    families: tuple[NetworkError, ...] = ()
    networks_seen: tuple[NetworkError, ...] = ()
    held_out: Mapping[str, OperationErrors] = field(default_factory=dict)
    seed: int = 0

    @property
    def campaign_titles(self) -> dict[str, str]:
        """Name of each campaign -> its title in tables: without its file's digest, numbered if several share it."""
        plain = {errors.campaign: errors.campaign.partition("/")[0] for errors in self.operations}
        titles = {}
        for name, title in plain.items():
            alike = [other for other, its in plain.items() if its == title]
            titles[name] = title if len(alike) == 1 else f"{title} ({alike.index(name) + 1} of {len(alike)})"
        return titles

    def calibrated(
        self, closeness: Closeness, seen: OperationErrors | None = None
    ) -> tuple[Calibration | None, NetworkCalibration | None]:
        """Make calibrations for new operations and networks from these errors."""
        calibration = calibrate(closeness, list(self.held_out.values()), seen)
        if calibration is None or not self.networks:
            return calibration, None
        basis = f"{len(self.networks)} networks on {self.gpu}, left out by name and by family"
        return calibration, fit_networks(calibration, [self.networks, self.families], basis)

    def coverage(self, level: float = 0.9) -> list[Coverage]:
        """Coverage of intervals on cases that they were not made from."""
        gpu = find_gpu(self.gpu)
        power_w = power_range_w(gpu, gpu.power_limit_w)
        found = operation_coverage(self.held_out, level, self.seed, power_range_w=power_w)
        calibration = calibrate(Closeness({}), list(self.held_out.values()), None)
        if calibration is not None and self.networks:
            found += network_coverage(calibration, {"name": self.networks, "family": self.families}, level)
        return found

    def metrics(self) -> dict[str, float]:
        """All errors as numbers by name, for tracking."""
        flat = {
            f"{errors.campaign}/{name}": value for errors in self.operations for name, value in errors.summary().items()
        }
        for errors in self.operations:
            for kind, row in errors.by_kind().items():
                flat |= {f"{errors.campaign}/{kind}/{name}": row[name] for name in row if name != "count"}
        for split, networks in (("networks", self.networks), ("families", self.families)):
            flat |= {f"{split}/{name}": value for name, value in network_summary(networks).items()}
        return flat


def validate(dataset: Dataset, mode: str, recipe: Recipe, networks: Mapping[NetworkMeasurement, Network]) -> Validation:
    """Cross-validate every campaign that is large enough, and leave every measured network out."""
    operations = []
    for campaign in dataset.campaigns(mode):
        rows = [m for m in dataset.usable(mode) if m.campaign == campaign]
        with_power = {m.operation for m in rows if m.power_usable and m.power_w is not None}
        # Every fold must leave enough to train on.
        if len(with_power) * (1 - 1 / recipe.folds) >= 2 * LEAST_OPERATIONS:
            operations.append(cross_validate(dataset, mode, recipe, campaign)[1])
    measured = bool(dataset.networks_with_energy(mode))
    by_name, by_family, seen = (
        leave_networks_out(dataset, mode, recipe, networks, by=by) if measured else NetworksLeftOut()
        for by in ("name", "family", "none")
    )
    splits = {
        FOLDS: cross_validate(dataset, mode, recipe)[1] if operations else None,
        "kinds left out": leave_kinds_out(dataset, mode, recipe),
        "networks left out by name": by_name.operations,
        "networks left out by family": by_family.operations,
    }
    return Validation(
        gpu=dataset.card.gpu,
        mode=mode,
        operations=tuple(operations),
        networks=by_name.networks,
        families=by_family.networks,
        networks_seen=seen.networks,
        held_out={split: errors for split, errors in splits.items() if errors is not None},
        seed=recipe.seed,
    )


def validate_cpu(
    dataset: Dataset, mode: str, recipe: Recipe, networks: Mapping[NetworkMeasurement, Network]
) -> Validation:
    """Cross-validate the operations of a CPU, and leave every measured network out by its name.

    Raises DatasetError: too few usable operations.
    """
    loops = quickest_loops(dataset, mode)
    operations = tuple(loop.operation for loop in loops)
    fold = fold_of(operations, recipe.folds, recipe.seed)
    predicted = np.full((2, len(loops)), np.nan)
    for held, found in each_left_out(
        [fold[operation] for operation in operations], _predicted, dataset, mode, recipe, operations, what="folds"
    ):
        predicted[:, held] = found
    power_w = np.array([np.nan if loop.power_w is None else loop.power_w for loop in loops])
    time_s = np.array([loop.time_s for loop in loops])
    errors = OperationErrors(dataset.campaigns(mode)[0], operations, time_s, predicted[0], power_w, predicted[1])
    measured = [(m, networks[m]) for m in quickest_networks(dataset.usable_networks(mode))]
    judged = each_left_out(
        [m.network for m, _ in measured], _networks_judged, dataset, mode, recipe, measured, what="networks left out"
    )
    return Validation(dataset.card.gpu, mode, (errors,), tuple(each for _, mine in judged for each in mine))


def _predicted(
    dataset: Dataset, mode: str, recipe: Recipe, operations: Sequence[Operation], held: Held
) -> FloatArray | float:
    """Seconds and watts of operations that are left out, shape (2, left out); NaN where too few others remain."""
    mine = [*compress(operations, held)]
    if len(operations) - len(mine) < LEAST_OPERATIONS:
        return np.nan
    found = fit_cpu(dataset, mode, recipe, without=mine).predict(mine)
    return np.array([found.time_s, found.power_w])


def _networks_judged(
    dataset: Dataset, mode: str, recipe: Recipe, measured: Sequence[tuple[NetworkMeasurement, Network]], held: Held
) -> list[NetworkError]:
    mine, others = ([*compress(measured, side)] for side in (held, ~held))
    only_here = only_in(*([network.operations for _, network in part] for part in (mine, others)))
    operations = fit_cpu(dataset, mode, recipe, without=only_here)
    predictor = CpuNetworkPredictor("", operations, fit_serial(operations, others), {})
    left_out = len(only_here & {m.operation for m in dataset.usable(mode)})
    errors = []
    for m, network in mine:
        found = predictor.predict(network)
        energy_j = np.nan if found.energy_j is None else found.energy_j
        errors.append(NetworkError(m, left_out, found.time_s, energy_j))
    return errors


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and their errors on operations that were held out.

    Args:
        metrics: Median and mean absolute errors of time and power, and "loss", which a search minimizes: the sum of the
            mean absolute log errors of time and power.
        curves: Learning curves of the first fold, as `curves_of` gives them.
    """

    recipe: XGBoostRecipe
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    curves: Curves = field(default_factory=dict)


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
    predictors, errors = cross_validate(dataset, mode, judged)
    summary = errors.summary()
    metrics = {name: summary[name] for name in ("time_median", "time_mean", "power_median", "power_mean")}
    loss = sum(float(np.nanmean(np.abs(errors.log_errors(quantity)))) for quantity in ("time", "power"))
    return Trial(candidate, settings, {**metrics, "loss": loss}, curves_of(predictors[0]))
