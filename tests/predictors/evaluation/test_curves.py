"""Learning curves of everything that is fitted step by step."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_gpu

from joulecast.predictors.contract import curves_of
from joulecast.predictors.fitting.fit import fit_chip, fit_on_all
from joulecast.predictors.recipes import ForestRecipe, TransformerRecipe, XGBoostRecipe

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
