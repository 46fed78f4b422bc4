"""Effects of a network: what networks teach about a chip, by hand; and the table of all effects."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_predictions import RELU, predictions
from simulated_measurements import simulated_operations

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import (
    COMPILED_CALL_S,
    COMPILED_LAUNCH_S,
    LEAST_HOST_S,
    HostModel,
    fit_network_static_w,
    fit_tf32_factor,
)
from joulecast.predictors.networks.parts import INPUT_GRADIENT, SLOWER_DEPTHWISE, SLOWER_NORMS, unconfirmed_share
from joulecast.predictors.physics.fp32_kernels import DEPTHWISE_TRAINING
from joulecast.predictors.physics.roofline import PRODUCTS_SHARE, READ_SHARE
from joulecast.predictors.recipes import ForestRecipe
from joulecast.system.resources import shipped
from joulecast.zoo import find_predictor

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
    for device_s in (1e-3, 2e-3):  # Errors of time have no part in it.
        networks = [(TEN, of(dynamic_w, device_s), watts) for dynamic_w, watts in pairs]
        assert fit_network_static_w(networks, HOST, CAP_W) == more_w


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
    # The simulated loops are in fp32, and so stand for no operation in TF32.
    predictor = chip_alone(replace(chip, network_tf32_factor=0.9))
    assert predictor.in_network(network()).device_time_s.tolist() == [3e-3, 4e-3]
    groups = {f"relu {precision}": chip.baseline.groups["relu fp32"] for precision in ("fp32", "tf32")}
    measured = replace(chip, baseline=replace(chip.baseline, groups=groups), network_tf32_factor=0.9)
    inside = chip_alone(measured).in_network(network())
    assert inside.device_time_s.tolist() == pytest.approx([2.7e-3, 4e-3])
    assert inside.dynamic_energy_j.tolist() == pytest.approx([0.27, 0.4])
    assert inside.time_s.tolist() == [3e-3, 4e-3]  # Loops are as they were measured.


# The table of effects: its documentation, its numbers, and what is not confirmed.


PAGE = Path(__file__).parents[3] / "docs" / "how-it-works.md"
LEARNED = {
    "L2 lost between kernels": ("any-gpu/kernels", "in_networks", "products"),
    "elements to load": ("any-gpu/kernels", "in_networks", "cycles"),
    "TF32 in inference": ("a30/forest-inference", "network_tf32_factor"),
    "power of a waiting board": ("a30/forest-inference", "network_static_w"),
    "host time of a call": ("a30/forest-inference", "host", "offset_s"),
}
"""Where the shipped predictors store what they learned."""
CONSTANTS = {
    "first layer in training": -INPUT_GRADIENT,
    "weights from memory": READ_SHARE,
    "copies": LEAST_HOST_S,
    "transposes spared by channels last": 2.0,  # One before and one after a convolution.
    "batch norm in training in half precision": SLOWER_NORMS,
    "depthwise convolutions in training in half precision": DEPTHWISE_TRAINING,
    "convolutions where tensor cores are sold with a lower rate": PRODUCTS_SHARE,
    "channels last in training, TF32": SLOWER_DEPTHWISE["tf32"],
    "channels last in training, fp32": SLOWER_DEPTHWISE["fp32"],
    "entering compiled code": COMPILED_CALL_S,
    "launches from compiled code": COMPILED_LAUNCH_S,
}
"""What is a constant of the code."""


def stored(entry: str, *names: str) -> float:
    """A learned number of a shipped predictor."""
    facts = json.loads((shipped("zoo") / entry / "predictor.json").read_text())
    for name in names:
        facts = facts[name]
    return facts


def table() -> dict[str, dict[str, str]]:
    """The table of effects: name -> column -> text."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    start = next(i for i, line in enumerate(lines) if line.startswith("| effect | physics"))
    header, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[start:])
    end = start + 1 + len(CONSTANTS) + len(LEARNED)
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows[1 : end - start + 1]}


def test_the_page_has_the_numbers_of_the_code():
    found = {name: row["value"].split()[0] for name, row in table().items()}
    learned = {name: f"{stored(*place):.3g}" for name, place in LEARNED.items()}
    assert found == {name: f"{value:g}" for name, value in CONSTANTS.items()} | learned


def test_what_was_not_confirmed_makes_intervals_wider():
    for row in table().values():
        assumed = row["fitted on"] == "assumed"
        wider = "none, but where the device decides" if assumed else "wider by what it changes"
        confirmed = "errors of networks left out contain it"
        assert row["interval"] == (wider if row["confirmed"] == "no" else confirmed), row["effect"]


@pytest.mark.parametrize(("precision", "without_s"), [("default", 0.470), ("fp32", 0.476)])
def test_the_interval_contains_what_is_predicted_without_an_unconfirmed_effect(precision, without_s):
    """The operations of convnext_base add up to 470 and 476 ms on an A30 without the factors; see parts.py."""
    network = joulecast.extract("convnext_base", (32, 3, 224, 224), mode="training", precision=precision)
    prediction = find_predictor("A30", "training").predict(network)
    low_s, high_s = prediction.interval().time_s
    assert low_s < without_s < prediction.time_s < high_s
    sure = replace(prediction, spread=replace(prediction.spread, unconfirmed_share=0.0)).interval()
    assert low_s < sure.time_s[0] < sure.time_s[1] < high_s
    assert prediction.interval().edp_js[0] < sure.edp_js[0]
    assert prediction.interval().power_w == sure.power_w
    assert "few networks showed" in prediction.interval_basis


def test_the_share_is_what_the_effect_adds():
    """3 ms of depthwise convolutions at 1.8 times their time are 1 / 1.8 of it without; 1 ms of other work."""
    network = joulecast.extract("convnext_tiny", (4, 3, 64, 64), mode="training")
    seconds = np.array([3.0 if entry.operation.is_depthwise else 0.0 for entry in network])
    seconds[0] = float((seconds > 0).sum())
    found = replace(find_predictor("A30", "training").operations.predict(network.operations), device_time_s=seconds)
    share = unconfirmed_share(network, find_gpu("A30"), np.ones(len(network)), found)
    assert share == pytest.approx((3 - 3 / 1.8) / 4)
