"""Validation of a recipe on a CPU: operations left out in folds, and networks left out by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np

from ...arrays import FloatArray
from ...datasets import Dataset, NetworkMeasurement
from ...operations.network import Network
from ...operations.operation import Operation
from ..cpu.fit import LEAST_OPERATIONS, fit_cpu, fit_serial, quickest_loops, quickest_networks
from ..cpu.network import CpuNetworkPredictor
from ..measured.splits import fold_of, only_in
from ..recipes import Recipe
from .errors import NetworkError, OperationErrors
from .left_out import Held, each_left_out
from .one_gpu import Validation

SPLITS = (
    "Operations: k-fold cross-validation; an operation is in the same fold in both modes and all precisions. Networks: "
    "each name is left out in all its shapes, together with every operation that no other measured network has, and "
    "the constants by which operations add up are fitted without it. Of repeated measurements the quickest counts, "
    "because other programs can only make them longer."
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
