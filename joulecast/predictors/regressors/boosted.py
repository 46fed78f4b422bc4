"""Boosted trees of one GPU, fitted with XGBoost: monotone in the work, with early stopping on held-out operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation
from ..measured.splits import fold_of
from ..predictor import INPUT_NAMES
from ..recipes.xgboost import XGBoostRecipe
from .xgboost_model import BoostedRegressor, unfitted_trees

MORE_WORK: tuple[str, ...] = (
    "log_roofline",
    "log_compute_time",
    "log_memory_time",
    "log_flops",
    "log_bytes_read",
    "log_bytes_written",
    "log_input_size",
    "log_output_size",
    "log_parameters",
    "log_batch",
    "log_positions",
    "log_rows",
    "log_waves",
    "log_cache_fill",
    "log_baseline",
    "log_baseline_over_host",
)
"""Inputs that grow with the amount of work. The baseline's time grows with the roofline. Its correction must not fall
with any of these inputs, so that their product, the time, never falls when one of them grows and the others stay."""

_STOPPING_FOLDS = 10  # Folds for early stopping; one of them is held out.
_LEAST_HELD = 5


def fit_boosted(
    operations: Sequence[Operation],
    inputs: NDArray[np.float32],
    targets: FloatArray,
    recipe: XGBoostRecipe,
    quantity: str,
) -> BoostedRegressor:
    """Fit boosted trees.

    The number of trees is found by early stopping on a tenth of the operations, with all variants of an operation on
    one side of the split. That many trees are then fitted to all operations.

    Args:
        operations: The measured operations.
        inputs: Inputs, shape (operations, len(INPUT_NAMES)).
        targets: What to predict, shape (operations,).
        recipe: Settings of the trees.
        quantity: "time" is monotone in the work; "power" is not: a larger operation may wait for memory.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    fold = fold_of(set(operations), _STOPPING_FOLDS, recipe.seed)
    held = np.array([fold[operation] == 0 for operation in operations])
    trees = recipe.trees
    curves: Mapping[str, Sequence[float]] = {}
    monotone = tuple(int(quantity == "time" and name in MORE_WORK) for name in INPUT_NAMES)
    if _LEAST_HELD <= held.sum() < len(operations):
        stopped = unfitted_trees(recipe, trees, monotone_constraints=monotone, early_stopping_rounds=recipe.patience)
        seen, unseen = (inputs[~held], targets[~held]), (inputs[held], targets[held])
        stopped.fit(*seen, eval_set=[seen, unseen], verbose=False)  # Early stopping uses the last set.
        trees = int(stopped.best_iteration) + 1
        rmse = [each["rmse"] for each in stopped.evals_result().values()]
        curves = dict(zip(("fitted_rmse", "held_out_rmse"), rmse, strict=True))
    model = unfitted_trees(recipe, trees, monotone_constraints=monotone)
    return BoostedRegressor(model.fit(inputs, targets), curves)
