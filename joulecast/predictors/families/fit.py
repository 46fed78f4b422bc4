"""Learning a family from device times of many GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..measured.device_rows import LEAST_ROWS, DeviceRow
from ..recipes.recipe import BoostingRecipe
from ..regressors.xgboost_model import BoostedRegressor, unfitted_trees
from .family import Family
from .learned import FAMILIES, LearnedFamily

# Of one GPU in one precision: more make trees larger and hardly closer.
_MOST_ROWS = 20_000
_MOST_ROWS_UNSEEN = 4_000
_QUANTILES = (0.005, 0.995)
_TRUSTED_S = 5e-6  # Shorter times are those of launches and of the clock that they were measured with.


def split_families(rows: Sequence[DeviceRow]) -> tuple[dict[str, list[DeviceRow]], list[DeviceRow]]:
    """Rows of each family, and the rest."""
    operations = OperationList(row.operation for row in rows)
    of_family, rest = {}, np.ones(len(rows), dtype=bool)
    for name, family in FAMILIES.items():
        covered = family.covers(operations)
        of_family[name] = [row for row, mine in zip(rows, covered, strict=True) if mine]
        rest &= ~covered
    return of_family, [row for row, other in zip(rows, rest, strict=True) if other]


def fit_families(rows: Sequence[DeviceRow], recipe: BoostingRecipe) -> tuple[LearnedFamily, ...]:
    """All families of which enough was measured.

    Args:
        rows: Device times of any operations.
        recipe: Settings of the trees.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    of_family, _ = split_families(rows)
    return tuple(
        fit_family(FAMILIES[name], mine, recipe) for name, mine in of_family.items() if len(mine) >= LEAST_ROWS
    )


def fit_family(family: Family, rows: Sequence[DeviceRow], recipe: BoostingRecipe) -> LearnedFamily:
    """Fit a family.

    Args:
        family: Which.
        rows: Device times of operations that it covers.
        recipe: Settings of the trees.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    rng = np.random.default_rng(recipe.seed)
    groups: dict[tuple[GPU, str], list[DeviceRow]] = defaultdict(list)
    for row in rows:
        if row.device_s >= _TRUSTED_S:
            groups[row.gpu, row.operation.precision].append(row)
    inputs, log_ratio, few = [], [], []
    for (gpu, _), group in groups.items():
        chosen = [group[place] for place in rng.permutation(len(group))[:_MOST_ROWS]]
        described = family.describe(OperationList(row.operation for row in chosen), gpu)
        inputs.append(described.inputs)
        log_ratio.append(np.log(np.array([row.device_s for row in chosen]) / described.expected_s))
        few.append(np.arange(len(chosen)) < _MOST_ROWS_UNSEEN)
    seen, targets, thinned = np.vstack(inputs), np.concatenate(log_ratio), np.concatenate(few)
    time = _fitted(unfitted_trees(recipe, recipe.trees), seen, targets)
    shared = np.ascontiguousarray(seen[thinned][:, family.shared_columns])
    shallow = unfitted_trees(recipe, 60).set_params(max_depth=4, learning_rate=0.12, subsample=0.6)
    measured: dict[str, set[str]] = defaultdict(set)
    for gpu, precision in groups:
        measured[gpu.chip].add(precision)
    low, high = np.quantile(targets, _QUANTILES)
    return LearnedFamily(
        family=family,
        time=time,
        unseen_chips=_fitted(shallow, shared, targets[thinned]),
        measured={chip: frozenset(precisions) for chip, precisions in measured.items()},
        log_range=(float(low), float(high)),
    )


def _fitted(trees: Any, inputs: NDArray[np.float32], targets: FloatArray) -> BoostedRegressor:
    return BoostedRegressor(trees.fit(inputs, targets))
