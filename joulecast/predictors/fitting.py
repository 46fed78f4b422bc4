"""Fitting a predictor of one GPU and mode on its own measurements, whichever recipe says how."""

from __future__ import annotations

from collections.abc import Collection

from ..datasets import Dataset
from ..operations import Operation
from .forest import fit_forest
from .predictor import OperationPredictor
from .recipe import OwnRecipe


def fit_own(
    dataset: Dataset, mode: str, recipe: OwnRecipe, *, without: Collection[Operation] = ()
) -> OperationPredictor:
    """Fit time and power of one mode on a dataset.

    Args:
        dataset: Of one GPU at its default clock.
        mode: inference or training.
        recipe: Which regressors, with which settings.
        without: Operations to leave out, all their repeats with them.

    Raises:
        DatasetError: Too few usable operations of this mode.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    return fit_forest(dataset, mode, recipe, without=without)
