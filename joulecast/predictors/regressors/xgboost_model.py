"""Trees of XGBoost, fitted to one GPU (boosted.py) or to many (any_gpu/boosting.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import MissingDependencyError, with_extra
from ..recipes.boosting import BoostingRecipe
from ..recipes.one_model import ModelTrees
from ..recipes.xgboost import XGBoostRecipe
from .trees import Trees, trees_file
from .trees_fitted import trees_of_boosting


@dataclass(frozen=True)
class BoostedRegressor:
    """Fitted XGBoost trees behind the interface of a regressor.

    Args:
        model: The trees.
        curves: Learning curves by name, see `curves_of`.
    """

    model: Any
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict, compare=False)

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """One value per row of inputs."""
        return np.asarray(self.model.predict(inputs), dtype=np.float64)

    def trees(self) -> Trees:
        """The trees as arrays.

        Raises:
            MissingDependencyError: The converter is not installed.
        """
        return trees_of_boosting(self.model)

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`: the trees as arrays, and XGBoost's own format, to explain and to train further.

        Raises:
            MissingDependencyError: The converter is not installed.
        """
        native = bytes(self.model.get_booster().save_raw("ubj"))
        return {trees_file(name): self.trees().to_bytes(), f"{name}.ubj": native}


def unfitted_trees(
    recipe: XGBoostRecipe | BoostingRecipe | ModelTrees,
    trees: int,
    depth: int | None = None,
    **more: Any,
) -> Any:
    """An XGBRegressor that gives the same trees every time.

    Args:
        recipe: Settings of the trees.
        trees: Number of trees.
        depth: Largest number of levels of a tree; None for that of the recipe.
        more: Further arguments of XGBRegressor.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    try:
        from xgboost import XGBRegressor
    except ImportError as error:
        raise MissingDependencyError("training needs xgboost", hint=with_extra("train")) from error
    return XGBRegressor(
        n_estimators=trees,
        max_depth=recipe.depth if depth is None else depth,
        learning_rate=recipe.learning_rate,
        subsample=recipe.subsample,
        colsample_bynode=recipe.features_per_split,
        min_child_weight=recipe.min_child_weight,
        reg_lambda=recipe.regularization,
        tree_method="hist",
        random_state=recipe.seed,
        n_jobs=1,  # With more threads, sums differ in the last bits between runs.
        **more,
    )
