"""Fitting what is learned of operations over the measurements of many GPUs: one set of trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ...datasets import Dataset
from ...errors import DatasetError
from ...hardware import GPU
from ..measured import LEAST_ROWS, DeviceRow, launch_times_s
from ..physics.energy import PRIOR_ENERGY
from ..physics.fp32_kernels import counted_s
from ..physics.relative import relative_features
from ..recipes import BoostingRecipe, SharedForestRecipe, SharedRecipe
from ..regressors.fitted_trees import FittedTrees, unfitted_forest, unfitted_trees
from .operations import LearnedOperations

_COUNTED = 600  # Measurements of a kind, precision and mode on a GPU from which on more give it no more weight.


def measured_kinds(rows: Sequence[DeviceRow]) -> dict[str, frozenset[str]]:
    """Chip -> kinds of which kernels were seen on it."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if not row.hidden:
            found[row.gpu.chip].add(row.operation.kind)
    return {chip: frozenset(kinds) for chip, kinds in sorted(found.items())}


def fit_any_gpu(
    datasets: Sequence[Dataset], rows: Sequence[DeviceRow], recipe: SharedForestRecipe | BoostingRecipe, learner: str
) -> LearnedOperations:
    """Fit device times over the measurements of many GPUs; energies are those of the priors.

    Args:
        datasets: Measurements of several GPUs, for their launch times.
        rows: Device times.
        recipe: Settings of the trees.
        learner: Name of the recipe.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: scikit-learn or xgboost is not installed.
    """
    if len(rows) < LEAST_ROWS:
        raise DatasetError("too few device times", given=len(rows), allowed=f"from {LEAST_ROWS}")
    tables, targets, weights = [], [], []
    for (gpu, *_), some in _drawn(rows, recipe).items():
        operations = [row.operation for row in some]
        tables.append(relative_features(operations, gpu).astype(np.float32))
        targets.append(np.log(np.array([row.device_s for row in some]) / counted_s(operations, gpu)))
        # Thousands of measurements must not outvote a few of another kind or GPU.
        weights.append(np.full(len(some), min(len(some), _COUNTED) ** 0.5 / len(some)))
    weight = np.concatenate(weights)
    trees = unfitted_forest(recipe) if isinstance(recipe, SharedForestRecipe) else unfitted_trees(recipe, recipe.trees)
    trees.fit(np.vstack(tables), np.concatenate(targets), sample_weight=weight / weight.mean())
    chips, names = measured_kinds(rows), frozenset(row.gpu.name for row in rows)
    return LearnedOperations(learner, FittedTrees(trees), chips, PRIOR_ENERGY, launch_times_s(datasets), names)


def _drawn(rows: Sequence[DeviceRow], recipe: SharedRecipe) -> dict[tuple[GPU, str, str, str, bool], list[DeviceRow]]:
    """Some measurements of each GPU, kind, precision and mode, drawn at random, so that none decides for the others."""
    groups: dict[tuple[GPU, str, str, str, bool], list[DeviceRow]] = defaultdict(list)
    for place in np.random.default_rng(recipe.seed).permutation(len(rows)).tolist():
        row, operation = rows[place], rows[place].operation
        groups[row.gpu, operation.kind, operation.precision, operation.mode, row.hidden].append(row)
    return {key: some[: recipe.most_rows] for key, some in groups.items()}
