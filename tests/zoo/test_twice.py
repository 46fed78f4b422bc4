"""Training twice from the same data and seed gives the same files, so the same predictions to the last bit."""

import pytest
from simulated_measurements import simulated_gpu

from conftest import SMALL_RECIPE, train_small
from joulecast.datasets import save
from joulecast.predictors.recipes import BoostingRecipe, TransformerRecipe, XGBoostRecipe
from joulecast.zoo.trainers import train
from joulecast.zoo.training import Loaded, Task

RECIPES = {
    "forest": SMALL_RECIPE,
    "xgboost": XGBoostRecipe(trees=20, patience=5, learning_rate=0.3, folds=2),
    "boosting": BoostingRecipe(trees=10, depth=3, learning_rate=0.3, folds=2),
    "transformer": TransformerRecipe(width=8, kind_layers=1, kind_feed_forward=2, epochs=3, batch=32, folds=2),
}
NEEDED = {"xgboost": "xgboost", "boosting": "xgboost", "transformer": "torch"}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each in ("xgboost", "transformer"))) for each in RECIPES]
)
def test_a_recipe_gives_the_same_files_twice(name, tmp_path):
    recipe = RECIPES[name]
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])

    def contents(folder):
        if name in ("forest", "xgboost"):
            trained = train_small(folder, recipe)
        else:
            data = map(simulated_gpu, ("A30", "T4"))
            trained = train(Task([Loaded(save(d, folder / d.card.gpu), d) for d in data], recipe, quick=True))
        return {path.name: path.read_bytes() for path in trained.save(folder).iterdir()}

    assert contents(tmp_path / "one") == contents(tmp_path / "other")
