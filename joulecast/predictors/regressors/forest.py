"""Forests: regressors of decision trees, fitted with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import MissingDependencyError, with_extra
from ...operations.operation import Operation
from ..recipes.forest import ForestRecipe
from .trees import trees_file
from .trees_fitted import trees_of_forest


@dataclass(frozen=True)
class ForestRegressor:
    """A fitted scikit-learn forest behind the interface of a regressor."""

    model: Any

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """One value per row of inputs."""
        values: NDArray[np.float64] = self.model.predict(inputs)
        return values

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`: the trees as arrays.

        Raises:
            MissingDependencyError: The converter is not installed.
        """
        return {trees_file(name): trees_of_forest(self.model).to_bytes()}


def fit_forest(
    operations: Sequence[Operation],
    inputs: NDArray[np.float32],
    targets: FloatArray,
    recipe: ForestRecipe,
    quantity: str,
) -> ForestRegressor:
    """See `OneGpuForm.fit`; time and power are fitted alike."""
    return fit_trees(inputs, targets, recipe)


def fit_trees(inputs: NDArray[np.float32], targets: FloatArray, recipe: ForestRecipe) -> ForestRegressor:
    """Fit a forest.

    Args:
        inputs: Inputs, shape (measurements, columns).
        targets: What to predict, shape (measurements,).
        recipe: Settings of the forest.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
    except ImportError as error:
        raise MissingDependencyError("training needs scikit-learn", hint=with_extra("train")) from error
    forest = {"extra_trees": ExtraTreesRegressor, "random_forest": RandomForestRegressor}[recipe.forest]
    model = forest(
        n_estimators=recipe.trees,
        max_features=recipe.max_features,
        min_samples_leaf=recipe.min_samples_leaf,
        random_state=recipe.seed,
        n_jobs=1,  # With more threads, sums differ in the last bits between runs.
    )
    return ForestRegressor(model.fit(inputs, targets))
