"""Training twice from the same data and seed gives the same files, so the same predictions to the last bit."""

import pytest
from simulated_measurements import simulated_gpu

from conftest import SMALL_RECIPE, train_small
from joulecast.datasets import save
from joulecast.predictors.recipes import BoostingRecipe, TransformerRecipe, XGBoostRecipe
from joulecast.zoo.training import Loaded, train_any_gpu

OWN = {
    "forest": SMALL_RECIPE,
    "xgboost": XGBoostRecipe(trees=20, patience=5, learning_rate=0.3, folds=2),
}
ANY_GPU = {
    "boosting": BoostingRecipe(trees=10, depth=3, learning_rate=0.3, folds=2),
    "transformer": TransformerRecipe(width=8, kind_layers=1, kind_feed_forward=2, epochs=3, batch=32, folds=2),
}


def by_name(recipes):
    """Those that are quick to train run always, the others run with `pytest -m slow`."""
    return [
        pytest.param(recipe, id=name, marks=[pytest.mark.slow] if name in ("xgboost", "transformer") else [])
        for name, recipe in recipes.items()
    ]


def contents(entry):
    return {path.name: path.read_bytes() for path in entry.iterdir()}


@pytest.mark.parametrize("recipe", by_name(OWN))
def test_a_recipe_for_one_gpu_gives_the_same_files_twice(recipe, tmp_path):
    if isinstance(recipe, XGBoostRecipe):
        pytest.importorskip("xgboost")
    one, other = (contents(train_small(tmp_path / name, recipe).save(tmp_path / name)) for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize("recipe", by_name(ANY_GPU))
def test_a_recipe_for_any_gpu_gives_the_same_files_twice(recipe, tmp_path):
    pytest.importorskip("torch" if isinstance(recipe, TransformerRecipe) else "xgboost")
    datasets = [Loaded(save(data, tmp_path / data.card.gpu), data) for data in map(simulated_gpu, ("A30", "T4"))]
    one, other = (
        contents(train_any_gpu(datasets, recipe, quick=True).save(tmp_path / name)) for name in ("one", "other")
    )
    assert one == other
