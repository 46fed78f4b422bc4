"""The table of recipes: what each is called in a TOML file and in the zoo, and how a residual model is fitted and read.

Reading an entry for any GPU needs this table, but no training: what fits is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import unknown_name
from ..contract import Files, ResidualModel
from ..model.operations import LearnedOperations
from ..model.shared import NoResidual, SharedByAll
from ..recipes import (
    BoostingRecipe,
    Recipe,
    RooflineRecipe,
    SharedForestRecipe,
    TransformerRecipe,
    read_recipe,
    recipe_of,
)
from ..regressors.fitted_trees import ONE_GPU_FORMS, form_of
from ..transformer.attentive import Attentive

if TYPE_CHECKING:
    from ...datasets import Dataset
    from ..measured import DeviceRow


class AnyGpuForm(NamedTuple):
    """How a recipe is fitted to give a residual model, and how that model is read from an entry.

    Args:
        settings: Class of the recipe: a frozen dataclass with `folds`, `seed` and `to_dict`. Its fields are the keys of
            the TOML file.
        from_files: Function that reads what the residual model's `to_files` wrote. It raises ZooError, KeyError,
            TypeError or ValueError for anything else, and runs no code from the files.
        operations: First step: a function of datasets (for their launch times), device times and the recipe that
            returns a residual model, a dataclass with its energy constants.
        quicker: Function that turns the recipe into one that is fitted more quickly, for a quick validation.
    """

    settings: type[Any]
    from_files: Callable[[Mapping[str, Any], Files], ResidualModel]
    operations: Callable[[Sequence[Dataset], Sequence[DeviceRow], Any], ResidualModel]
    quicker: Callable[[Any], Recipe] = lambda recipe: recipe


def quicker(recipe: Recipe) -> Recipe:
    """See `AnyGpuForm.quicker`."""
    return form_of(recipe, ANY_GPU_FORMS).quicker(recipe)


def _transformer(datasets: Sequence[Dataset], rows: Sequence[DeviceRow], recipe: TransformerRecipe) -> Attentive:
    # Imported here, because it needs torch.
    from ..transformer.fit import fit_transformer

    return fit_transformer(datasets, rows, recipe)


def _learned(
    datasets: Sequence[Dataset], rows: Sequence[DeviceRow], recipe: SharedForestRecipe | BoostingRecipe
) -> LearnedOperations:
    # Imported here, because reading an entry needs no training.
    from ..model.fit_networks import fit_energies
    from ..model.fit_operations import fit_any_gpu

    learned = fit_any_gpu(datasets, rows, recipe, predictor_of(recipe))
    return replace(learned, energy=fit_energies(rows, (), SharedByAll(learned)))


ANY_GPU_FORMS: Mapping[str, AnyGpuForm] = {
    "roofline": AnyGpuForm(RooflineRecipe, NoResidual.from_files, lambda datasets, rows, recipe: NoResidual()),
    "shared-forest": AnyGpuForm(SharedForestRecipe, LearnedOperations.from_files, _learned),
    "boosting": AnyGpuForm(BoostingRecipe, LearnedOperations.from_files, _learned),
    "transformer": AnyGpuForm(
        TransformerRecipe,
        Attentive.from_files,
        _transformer,
        quicker=lambda recipe: replace(recipe, epochs=-(-recipe.epochs // 3)),
    ),
}
"""Name of a predictor in a recipe and in the zoo -> its form."""


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
        raise unknown_name(
            "predictor of a recipe",
            name,
            RECIPES,
            hint=None if name else "`joulecast train-kernels` takes those of kernels",
        )
    return recipe_of(RECIPES[name], values, f"{name} recipe")
