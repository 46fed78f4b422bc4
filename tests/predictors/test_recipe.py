"""Recipes: those that ship load, and wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulecast.cli.recipes import HANDLERS
from joulecast.errors import InputError, UnknownNameError
from joulecast.predictors.fitting.fit import load_recipe, predictor_of
from joulecast.predictors.recipes import TransformerRecipe

RECIPES = Path(__file__).resolve().parents[2] / "predictors"
KERNELS = "kernels.toml"  # A recipe of another form: see test_kernels.py.
SHIPPED = sorted(path for path in RECIPES.glob("*.toml") if path.name != KERNELS)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_load(path):
    recipe = load_recipe(path)
    assert recipe.folds == 10
    assert type(recipe) in HANDLERS
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
        ('predictor = "forest"\nmax_features = 1.5', InputError, "to 1"),
        ('predictor = "forest"\nforest = "pine"', UnknownNameError, "extra_trees"),
        ("predictor = ", InputError, "cannot be read"),
    ],
)
def test_wrong_recipes_are_refused(tmp_path, text, error, says):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(error, match=says):
        load_recipe(tmp_path / "r.toml")


def test_shipped_transformer_is_the_default():
    assert load_recipe(RECIPES / "transformer.toml") == TransformerRecipe()
