"""Recipes: those that ship load, and wrong ones are refused."""

from dataclasses import fields
from pathlib import Path

import pytest

from joulecast.cli.recipes import HANDLERS
from joulecast.errors import InputError, UnknownNameError
from joulecast.predictors.fitting.fit import load_recipe, predictor_of
from joulecast.predictors.recipes import KernelRecipe, SharedForestRecipe, TransformerRecipe, load_kernel_recipe

FOLDER = Path(__file__).resolve().parents[2] / "predictors"
KERNELS = FOLDER / "kernels.toml"
SHIPPED = sorted(path for path in FOLDER.glob("*.toml") if path != KERNELS)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_load(path):
    recipe = load_recipe(path)
    assert recipe.folds == (4 if path.name in ("any-gpu.toml", "boosting.toml") else 10)
    assert type(recipe) in HANDLERS
    assert f'predictor = "{predictor_of(recipe)}"' in path.read_text()


def test_shipped_recipes_say_what_the_defaults_are():
    assert load_recipe(FOLDER / "transformer.toml") == TransformerRecipe()
    assert load_kernel_recipe(KERNELS) == KernelRecipe()


# Predictor -> wrong settings, the error, and what it says.
WRONG = [
    ("", "trees = 3", UnknownNameError, "predictor"),
    ("", 'predictor = "florest"', UnknownNameError, "did you mean forest"),
    ("", "predictor = ", InputError, "cannot be read"),
    ("forest", "treees = 3", UnknownNameError, "did you mean trees"),
    ("forest", "trees = 0", InputError, "an integer from 1"),
    ("forest", "folds = 1", InputError, "from 2"),
    ("forest", "seed = -1", InputError, "seed of a recipe"),
    ("forest", "max_features = 1.5", InputError, "to 1"),
    ("forest", "max_features = 0.0", InputError, "max_features"),
    ("forest", 'forest = "pine"', UnknownNameError, "extra_trees"),
    ("roofline", "folds = 1", InputError, "from 2"),
    *(("forest", f"max_features = {share}", InputError, "to 1") for share in ("-0.1", "1.1", '"0.5"', "true")),
    ("xgboost", "trees = 0", InputError, "trees of a recipe"),
    ("xgboost", "depth = 3.0", InputError, "an integer from 1 to 16"),
    ("xgboost", "learning_rate = 2.0", InputError, "learning_rate"),
    ("xgboost", "patience = true", InputError, "patience"),
    ("xgboost", "min_child_weight = -1.0", InputError, "a decimal number from 0$"),
    ("xgboost", "[search]\nfolds = [3]", UnknownNameError, "setting to search"),
    ("xgboost", "[search]\ndepth = []", InputError, "list of values"),
    ("xgboost", "[search]\ndepth = [4, 99]", InputError, "depth"),
    ("xgboost", "search = 3", InputError, "cannot be read"),
    ("shared-forest", "depth = 3", UnknownNameError, "depth"),
    ("transformer", "width = 50\nheads = 4", InputError, "k x 4"),
    ("transformer", "positional_encoding = true\nwidth = 9\nheads = 3", InputError, "k x 2"),
    ("transformer", 'positional_encoding = "yes"', InputError, "neither true nor false"),
    ("transformer", "layer_norm = 1", InputError, "neither true nor false"),
    ("transformer", "epochs = 1.5", InputError, "epochs"),
    ("transformer", 'stacks = "two"', UnknownNameError, "three"),
    ("transformer", "unknown_kinds = 0.6", InputError, "0 to 0.5"),
    ("kernels", "quantile = 2.0", InputError, "quantile"),
    ("kernels", "most_rows = 99", InputError, "most_rows"),
    ("kernels", "folds = 1", InputError, "folds"),
    ("kernels", "generation = 3", InputError, "generation"),
    ("kernels", "[generation]\ntrees = 0", InputError, "trees"),
    ("kernels", "[generation]\nleaves = 3", UnknownNameError, "leaves"),
    ("kernels", "depth = 3", UnknownNameError, "depth"),
    ("kernels", "quantile =", InputError, "cannot be read"),
]


@pytest.mark.parametrize(("predictor", "text", "error", "says"), WRONG, ids=[f"{each[0]}: {each[1]}" for each in WRONG])
def test_wrong_recipes_are_refused(tmp_path, predictor, text, error, says):
    named = f'predictor = "{predictor}"\n' if predictor not in ("", "kernels") else ""
    (tmp_path / "r.toml").write_text(named + text)
    with pytest.raises(error, match=says):
        (load_kernel_recipe if predictor == "kernels" else load_recipe)(tmp_path / "r.toml")


@pytest.mark.parametrize("field", [field.name for field in fields(SharedForestRecipe)])
@pytest.mark.parametrize("wrong", [-1, True, "many", 1e30])
def test_wrong_settings_of_a_forest_are_refused(field, wrong):
    with pytest.raises(InputError, match=field):
        SharedForestRecipe(**{field: wrong})
