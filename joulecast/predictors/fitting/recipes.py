"""Recipes: a predictor and its hyperparameters, as TOML files under `predictors/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...errors import InputError, unknown_name
from ...system.damage import refusing_damage
from ...system.regular_files import MOST_BYTES, read_regular
from ...system.resources import named_file
from ..recipes.perceptron import PerceptronRecipe
from ..recipes.settings import Recipe
from ..regressors.forms import ONE_GPU_FORMS
from .any_gpu import ANY_GPU_FORMS

RECIPES: Mapping[str, Any] = {
    **{name: form.settings for name, form in ONE_GPU_FORMS.items()},
    **{name: form.settings for name, form in ANY_GPU_FORMS.items()},
}
"""Name of a predictor -> class of its settings."""


def predictor_of(recipe: Recipe) -> str:
    """The name of the predictor in files of this class of recipes."""
    return next(name for name, settings in RECIPES.items() if settings is type(recipe))


def _perceptron(value: object) -> PerceptronRecipe:
    if not isinstance(value, dict):
        raise InputError("the perceptron of a recipe is not a table", given=repr(value), allowed="[perceptron]")
    known = [field.name for field in fields(PerceptronRecipe)]
    for key in value:
        if key not in known:
            raise unknown_name("key of a perceptron", key, known)
    return PerceptronRecipe(**value)


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe.

    Args:
        path: A TOML file, or the name of a recipe that came with joulecast, such as "blend".

    Raises:
        InputError: The file cannot be read, or a value is out of range.
        UnknownNameError: The predictor or a key does not exist.
    """
    path = named_file(path, "predictors", "recipe")
    with refusing_damage("this recipe cannot be read", path):
        return _recipe(tomllib.loads(read_regular(path, MOST_BYTES, "this recipe").decode()), path)


def _recipe(values: dict[str, Any], path: Path) -> Recipe:
    name = values.pop("predictor", None)
    if name not in RECIPES:
        raise unknown_name("predictor of a recipe", name, RECIPES)
    known = [field.name for field in fields(RECIPES[name])]
    for key in values:
        if key not in known:
            raise unknown_name(f"key of a {name} recipe", key, known)
    if "perceptron" in values:
        values["perceptron"] = _perceptron(values["perceptron"])
    recipe: Recipe = RECIPES[name](**values)
    return recipe
