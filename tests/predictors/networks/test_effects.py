"""The table of effects of a network: its documentation, its numbers, and what is not confirmed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.composition import COMPILED_CALL_S, COMPILED_LAUNCH_S, LEAST_HOST_S
from joulecast.predictors.networks.parts import INPUT_GRADIENT, SLOWER_DEPTHWISE, SLOWER_NORMS, unconfirmed_share
from joulecast.predictors.physics.bandwidth import PRODUCTS_SHARE, READ_SHARE
from joulecast.predictors.physics.half_precision import DEPTHWISE_TRAINING
from joulecast.system.resources import shipped
from joulecast.zoo import find_predictor

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


def test_networks_without_such_effects_keep_their_intervals():
    for mode, name in (("training", "resnet18"), ("inference", "convnext_tiny"), ("training", "mobilenet_v3_small")):
        network = joulecast.extract(name, (8, 3, 224, 224), mode=mode)
        assert find_predictor("A30", mode).predict(network).spread.unconfirmed_share == 0.0


def test_the_share_is_what_the_effect_adds():
    """3 ms of depthwise convolutions at 1.8 times their time are 1 / 1.8 of it without; 1 ms of other work."""
    network = joulecast.extract("convnext_tiny", (4, 3, 64, 64), mode="training")
    seconds = np.array([3.0 if entry.operation.is_depthwise else 0.0 for entry in network])
    seconds[0] = float((seconds > 0).sum())
    found = replace(find_predictor("A30", "training").operations.predict(network.operations), device_time_s=seconds)
    share = unconfirmed_share(network, find_gpu("A30"), np.ones(len(network)), found)
    assert share == pytest.approx((3 - 3 / 1.8) / 4)
