"""Fitting what is learned of operations over the measurements of many GPUs: boosted trees, and a forest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import DatasetError
from ..measured import LEAST_ROWS, DeviceRow, launch_times_s, rows_by_gpu
from ..physics.energy import PRIOR_ENERGY
from ..physics.fp32_kernels import counted_s
from ..physics.relative import relative_features
from ..recipes import BoostingRecipe
from ..regressors.fitted_trees import FittedTrees, unfitted_forest, unfitted_trees
from .operations import LearnedOperations


class _Table(NamedTuple):
    """Training data as arrays.

    Args:
        inputs: Features, shape (measurements, features).
        log_ratio: Log ratio of measured to expected device time, shape (measurements,).
        weight: Weight of each measurement, 1 on average, shape (measurements,).
    """

    inputs: NDArray[np.float32]
    log_ratio: FloatArray
    weight: FloatArray


def _table(rows: Sequence[DeviceRow]) -> tuple[list[DeviceRow], _Table]:
    """The measurements ordered by GPU, and their training data in the same order."""
    ordered, inputs, log_ratio, weight = [], [], [], []
    for (gpu, _), group in rows_by_gpu(rows).items():
        operations = [row.operation for row in group]
        ordered += group
        inputs.append(relative_features(operations, gpu).astype(np.float32))
        log_ratio.append(np.log(np.array([row.device_s for row in group]) / counted_s(operations, gpu)))
        # Fifty thousand measurements of one GPU must not outvote five hundred of another.
        weight.append(np.full(len(group), len(group) ** -0.5))
    weights = np.concatenate(weight)
    return ordered, _Table(np.vstack(inputs), np.concatenate(log_ratio), weights / weights.mean())


def inputs_and_targets(rows: Sequence[DeviceRow]) -> tuple[NDArray[np.float32], FloatArray]:
    """Inputs of the trees, shape (rows, inputs), and their targets, shape (rows,)."""
    _, table = _table(rows)
    return table.inputs, table.log_ratio


def measured_kinds(rows: Sequence[DeviceRow]) -> dict[str, frozenset[str]]:
    """Chip -> kinds of which kernels were seen on it."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if not row.hidden:
            found[row.gpu.chip].add(row.operation.kind)
    return {chip: frozenset(kinds) for chip, kinds in sorted(found.items())}


def fit_any_gpu(datasets: Sequence[Dataset], rows: Sequence[DeviceRow], recipe: BoostingRecipe) -> LearnedOperations:
    """Fit device times over the measurements of many GPUs; energies are those of the priors.

    Args:
        datasets: Measurements of several GPUs, for their launch times.
        rows: Device times.
        recipe: Settings of the trees and of the forest.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: scikit-learn or xgboost is not installed.
    """
    if len(rows) < LEAST_ROWS:
        raise DatasetError("too few device times", given=len(rows), allowed=f"from {LEAST_ROWS}")
    ordered, table = _table(rows)
    trees = unfitted_trees(recipe, recipe.trees)
    time = FittedTrees(trees.fit(table.inputs, table.log_ratio, sample_weight=table.weight))
    chips, names = measured_kinds(ordered), frozenset(row.gpu.name for row in ordered)
    forest = _forest(ordered, table, recipe)
    return LearnedOperations(time, forest, chips, PRIOR_ENERGY, launch_times_s(datasets), names)


def _forest(rows: Sequence[DeviceRow], table: _Table, recipe: BoostingRecipe) -> FittedTrees:
    """A forest over some measurements of each kind, GPU, precision and mode, so that none decides for the others."""
    settings = recipe.forest
    groups: dict[tuple[str | bool, ...], list[int]] = defaultdict(list)
    for place in np.random.default_rng(recipe.seed).permutation(len(rows)).tolist():
        row, operation = rows[place], rows[place].operation
        groups[row.gpu.name, operation.kind, operation.precision, operation.mode, row.hidden].append(place)
    sampled = [places[: settings.most_rows] for places in groups.values()]
    some = np.concatenate(sampled)
    weights = np.concatenate([np.full(len(places), len(places) ** -0.5) for places in sampled])
    model = unfitted_forest(settings, recipe.seed)
    return FittedTrees(model.fit(table.inputs[some], table.log_ratio[some], sample_weight=weights / weights.mean()))
