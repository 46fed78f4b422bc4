"""One way to fit any recipe: `fit(recipe, datasets, networks).on(gpu, mode).predict(operations, clock_mhz)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...datasets import Dataset
from ...errors import InputError, unknown_name
from ...hardware import GPU, find_gpu
from ...operations.operation import MODES
from ..contract import Fit, Fitted, Networks
from ..predictor import OperationPredictor
from ..recipes import Recipe, read_recipe, recipe_of
from ..regressors.forms import ONE_GPU_FORMS
from .any_gpu import ANY_GPU_FORMS, fit_on_all
from .one_gpu import fit_own

RECIPES: Mapping[str, type[Recipe]] = {
    name: form.settings for forms in (ONE_GPU_FORMS, ANY_GPU_FORMS) for name, form in forms.items()
}
"""Name of a predictor -> class of its settings."""


def predictor_of(recipe: Recipe) -> str:
    """The name of the predictor in files of this class of recipes."""
    return next(name for name, settings in RECIPES.items() if settings is type(recipe))


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe; see `read_recipe`. Its key `predictor` is a name in RECIPES."""
    return read_recipe(path, _recipe)


def _recipe(values: dict[str, Any]) -> Recipe:
    name = values.pop("predictor", None)
    if name not in RECIPES:
        raise unknown_name("predictor of a recipe", name, RECIPES)
    return recipe_of(RECIPES[name], values, f"{name} recipe")


@dataclass(frozen=True)
class FittedOwn:
    """Predictors of single GPUs, each fitted on its own measurements."""

    predictors: Mapping[tuple[str, str], OperationPredictor]

    def on(self, gpu: GPU, mode: str) -> OperationPredictor:
        """See `Fitted.on`."""
        if (gpu.name, mode) not in self.predictors:
            raise InputError(
                "this recipe was fitted for other GPUs and modes",
                given=f"{gpu.name}, {mode}",
                allowed="; ".join(", ".join(each) for each in self.predictors),
                hint="give it a dataset of this GPU, or take a recipe for any GPU",
            )
        return self.predictors[gpu.name, mode]


def fit(recipe: Recipe, datasets: Sequence[Dataset], networks: Networks = ()) -> Fitted:
    """Fit a recipe.

    Args:
        recipe: Settings of any predictor in `RECIPES`.
        datasets: Measurements of the GPUs to predict, or of any GPUs, depending on the recipe.
        networks: Measured networks to learn from. A GPU's own predictor does not use them.

    Raises:
        DatasetError: There are too few measurements.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    return FITS[type(recipe)](datasets, networks, recipe)


def _fit_own(datasets: Sequence[Dataset], networks: Networks, recipe: Recipe) -> FittedOwn:
    return FittedOwn(
        {
            (find_gpu(dataset.card.gpu).name, mode): fit_own(dataset, mode, recipe)
            for dataset in datasets
            for mode in MODES
            if dataset.usable(mode)
        }
    )


FITS: Mapping[type[Recipe], Fit] = {
    **{form.settings: _fit_own for form in ONE_GPU_FORMS.values()},
    **{form.settings: fit_on_all for form in ANY_GPU_FORMS.values()},
}
"""Class of recipe -> function that fits it."""
