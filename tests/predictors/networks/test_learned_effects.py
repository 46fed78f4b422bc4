"""What networks teach about a measured chip, against arithmetic by hand: static power, and operations in TF32."""

from dataclasses import replace

import numpy as np
import pytest
from made_predictions import RELU, predictions
from simulated_measurements import simulated_operations

from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import (
    MOST_NETWORK_STATIC_W,
    TF32_FACTORS,
    HostModel,
    fit_network_static_w,
    fit_tf32_factor,
)
from joulecast.predictors.recipes import ForestRecipe

HOST = HostModel(0.0)
CAP_W = 165.0


@pytest.fixture(scope="module")
def chip(dataset):
    return fit_chip(dataset, "inference", ForestRecipe(trees=4, folds=2))


TEN = np.array([10.0])


def of(dynamic_w, device_s=1e-3):
    """One operation that draws so much above 35 W; its launch takes a thousandth of its time."""
    return predictions([device_s], [1e-3 * device_s], [dynamic_w * device_s], static_w=35.0)


def static_w(*pairs):
    return fit_network_static_w([(TEN, of(dynamic_w), watts) for dynamic_w, watts in pairs], HOST, CAP_W)


def test_what_is_missing_in_the_median_network_is_learned():
    """35 + 50 W are predicted where 98 W were measured: 13 W more."""
    assert static_w((50, 98)) == 13
    assert static_w((50, 98), (20, 68)) == 13
    # Two of three networks decide, as a median does.
    assert static_w((50, 98), (20, 68), (30, 65)) == 13


def test_networks_at_the_cap_say_nothing():
    assert static_w((130, 165)) == 0
    assert static_w((130, 165), (50, 98)) == 13
    # 150 W are predicted, and the cap lets 15 W more appear: 15 W are enough, and more would be as good.
    assert static_w((115, 165)) == 15


def test_without_networks_or_without_a_gap_nothing_is_added():
    assert static_w() == 0
    assert static_w((50, 85)) == 0
    assert static_w((50, 60)) == 0  # Loops that explain too much are no reason to take anything away.
    assert static_w((10, 160)) == MOST_NETWORK_STATIC_W


def test_errors_of_time_have_no_part_in_it():
    slow = of(50, device_s=2e-3)
    assert fit_network_static_w([(TEN, slow, 98.0)], HOST, CAP_W) == 13


def test_operations_of_a_network_share_what_the_board_draws_in_addition(chip):
    predictor = chip_alone(replace(chip, network_static_w=13.0))
    alone = predictor.predict(simulated_operations()[:3])
    together = predictor.in_network(alone)
    assert alone.static_power_w == chip_alone(chip).predict(simulated_operations()[:3]).static_power_w
    assert together.static_power_w == pytest.approx(alone.static_power_w + 13)
    # At a lower clock, it falls as static power does.
    slower = predictor.predict(simulated_operations()[:3], 900)
    share = predictor.in_network(slower).static_power_w / slower.static_power_w
    assert share == pytest.approx(together.static_power_w / alone.static_power_w)
    assert slower.static_power_w < alone.static_power_w
    for name in ("device_time_s", "dynamic_energy_j", "host_time_s"):
        assert getattr(together, name) is getattr(alone, name)


COUNTS = np.array([2.0, 1.0])


def network(precision="tf32", host_s=1e-6):
    """2 x 3 ms in a precision and 4 ms in fp32: 10 ms of device."""
    device_s = np.array([3e-3, 4e-3])
    both = RELU.replace(precision=precision), RELU
    return predictions(device_s, [host_s] * 2, 100.0 * device_s, static_w=35.0, operations=both)


def fitted(*measured_s, found=None):
    return fit_tf32_factor([(COUNTS, found or network(), s) for s in measured_s], HOST)


def test_what_is_missing_is_laid_on_operations_in_tf32():
    """9.4 ms were measured: 6 ms in TF32 must become 5.4 ms, a factor of 0.9, of which one network shows the root."""
    assert fitted(9.4e-3) == pytest.approx(0.9**0.5, rel=1e-5)
    # Four networks that show the same, and the fourth fifths of its logarithm.
    assert fitted(*[9.4e-3] * 4) == pytest.approx(0.9**0.8, rel=1e-5)
    assert fitted(10.6e-3) == pytest.approx(1.1**0.5, rel=1e-5)


def test_the_median_network_decides():
    assert fitted(9.4e-3, 9.4e-3, 7e-3) == pytest.approx(0.9**0.75, rel=1e-5)
    # Two networks that contradict each other: all factors in between are as good, and 1 is one of them.
    assert fitted(9.4e-3, 10.6e-3) == 1.0


def test_networks_that_cannot_show_it_change_nothing():
    assert fitted() == 1.0
    assert fitted(9.4e-3, found=network("fp32")) == 1.0
    # 3 calls of 10 ms: the host decides, and the time of the device does not show.
    assert fitted(29e-3, found=network(host_s=10e-3)) == 1.0
    slow = (COUNTS, network(host_s=10e-3), 29e-3)
    assert fit_tf32_factor([(COUNTS, network(), 9.4e-3), slow], HOST) == fitted(9.4e-3)


def test_a_factor_stays_in_its_range():
    least, most = TF32_FACTORS
    assert fitted(1e-3) == pytest.approx(least**0.5)
    assert fitted(1.0) == pytest.approx(most**0.5)


def test_only_operations_in_tf32_are_quicker_in_networks(chip):
    predictor = chip_alone(replace(chip, network_tf32_factor=0.9))
    operations = simulated_operations()[:3]
    assert not any(operation.precision == "tf32" for operation in operations)
    alone = predictor.predict(operations)
    assert predictor.in_network(alone).device_time_s is alone.device_time_s
    # The simulated loops are in fp32, and so stand for no operation in TF32.
    assert predictor.in_network(network()).device_time_s.tolist() == [3e-3, 4e-3]
    groups = {f"relu {precision}": chip.baseline.groups["relu fp32"] for precision in ("fp32", "tf32")}
    measured = replace(chip, baseline=replace(chip.baseline, groups=groups), network_tf32_factor=0.9)
    inside = chip_alone(measured).in_network(network())
    assert inside.device_time_s.tolist() == pytest.approx([2.7e-3, 4e-3])
    assert inside.dynamic_energy_j.tolist() == pytest.approx([0.27, 0.4])
    assert inside.time_s.tolist() == [3e-3, 4e-3]  # Loops are as they were measured.
