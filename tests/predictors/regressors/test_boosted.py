"""Boosted trees of one GPU: monotone in the work, searched, stored, and refused with impossible settings."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_operations

from joulecast.hardware import find_gpu
from joulecast.predictors.contract import INPUT_NAMES
from joulecast.predictors.evaluation.one_gpu import search
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.physics.relative import relative_features
from joulecast.predictors.recipes import XGBoostRecipe
from joulecast.predictors.regressors.fitted_trees import MORE_WORK, fit_boosted

RECIPE = XGBoostRecipe(trees=120, patience=20, depth=4, learning_rate=0.1, folds=4)
A30 = find_gpu("A30")


@pytest.fixture(scope="module")
def predictor(dataset):
    return fit_chip(dataset, "inference", RECIPE)


def test_it_learns_the_simulated_gpu(predictor, dataset):
    predictions = chip_alone(predictor).predict([m.operation for m in dataset.measurements])
    assert predictions.time_s == pytest.approx([m.time_s for m in dataset.measurements], rel=0.1)
    assert predictions.power_w == pytest.approx([m.power_w for m in dataset.measurements], rel=0.2)


def test_more_work_never_takes_less_time_and_without_the_constraint_noise_is_learned():
    """More work never takes less time; the same trees for power, which are free, do fall."""
    rng = np.random.default_rng(0)
    operations = simulated_operations()
    matrix = relative_features(operations, A30)
    inputs = np.column_stack([matrix, matrix[:, 0], matrix[:, 0]]).astype(np.float32)
    targets = rng.standard_normal(len(operations))
    more = inputs.copy()
    more[:, [INPUT_NAMES.index(name) for name in MORE_WORK]] += 1
    found = {q: fit_boosted(operations, inputs, targets, RECIPE, q) for q in ("time", "power")}
    assert (found["time"](more) >= found["time"](inputs) - 1e-6).all()
    assert (found["power"](more) < found["power"](inputs) - 1e-6).any()


def test_early_stopping_ends_where_nothing_is_learned():
    operations = simulated_operations()
    inputs = np.random.default_rng(0).standard_normal((len(operations), len(INPUT_NAMES))).astype(np.float32)
    noise = np.random.default_rng(1).standard_normal(len(operations))
    stopped = fit_boosted(operations, inputs, noise, RECIPE, "power").model
    assert stopped.n_estimators < 60


def test_search_begins_with_the_recipe_and_finds_what_is_better():
    data = simulated_dataset()
    poor = replace(RECIPE, trees=2, learning_rate=0.01, search={"trees": [2, 80], "learning_rate": [0.01, 0.2]})
    trials = list(search(data, "inference", poor, 6))
    assert trials[0].settings == {"learning_rate": 0.01, "trees": 2}
    assert len({tuple(trial.settings.values()) for trial in trials}) == len(trials) <= 4
    best = min(trials, key=lambda trial: trial.metrics["loss"])
    assert best.recipe.trees == 80
    assert best.metrics["loss"] < 0.8 * trials[0].metrics["loss"]
    assert [trial.settings for trial in search(data, "inference", replace(poor, search={}), 6)] == [{}]
