"""What networks teach about a measured chip, against arithmetic by hand: static power, and operations in TF32."""

from dataclasses import replace

import numpy as np
import pytest
from made_predictions import RELU, predictions
from simulated_measurements import simulated_operations

from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import (
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


@pytest.mark.parametrize(
    ("pairs", "more_w"),
    [
        # 35 + 50 W are predicted where 98 W were measured: 13 W more. Two of three networks decide, as a median does.
        ([(50, 98)], 13),
        ([(50, 98), (20, 68)], 13),
        ([(50, 98), (20, 68), (30, 65)], 13),
        # Networks at the cap say nothing, or no more than it lets appear: 150 W are predicted, and 15 W are enough.
        ([(130, 165)], 0),
        ([(130, 165), (50, 98)], 13),
        ([(115, 165)], 15),
        # Without networks or a gap nothing is added; loops that explain too much are no reason to take anything away.
        ([], 0),
        ([(50, 85)], 0),
        ([(50, 60)], 0),
        ([(10, 160)], 40),  # no more than that is added
    ],
)
def test_the_power_that_is_missing_in_the_median_network_is_learned(pairs, more_w):
    networks = [(TEN, of(dynamic_w), watts) for dynamic_w, watts in pairs]
    assert fit_network_static_w(networks, HOST, CAP_W) == more_w


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


BOUND = network(host_s=10e-3)  # by the host: 3 calls of 10 ms


@pytest.mark.parametrize(
    ("measured", "factor"),
    [
        # 9.4 ms were measured: 6 ms in TF32 must become 5.4 ms, a factor of 0.9, of which one network shows the root.
        ([(network(), 9.4e-3)], 0.9**0.5),
        ([(network(), 10.6e-3)], 1.1**0.5),
        # Four networks that show the same, and four fifths of its logarithm. The median network decides.
        ([(network(), 9.4e-3)] * 4, 0.9**0.8),
        ([(network(), 9.4e-3)] * 2 + [(network(), 7e-3)], 0.9**0.75),
        # Two networks that contradict each other: all factors in between are as good, and 1 is one of them.
        ([(network(), 9.4e-3), (network(), 10.6e-3)], 1.0),
        # Networks that cannot show it change nothing.
        ([], 1.0),
        ([(network("fp32"), 9.4e-3)], 1.0),
        ([(BOUND, 29e-3)], 1.0),
        ([(network(), 9.4e-3), (BOUND, 29e-3)], 0.9**0.5),
        # A factor stays within a fifth.
        ([(network(), 1e-3)], 0.8**0.5),
        ([(network(), 1.0)], 1.2**0.5),
    ],
)
def test_what_is_missing_is_laid_on_operations_in_tf32(measured, factor):
    found = fit_tf32_factor([(COUNTS, found, seconds) for found, seconds in measured], HOST)
    assert found == pytest.approx(factor, rel=1e-5)


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
