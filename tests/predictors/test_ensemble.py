"""A GPU's own predictor beside the one for any GPU: who is asked about what, and that its laws hold."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import simulated_dataset, simulated_gpu, simulated_operations
from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.predictors.any_gpu import AnyGpuPredictor
from joulecast.predictors.boosting import device_rows, fit_any_gpu
from joulecast.predictors.ensemble import EnsemblePredictor, Others
from joulecast.predictors.forest import fit_forest
from joulecast.predictors.recipe import BoostingRecipe, ForestRecipe

pytest.importorskip("xgboost", reason="fits boosted trees")
RECIPE = BoostingRecipe(trees=40, depth=4, learning_rate=0.2, folds=2)
UNSEEN = Operation("conv2d", [(32, 48, 30, 30)], {"out_channels": 48, "kernel_size": 3, "padding": 1, "bias": False})


@pytest.fixture(scope="module")
def ensemble() -> EnsemblePredictor:
    own = fit_forest(simulated_dataset(), "inference", ForestRecipe(trees=8, folds=2))
    learned = fit_any_gpu([simulated_gpu("A30"), simulated_gpu("T4")], (), RECIPE)
    return EnsemblePredictor(own, AnyGpuPredictor(find_gpu("A30"), "inference", learned))


def test_what_was_measured_is_left_as_it_is(ensemble):
    operations = simulated_operations()
    alone, together = ensemble.own.predict(operations), ensemble.predict(operations)
    assert together.time_s.tolist() == alone.time_s.tolist()
    assert together.source == alone.source


def test_kinds_that_were_measured_over_many_sizes_are_left_as_they_are(ensemble):
    relu = [Operation("relu", [(32, 48, 30, 30)])]
    assert ensemble.predict(relu).device_time_s == ensemble.own.predict(relu).device_time_s


@pytest.mark.parametrize(
    "operation", [UNSEEN, Operation("softmax", [(4096, 512)])], ids=["convolution", "unmeasured kind"]
)
def test_the_other_has_half_a_say(ensemble, operation):
    alone, other = ensemble.own.predict([operation]), ensemble.other.predict([operation])
    together = ensemble.predict([operation])
    assert together.device_time_s[0] == pytest.approx(np.sqrt(alone.device_time_s[0] * other.device_time_s[0]))
    active_w = [p.dynamic_energy_j[0] / p.device_time_s[0] for p in (alone, together)]
    assert active_w[0] == pytest.approx(active_w[1])
    assert together.energy_j[0] == pytest.approx(together.power_w[0] * together.time_s[0])


def test_what_is_held_out_is_held_out_in_both_modes(monkeypatch):
    rows = [*device_rows(simulated_gpu("A30")), *device_rows(simulated_gpu("T4"))]
    held = rows[0].operation
    rows.append(rows[0]._replace(operation=held.replace(mode="training")))
    kept = []
    monkeypatch.setattr(
        "joulecast.predictors.ensemble.fit_any_gpu", lambda datasets, networks, recipe, rows: kept.extend(rows)
    )
    Others(tuple(rows), RECIPE).without(find_gpu("A30"), [held])
    left = [row.gpu.name for row in kept if row.operation.replace(mode="inference") == held]
    assert left == ["Tesla T4"]
    assert len(kept) == len(rows) - 2


def test_bad_input_is_refused_as_by_each(ensemble):
    with pytest.raises(ValueError, match="this predictor is for inference"):
        ensemble.predict([UNSEEN.replace(mode="training")])
