"""What a board draws in networks in addition to its loops, against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest
from made_predictions import predictions
from simulated_measurements import simulated_operations

from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import MOST_NETWORK_STATIC_W, HostModel, fit_network_static_w
from joulecast.predictors.recipes import ForestRecipe

COUNTS = np.array([10.0])
HOST = HostModel(0.0)
CAP_W = 165.0


def of(dynamic_w, device_s=1e-3):
    """One operation that draws so much above 35 W; its launch takes a thousandth of its time."""
    return predictions([device_s], [1e-3 * device_s], [dynamic_w * device_s], static_w=35.0)


def fitted(*pairs):
    return fit_network_static_w([(COUNTS, of(dynamic_w), watts) for dynamic_w, watts in pairs], HOST, CAP_W)


def test_what_is_missing_in_the_median_network_is_learned():
    """35 + 50 W are predicted where 98 W were measured: 13 W more."""
    assert fitted((50, 98)) == 13
    assert fitted((50, 98), (20, 68)) == 13
    # Two of three networks decide, as a median does.
    assert fitted((50, 98), (20, 68), (30, 65)) == 13


def test_networks_at_the_cap_say_nothing():
    assert fitted((130, 165)) == 0
    assert fitted((130, 165), (50, 98)) == 13
    # 150 W are predicted, and the cap lets 15 W more appear: 15 W are enough, and more would be as good.
    assert fitted((115, 165)) == 15


def test_without_networks_or_without_a_gap_nothing_is_added():
    assert fitted() == 0
    assert fitted((50, 85)) == 0
    assert fitted((50, 60)) == 0  # Loops that explain too much are no reason to take anything away.
    assert fitted((10, 160)) == MOST_NETWORK_STATIC_W


def test_errors_of_time_have_no_part_in_it():
    slow = of(50, device_s=2e-3)
    assert fit_network_static_w([(COUNTS, slow, 98.0)], HOST, CAP_W) == 13


def test_operations_of_a_network_share_what_the_board_draws_in_addition(dataset):
    fits = chip_alone(fit_chip(dataset, "inference", ForestRecipe(trees=4, folds=2)))
    predictor = chip_alone(replace(fits.chip, network_static_w=13.0))
    alone = predictor.predict(simulated_operations()[:3])
    together = predictor.in_network(alone)
    assert alone.static_power_w == fits.predict(simulated_operations()[:3]).static_power_w
    assert together.static_power_w == pytest.approx(alone.static_power_w + 13)
    # At a lower clock, it falls as static power does.
    slower = predictor.predict(simulated_operations()[:3], 900)
    share = predictor.in_network(slower).static_power_w / slower.static_power_w
    assert share == pytest.approx(together.static_power_w / alone.static_power_w)
    assert slower.static_power_w < alone.static_power_w
    for name in ("device_time_s", "dynamic_energy_j", "host_time_s"):
        assert getattr(together, name) is getattr(alone, name)
