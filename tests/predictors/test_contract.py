"""Every recipe keeps the one contract: fitted, it predicts operations on a GPU at a clock and under a cap."""

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_gpu, simulated_operations

from joulecast.cli.recipes import HANDLERS
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.predictors.fitting.fit import RECIPES, fit_chip, fit_on_all
from joulecast.predictors.model.shared import SharedByAll, chip_alone
from joulecast.predictors.recipes import (
    BoostingRecipe,
    ForestRecipe,
    RooflineRecipe,
    SharedForestRecipe,
    TransformerRecipe,
    XGBoostRecipe,
)

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
    assert set(HANDLERS) == set(RECIPES.values())


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
    whole, slow, capped = (
        predictor.predict(operations),
        predictor.predict(operations, 600),
        predictor.predict(operations, None, 100.0),
    )
    for found in (whole, slow, capped):
        assert np.all(found.device_time_s >= 0)
        assert np.all(found.dynamic_energy_j >= 0)
        assert found.energy_j == pytest.approx(found.power_w * found.time_s)
    assert np.all(slow.device_time_s >= whole.device_time_s * 0.999)
    assert np.all(capped.device_time_s >= whole.device_time_s * 0.999)
    assert capped.power_w.max() < whole.power_w.max()
    again = fitted().predict(operations)
    assert np.array_equal(again.time_s, whole.time_s)
    # Knowledge about whole networks must not change the predictions of their operations as loops.
    in_network = predictor.in_network(whole)
    assert np.array_equal(in_network.time_s, whole.time_s)
    with pytest.raises(InputError):
        predictor.predict([operations[0].replace(mode="training")])
