"""An ensemble predicts the weighted mean, in log space, of what its members predict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from simulated_measurements import simulated_gpu, simulated_operations

from joulecast.hardware import find_gpu
from joulecast.predictors.any_gpu.ensemble import Ensemble
from joulecast.predictors.any_gpu.predictor import AnyGpuPredictor
from joulecast.predictors.any_gpu.roofline import NoResidual
from joulecast.predictors.fitting.any_gpu import fit_on_all
from joulecast.predictors.physics.energy import EnergyConstants
from joulecast.predictors.recipes.ensemble import EnsembleRecipe, Member
from joulecast.predictors.recipes.roofline import RooflineRecipe

A30 = find_gpu("A30")
OPERATIONS = simulated_operations()


@dataclass(frozen=True)
class Slower(NoResidual):
    """Physics, but everything takes longer, and networks too."""

    ratio: float = 1.0

    def factors(self, operations, gpu, *, capped=True):
        return np.full(len(operations), self.ratio), np.ones(len(operations))

    def in_network(self, operations, counts, gpu):
        return self.ratio, 1.0


def test_it_is_the_mean_in_log_space():
    ensemble = Ensemble.of([Slower(ratio=1.0), Slower(ratio=4.0)], [0.5, 0.5])
    time, energy = ensemble.factors(OPERATIONS, A30)
    assert time == pytest.approx(2.0)
    assert energy == pytest.approx(1.0)
    assert ensemble.in_network(OPERATIONS, np.ones(len(OPERATIONS)), A30) == pytest.approx((2.0, 1.0))
    assert Ensemble.of(ensemble.members, [0.75, 0.25]).factors(OPERATIONS, A30)[0] == pytest.approx(4**0.25)


def test_an_ensemble_of_equal_members_predicts_as_each_of_them():
    ensemble = Ensemble.of([NoResidual(), NoResidual()], [0.3, 0.7])
    assert ensemble.energy.to_dict() == pytest.approx(NoResidual().energy.to_dict())
    one, other = (
        AnyGpuPredictor(A30, "training", each).predict([o.replace(mode="training") for o in OPERATIONS], 900)
        for each in (NoResidual(), ensemble)
    )
    for name in ("time_s", "energy_j", "device_time_s", "dynamic_energy_j", "host_time_s"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name


def test_energy_constants_are_geometric_means_and_the_share_that_the_cache_saves_is_a_mean():
    @dataclass(frozen=True)
    class Known(NoResidual):
        constants: EnergyConstants

        @property
        def energy(self):
            return self.constants

    members = [Known(EnergyConstants(1, 4, 1, 1, 1, l2_saves=0.8)), Known(EnergyConstants(4, 4, 1, 1, 1))]
    assert Ensemble.of(members, [0.5, 0.5]).energy == EnergyConstants(2, pytest.approx(4), 1, 1, 1, l2_saves=0.4)


def test_members_are_fitted_by_their_recipes():
    pytest.importorskip("xgboost", reason="fits boosted trees")
    from joulecast.predictors.recipes.boosting import BoostingRecipe

    trees = BoostingRecipe(trees=20, learning_rate=0.3)
    recipe = EnsembleRecipe((Member(RooflineRecipe(), 0.5), Member(trees, 0.5)))
    data = [simulated_gpu("A30"), simulated_gpu("T4")]
    both, alone = (fit_on_all(data, (), each).correction for each in (recipe, trees))
    assert both.factors(OPERATIONS, A30)[0] == pytest.approx(alone.factors(OPERATIONS, A30)[0] ** 0.5)
    other = fit_on_all(data, (), replace(recipe, members=recipe.members[::-1])).correction
    assert other.factors(OPERATIONS, A30)[0] == pytest.approx(both.factors(OPERATIONS, A30)[0])
