"""Recipes: those that ship load, wrong ones are refused, and all keep one contract once they are fitted."""

from pathlib import Path

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_gpu, simulated_operations

from joulecast.errors import InputError, UnknownNameError
from joulecast.hardware import find_gpu
from joulecast.predictors.fitting.fit import fit_chip, fit_on_all
from joulecast.predictors.fitting.forms import RECIPES, load_recipe, predictor_of
from joulecast.predictors.model.shared import SharedByAll, chip_alone
from joulecast.predictors.recipes import (
    BoostingRecipe,
    ForestRecipe,
    KernelRecipe,
    RooflineRecipe,
    SharedForestRecipe,
    TransformerRecipe,
    XGBoostRecipe,
    load_kernel_recipe,
)
from joulecast.zoo.trainers import TRAINERS

for library in ("sklearn", "xgboost", "torch"):
    pytest.importorskip(library)

TREES = BoostingRecipe(trees=10, depth=3, learning_rate=0.3)
SMALL = {
    "forest": ForestRecipe(trees=4),
    "xgboost": XGBoostRecipe(),
    "roofline": RooflineRecipe(),
    "shared-forest": SharedForestRecipe(trees=4),
    "boosting": TREES,
    "transformer": TransformerRecipe(width=8, heads=2, kind_layers=1, epochs=2, batch=32),
}
A30 = find_gpu("A30")


def test_every_recipe_is_tested_here_and_listed_in_every_table():
    assert list(SMALL) == list(RECIPES)
    assert [type(recipe) for recipe in SMALL.values()] == list(RECIPES.values())
    assert set(TRAINERS) == set(RECIPES.values())


@pytest.mark.parametrize("name", SMALL)
def test_every_recipe_keeps_the_contract(name):
    recipe, operations = SMALL[name], simulated_operations()
    own = name in ("forest", "xgboost")

    def fitted():
        if own:
            return chip_alone(fit_chip(simulated_dataset(), "inference", recipe))
        return SharedByAll(fit_on_all([simulated_gpu("A30"), simulated_gpu("T4")], (), recipe)).on(A30, "inference")

    predictor = fitted()
    assert (predictor.gpu, predictor.mode) == (A30, "inference")
    whole, slow, capped = (predictor.predict(operations, *how) for how in ((), (600,), (None, 100.0)))
    for found in (whole, slow, capped):
        assert np.all(found.device_time_s >= 0)
        assert np.all(found.dynamic_energy_j >= 0)
        assert found.energy_j == pytest.approx(found.power_w * found.time_s)
    assert np.all(slow.device_time_s >= whole.device_time_s * 0.999)
    assert np.all(capped.device_time_s >= whole.device_time_s * 0.999)
    assert capped.power_w.max() < whole.power_w.max()
    # Knowledge about whole networks must not change the predictions of their operations as loops.
    for again in (fitted().predict(operations), predictor.in_network(whole)):
        assert np.array_equal(again.time_s, whole.time_s)
    with pytest.raises(InputError):
        predictor.predict([operations[0].replace(mode="training")])


FOLDER = Path(__file__).resolve().parents[2] / "predictors"
KERNELS = FOLDER / "kernels.toml"
SHIPPED = sorted(path for path in FOLDER.glob("*.toml") if path != KERNELS)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_load(path):
    recipe = load_recipe(path)
    assert recipe.folds == (4 if path.name in ("any-gpu.toml", "boosting.toml") else 10)
    assert type(recipe) in TRAINERS
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
    *(("forest", f"trees = {wrong}", InputError, "an integer from 1") for wrong in ("0", "true", "1e30")),
    ("forest", "folds = 1", InputError, "from 2"),
    ("forest", "seed = -1", InputError, "seed of a recipe"),
    ("forest", "max_features = 1.5", InputError, "to 1"),
    ("forest", 'forest = "pine"', UnknownNameError, "extra_trees"),
    *(("forest", f"max_features = {share}", InputError, "to 1") for share in ("0.0", '"0.5"', "true")),
    ("xgboost", "depth = 3.0", InputError, "an integer from 1 to 16"),
    ("xgboost", "learning_rate = 2.0", InputError, "learning_rate"),
    ("xgboost", "min_child_weight = -1.0", InputError, "a decimal number from 0$"),
    ("xgboost", "[search]\nfolds = [3]", UnknownNameError, "setting to search"),
    ("xgboost", "[search]\ndepth = []", InputError, "list of values"),
    ("xgboost", "[search]\ndepth = [4, 99]", InputError, "depth"),
    ("xgboost", "search = 3", InputError, "cannot be read"),
    ("transformer", "width = 50\nheads = 4", InputError, "k x 4"),
    ("transformer", 'stacks = "two"', UnknownNameError, "key of a transformer recipe"),
    ("transformer", "batch = true", InputError, "an integer from 1"),
    ("transformer", "matrix_learning_rate = 0.0", InputError, "to 1"),
    ("transformer", "unknown_kinds = 0.6", InputError, "0 to 0.5"),
    ("kernels", "quantile = 2.0", InputError, "quantile"),
    ("kernels", "generation = 3", InputError, "generation"),
    ("kernels", "[generation]\ntrees = 0", InputError, "trees"),
    ("kernels", "[generation]\nbranches = 3", UnknownNameError, "branches"),
    ("kernels", "depth = 3", UnknownNameError, "depth"),
]


@pytest.mark.parametrize(("predictor", "text", "error", "says"), WRONG, ids=[f"{each[0]}: {each[1]}" for each in WRONG])
def test_wrong_recipes_are_refused(tmp_path, predictor, text, error, says):
    named = f'predictor = "{predictor}"\n' if predictor not in ("", "kernels") else ""
    (tmp_path / "r.toml").write_text(named + text)
    with pytest.raises(error, match=says):
        (load_kernel_recipe if predictor == "kernels" else load_recipe)(tmp_path / "r.toml")
