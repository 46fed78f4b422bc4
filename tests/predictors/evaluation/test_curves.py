"""Learning curves of everything that is fitted step by step."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_gpu

from joulecast.predictors.contract import curves_of
from joulecast.predictors.evaluation.any_gpu import cross_validate
from joulecast.predictors.fitting.fit import fit_chip, fit_on_all
from joulecast.predictors.measured import device_rows
from joulecast.predictors.model.fit_operations import inputs_and_targets
from joulecast.predictors.recipes import BoostingRecipe, ForestRecipe, TransformerRecipe, XGBoostRecipe
from joulecast.predictors.regressors.fitted_trees import FittedTrees, unfitted_trees

TREES = BoostingRecipe(trees=10, depth=3, learning_rate=0.3, folds=2)
STOPPED = XGBoostRecipe(trees=60, patience=5, learning_rate=0.3)


@pytest.fixture(scope="module")
def dataset():
    return replace(simulated_dataset(), networks=())


def test_boosted_trees_have_the_errors_that_they_stopped_by(dataset):
    pytest.importorskip("xgboost")
    curves = curves_of(fit_chip(dataset, "inference", STOPPED))
    assert set(curves) == {f"{q}/{of}_rmse" for q in ("time", "power") for of in ("fitted", "held_out")}
    for quantity in ("time", "power"):
        seen, unseen = (curves[f"{quantity}/{of}_rmse"] for of in ("fitted", "held_out"))
        assert len(seen) == len(unseen) > 5
        assert seen[-1] < seen[0] / 2
        assert min(unseen) < unseen[0]


def test_forests_have_no_curves(dataset):
    assert curves_of(fit_chip(dataset, "inference", ForestRecipe(trees=4, folds=2))) == {}


def test_a_transformer_has_its_losses_by_epoch():
    pytest.importorskip("torch")
    pytest.importorskip("xgboost")
    tiny = TransformerRecipe(width=8, heads=2, kind_layers=1, kind_feed_forward=2, epochs=6, batch=32, together=0.3)
    curves = curves_of(fit_on_all([simulated_gpu("A30")], (), tiny))
    assert set(curves) == {f"transformer/loss_{how}" for how in ("alone", "together")}
    alone = np.array(curves["transformer/loss_alone"])
    assert len(alone) == 6
    assert np.nanmean(alone[-2:]) < np.nanmean(alone[:2])


def test_trees_for_any_gpu_are_judged_on_the_first_fold():
    pytest.importorskip("xgboost")
    rows = [row for gpu in ("A30", "T4", "L4") for row in device_rows(simulated_gpu(gpu))]
    _, curves = cross_validate(rows, TREES)
    (values,) = curves.values()
    assert len(values) == 10
    assert values[-1] < values[0]


def test_the_last_error_of_a_curve_is_that_of_all_trees():
    pytest.importorskip("xgboost")
    rows = device_rows(simulated_gpu("A30"))
    inputs, targets = inputs_and_targets(rows)
    regressor = FittedTrees(unfitted_trees(TREES, 150).fit(inputs[::2], targets[::2]))
    values = regressor.error_by_trees(inputs[1::2], targets[1::2])
    assert len(values) == 100
    assert values[-1] == pytest.approx(np.abs(regressor(inputs[1::2]) - targets[1::2]).mean(), rel=1e-4)
