"""How good a recipe is on what it has not seen: operations in folds, networks left out.

Splits are honest: all repeats of an operation lie in one fold, and a network that is left out takes along every
operation that no other network has, in all of its shapes and precisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..datasets import Dataset, NetworkMeasurement
from ..hardware import find_gpu
from ..networks import Network
from ..operations import Operation
from .baseline import group_of
from .composition import HostModel, compose, plain_sum
from .features import FloatArray
from .fitting import fit_own
from .forest import LEAST_OPERATIONS
from .predictor import OperationPredictions, OperationPredictor
from .recipe import OwnRecipe


@dataclass(frozen=True)
class OperationErrors:
    """Measured and predicted loops of operations that the predictor had not seen; one value per measurement."""

    campaign: str
    mode: str
    operations: tuple[Operation, ...]
    time_s: FloatArray
    predicted_time_s: FloatArray
    power_w: FloatArray
    predicted_power_w: FloatArray

    def summary(self) -> dict[str, float]:
        """R2 and absolute relative errors (median, mean, 90th percentile) of time and power."""
        return {
            "measurements": float(len(self.operations)),
            "unique_operations": float(len(set(self.operations))),
            # In a small campaign a fold can hold all there is of a kind.
            "uncovered": float(np.isnan(self.predicted_time_s).sum()),
            **_scores("time", self.time_s, self.predicted_time_s),
            **_scores("power", self.power_w, self.predicted_power_w),
        }


@dataclass(frozen=True)
class NetworkError:
    """One measured network and what was predicted without the operations that only it has."""

    measurement: NetworkMeasurement
    left_out: int
    time_s: float
    energy_j: float
    sum_time_s: float
    sum_energy_j: float
    device_time_s: float
    host_time_s: float
    unmeasured_share: float

    @property
    def time_error(self) -> float:
        """Relative error of time."""
        return self.time_s / self.measurement.time_s - 1

    @property
    def energy_error(self) -> float:
        """Relative error of energy."""
        return self.energy_j / self.measurement.energy_j - 1

    @property
    def sum_time_error(self) -> float:
        """Relative error of the plain sum of loop times."""
        return self.sum_time_s / self.measurement.time_s - 1

    @property
    def sum_energy_error(self) -> float:
        """Relative error of the plain sum of loop energies."""
        return self.sum_energy_j / self.measurement.energy_j - 1


def r2(measured: FloatArray, predicted: FloatArray) -> float:
    """Coefficient of determination."""
    return float(1 - np.sum((measured - predicted) ** 2) / np.sum((measured - np.mean(measured)) ** 2))


def _scores(name: str, measured: FloatArray, predicted: FloatArray) -> dict[str, float]:
    known = ~np.isnan(measured) & ~np.isnan(predicted)
    measured, predicted = measured[known], predicted[known]
    error = np.abs(predicted / measured - 1)
    return {
        f"{name}_r2": r2(measured, predicted),
        f"{name}_r2_log": r2(np.log(measured), np.log(predicted)),
        f"{name}_median": float(np.median(error)),
        f"{name}_mean": float(np.mean(error)),
        f"{name}_p90": float(np.quantile(error, 0.9)),
    }


def cross_validate(dataset: Dataset, mode: str, recipe: OwnRecipe, campaign: str) -> OperationErrors:
    """Predict every operation of a campaign by predictors that have seen other operations of that campaign only.

    Args:
        dataset: Of one GPU.
        mode: inference or training.
        recipe: Settings; `folds` and `seed` decide the split.
        campaign: Whose measurements to use.

    Raises:
        DatasetError: Too few operations.
    """
    rows = [m for m in dataset.usable(mode) if m.campaign == campaign]
    within = replace(dataset, measurements=tuple(rows), networks=())
    unique = sorted({m.operation for m in rows}, key=lambda operation: operation.digest)
    order = np.random.default_rng(recipe.seed).permutation(len(unique))
    predicted: dict[Operation, tuple[float, float]] = {}
    for fold in range(recipe.folds):
        held = [unique[i] for i in order[fold :: recipe.folds]]
        predictions = fit_own(within, mode, recipe, without=held).predict(held)
        predicted |= dict(zip(held, zip(predictions.time_s, predictions.power_w, strict=True), strict=True))
    return OperationErrors(
        campaign=campaign,
        mode=mode,
        operations=tuple(m.operation for m in rows),
        time_s=np.array([m.time_s for m in rows]),
        predicted_time_s=np.array([predicted[m.operation][0] for m in rows]),
        power_w=np.array([m.power_w if m.power_usable and m.power_w is not None else np.nan for m in rows]),
        predicted_power_w=np.array([predicted[m.operation][1] for m in rows]),
    )


def counts_of(network: Network) -> FloatArray:
    """How often each operation of a network runs."""
    return np.array([entry.count for entry in network], dtype=float)


def predict_network(predictor: OperationPredictor, network: Network) -> tuple[FloatArray, OperationPredictions]:
    """Counts and predictions of a network's operations."""
    return counts_of(network), predictor.predict([entry.operation for entry in network])


def fit_host(
    predictor: OperationPredictor, networks: Sequence[tuple[NetworkMeasurement, Network]], mode: str
) -> HostModel:
    """Learn the host cost per call inside a network from measured networks."""
    return HostModel.fit([(*predict_network(predictor, network), m.time_s) for m, network in networks], mode)


def leave_networks_out(
    dataset: Dataset,
    mode: str,
    recipe: OwnRecipe,
    networks: Mapping[NetworkMeasurement, Network],
    *,
    keep_operations: bool = False,
) -> list[NetworkError]:
    """Predict every measured network by a predictor and a host model that have not seen it.

    Args:
        dataset: Of one GPU, with measured networks.
        mode: inference or training.
        recipe: See `fit_own`.
        networks: The operations of each measured network of this mode.
        keep_operations: Leave its operations in; what errors remain are those of the composition.

    Returns:
        One error per measured network, in the order of the dataset.
    """
    measured = [(m, networks[m]) for m in dataset.usable_networks(mode)]
    errors = []
    for name in dict.fromkeys(m.network for m, _ in measured):
        mine = [(m, network) for m, network in measured if m.network == name]
        others = [(m, network) for m, network in measured if m.network != name]
        seen_elsewhere = {entry.operation for _, network in others for entry in network}
        only_here = {entry.operation for _, network in mine for entry in network} - seen_elsewhere
        if keep_operations:
            only_here = set()
        predictor = fit_own(dataset, mode, recipe, without=only_here)
        host = fit_host(predictor, others, mode)
        errors += [_network_error(m, network, predictor, host, len(only_here)) for m, network in mine]
    position = {m: i for i, (m, _) in enumerate(measured)}
    return sorted(errors, key=lambda error: position[error.measurement])


def _network_error(
    measurement: NetworkMeasurement, network: Network, predictor: OperationPredictor, host: HostModel, left_out: int
) -> NetworkError:
    counts, predictions = predict_network(predictor, network)
    totals = compose(counts, predictions, host, find_gpu(predictor.gpu).power_limit_w)
    added = plain_sum(counts, predictions)
    foreign = np.array([group_of(op, predictor.gpu) not in predictor.baseline.groups for op in predictions.operations])
    return NetworkError(
        measurement=measurement,
        left_out=left_out,
        time_s=totals.time_s,
        energy_j=totals.energy_j,
        sum_time_s=added.time_s,
        sum_energy_j=added.energy_j,
        device_time_s=totals.device_time_s,
        host_time_s=totals.host_time_s,
        unmeasured_share=float(np.nansum((counts * predictions.device_time_s)[foreign])) / totals.device_time_s,
    )


@dataclass(frozen=True)
class Validation:
    """All that is known about how good a recipe is on one dataset and mode.

    Args:
        gpu, mode: What was predicted.
        operations: Cross-validation, by campaign, those with enough operations for it.
        networks: Networks left out, where any was measured.
        networks_seen: The same with their operations left in, which shows the composition alone.
    """

    gpu: str
    mode: str
    operations: tuple[OperationErrors, ...]
    networks: tuple[NetworkError, ...]
    networks_seen: tuple[NetworkError, ...] = ()

    def metrics(self) -> dict[str, float]:
        """Everything as flat numbers, for tracking."""
        flat = {
            f"{errors.campaign}/{name}": value for errors in self.operations for name, value in errors.summary().items()
        }
        return {**flat, **{f"networks/{name}": value for name, value in network_summary(self.networks).items()}}


def network_summary(errors: Sequence[NetworkError]) -> dict[str, float]:
    """Mean, median and 90th percentile of absolute errors on networks."""
    summary: dict[str, float] = {}
    for name in ("time_error", "energy_error", "sum_time_error", "sum_energy_error") if errors else ():
        error = np.abs([getattr(e, name) for e in errors])
        summary |= {
            f"{name}_mean": float(np.mean(error)),
            f"{name}_median": float(np.median(error)),
            f"{name}_p90": float(np.quantile(error, 0.9)),
        }
    return summary


SPLITS = (
    "Operations: k-fold over unique operations within one campaign, trained on that campaign only; all repeats of an "
    "operation lie in one fold. Networks: each name is left out in all its shapes and precisions, with every operation "
    "that no other measured network has; the host cost is learned without it, too."
)


def validate(
    dataset: Dataset, mode: str, recipe: OwnRecipe, networks: Mapping[NetworkMeasurement, Network]
) -> Validation:
    """Cross-validate every campaign that is large enough, and leave every measured network out once.

    Args:
        dataset: Of one GPU.
        mode: inference or training.
        recipe: See `fit_own`.
        networks: The operations of each measured network of this mode.
    """
    operations = []
    for campaign in dataset.campaigns(mode):
        rows = [m for m in dataset.usable(mode) if m.campaign == campaign]
        with_power = {m.operation for m in rows if m.power_usable and m.power_w is not None}
        # Every fold must leave enough to train on.
        if len(with_power) * (1 - 1 / recipe.folds) >= 2 * LEAST_OPERATIONS:
            operations.append(cross_validate(dataset, mode, recipe, campaign))
    measured = bool(dataset.usable_networks(mode))
    errors = leave_networks_out(dataset, mode, recipe, networks) if measured else []
    seen = leave_networks_out(dataset, mode, recipe, networks, keep_operations=True) if measured else []
    return Validation(dataset.card.gpu, mode, tuple(operations), tuple(errors), tuple(seen))
