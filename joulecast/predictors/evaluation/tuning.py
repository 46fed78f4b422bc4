"""A short search for better settings of boosted trees on one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...datasets import Dataset
from ...system.cluster import in_parallel
from ..contract import Curves, curves_of
from ..recipes import XGBoostRecipe
from .left_out import in_folds

FOLDS = 3


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and their errors on operations that were held out.

    Args:
        metrics: Median and mean absolute errors of time and power, and "loss", which a search minimizes.
        curves: Learning curves of the first fold, as `curves_of` gives them.
    """

    recipe: XGBoostRecipe
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    curves: Curves = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """The value that a search minimizes: the sum of the mean absolute log errors of time and power."""
        return self.metrics["loss"]


def search(dataset: Dataset, mode: str, recipe: XGBoostRecipe, trials: int) -> Iterator[Trial]:
    """Try settings: first the recipe's own, then others drawn from its search space.

    Raises DatasetError: too few operations.
    """
    rng = np.random.default_rng(recipe.seed)
    names = sorted(recipe.search)
    tried: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number in range(trials):
        if number == 0:
            settings = {name: getattr(recipe, name) for name in names}
        else:
            settings = {name: recipe.search[name][int(rng.integers(len(recipe.search[name])))] for name in names}
        tried.setdefault(tuple(settings.values()), settings)
    calls = [(dataset, mode, recipe, settings) for settings in tried.values()]
    yield from in_parallel(_trial, calls, worthwhile=False, what="settings")


def _trial(dataset: Dataset, mode: str, recipe: XGBoostRecipe, settings: Mapping[str, Any]) -> Trial:
    candidate = replace(recipe, **settings)
    # These folds differ from those of the evaluation, so that the choice of settings does not see its test data.
    judged = replace(candidate, folds=FOLDS, seed=recipe.seed + 1)
    predictors, errors = in_folds(dataset, mode, judged)
    summary = errors.summary()
    metrics = {name: summary[name] for name in ("time_median", "time_mean", "power_median", "power_mean")}
    loss = sum(float(np.nanmean(np.abs(errors.log_errors(quantity)))) for quantity in ("time", "power"))
    return Trial(candidate, settings, {**metrics, "loss": loss}, curves_of(predictors[0]))
