"""Validation of a recipe on a CPU: operations left out in folds, and networks left out by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...datasets import Dataset, NetworkMeasurement
from ...operations.network import Network
from ...progress import tracked
from ..cpu.fit import LEAST_OPERATIONS, fit_cpu, fit_serial, quickest_loops, quickest_networks
from ..cpu.network import CpuNetworkPredictor
from ..measured.splits import fold_of, only_in
from ..recipes import Recipe
from .errors import NetworkError, OperationErrors, absolute_errors, network_log_errors

SPLITS = (
    "Operations: k-fold cross-validation; an operation is in the same fold in both modes and all precisions. Networks: "
    "each name is left out in all its shapes, together with every operation that no other measured network has, and "
    "the constants by which operations add up are fitted without it. Of repeated measurements the quickest counts, "
    "because other programs can only make them longer."
)


@dataclass(frozen=True)
class CpuValidation:
    """The validation of a recipe on one CPU and mode.

    Args:
        gpu, mode: CPU and mode of the predictions.
        operations: Errors on operations left out in folds.
        networks: Errors on networks left out by name; empty if none was measured.
    """

    gpu: str
    mode: str
    operations: OperationErrors
    networks: tuple[NetworkError, ...]

    def network_errors(self) -> dict[str, tuple[float, ...]]:
        """Quantity -> sorted absolute log errors on networks, for intervals; only time where no energy was measured."""
        return network_log_errors(self.networks)

    def metrics(self) -> dict[str, float]:
        """All errors as numbers by name, for tracking."""
        found = {f"operations/{name}": value for name, value in self.operations.summary().items()}
        for quantity in ("time", "energy"):
            errors = [each.errors[quantity] for each in self.networks if quantity in each.errors]
            if errors:
                found |= {f"networks/{quantity}_{name}": value for name, value in absolute_errors(errors).items()}
        return found


def validate_cpu(
    dataset: Dataset, mode: str, recipe: Recipe, networks: Mapping[NetworkMeasurement, Network]
) -> CpuValidation:
    """Cross-validate the operations of a CPU, and leave every measured network out.

    Args:
        dataset: Measurements of one CPU.
        mode: inference or training.
        recipe: Settings of the predictor, see `fit_cpu`.
        networks: The operations of each measured network of this mode.

    Raises:
        DatasetError: Too few usable operations.
    """
    quickest = quickest_networks(dataset.usable_networks(mode))
    left_out = _networks_left_out(dataset, mode, recipe, [(m, networks[m]) for m in quickest])
    return CpuValidation(dataset.card.gpu, mode, _in_folds(dataset, mode, recipe), left_out)


def _in_folds(dataset: Dataset, mode: str, recipe: Recipe) -> OperationErrors:
    loops = quickest_loops(dataset, mode)
    operations = tuple(loop.operation for loop in loops)
    predicted = np.full((2, len(loops)), np.nan)
    folds = fold_of(operations, recipe.folds, recipe.seed)
    for fold in tracked(range(recipe.folds), "folds"):
        mine = [i for i, operation in enumerate(operations) if folds[operation] == fold]
        if not mine or len(operations) - len(mine) < LEAST_OPERATIONS:
            continue
        found = fit_cpu(dataset, mode, recipe, without=[operations[i] for i in mine]).predict(
            [operations[i] for i in mine]
        )
        predicted[0, mine] = found.time_s
        predicted[1, mine] = found.power_w
    power_w = np.array([np.nan if loop.power_w is None else loop.power_w for loop in loops])
    time_s = np.array([loop.time_s for loop in loops])
    return OperationErrors("operations in folds", operations, time_s, predicted[0], power_w, predicted[1])


def _networks_left_out(
    dataset: Dataset, mode: str, recipe: Recipe, measured: Sequence[tuple[NetworkMeasurement, Network]]
) -> tuple[NetworkError, ...]:
    known = {m.operation for m in dataset.usable(mode)}
    errors = []
    for name in tracked(dict.fromkeys(m.network for m, _ in measured), "networks left out"):
        mine = [(m, network) for m, network in measured if m.network == name]
        others = [(m, network) for m, network in measured if m.network != name]
        only_here = only_in(*([network.operations for _, network in part] for part in (mine, others)))
        operations = fit_cpu(dataset, mode, recipe, without=only_here)
        predictor = CpuNetworkPredictor("", operations, fit_serial(operations, others), {})
        for m, network in mine:
            found = predictor.predict(network)
            energy_j = np.nan if found.energy_j is None else found.energy_j
            errors.append(NetworkError(m, len(known & only_here), found.time_s, energy_j))
    return tuple(errors)
