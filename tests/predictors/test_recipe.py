"""Recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulecast.cli.recipes import WAYS
from joulecast.errors import InputError, UnknownNameError
from joulecast.predictors.any_gpu_fitting import STEPS
from joulecast.predictors.recipe import AnyGpuRecipe, load_recipe, predictor_of

RECIPES = (Path(__file__).resolve().parents[2] / "predictors").glob("*.toml")
# The transformer has a loader of its own until `joulecast train` takes it.
SHIPPED = sorted(path for path in RECIPES if path.stem != "transformer")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_load(path):
    recipe = load_recipe(path)
    assert recipe.folds == 10
    assert type(recipe) in WAYS
    assert (type(recipe) in STEPS) == isinstance(recipe, AnyGpuRecipe)
    assert f'predictor = "{predictor_of(recipe)}"' in path.read_text()


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ('predictor = "florest"', UnknownNameError, "did you mean forest"),
        ("trees = 3", UnknownNameError, "predictor"),
        ('predictor = "forest"\ntreees = 3', UnknownNameError, "did you mean trees"),
        ('predictor = "forest"\ntrees = 0', InputError, "from 1"),
        ('predictor = "forest"\nfolds = 1', InputError, "from 2"),
        ('predictor = "roofline"\nfolds = 1', InputError, "from 2"),
        ('predictor = "forest"\nmax_features = 1.5', InputError, "at most 1"),
        ('predictor = "forest"\nforest = "pine"', UnknownNameError, "extra_trees"),
        ("predictor = ", InputError, "cannot be read"),
    ],
)
def test_wrong_recipes_are_refused(tmp_path, text, error, says):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(error, match=says):
        load_recipe(tmp_path / "r.toml")
