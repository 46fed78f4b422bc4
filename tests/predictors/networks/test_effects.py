"""The table of effects of a network: its documentation, its numbers, and what is not confirmed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.effects import EFFECTS, Effect
from joulecast.predictors.networks.parts import unconfirmed_share
from joulecast.system.resources import shipped
from joulecast.zoo import find_predictor

PAGE = Path(__file__).parents[3] / "docs" / "how-it-works.md"
LEARNED = {
    "in_networks.products": "any-gpu/kernels",
    "in_networks.cycles": "any-gpu/kernels",
    "network_tf32_factor": "a30/forest-inference",
    "network_static_w": "a30/forest-inference",
    "offset_s": "a30/forest-inference",
}
"""Where the shipped predictors store what they learned."""


def stored(key: str) -> float:
    """A learned number of a shipped predictor."""
    folder = shipped("zoo") / LEARNED[key]
    card = json.loads((folder / "card.json").read_text())
    facts = {**json.loads((folder / "predictor.json").read_text()), **card.get("host", {})}
    for part in key.split("."):
        facts = facts[part]
    return facts


def row(effect: Effect) -> str:
    """A line of the table in the documentation."""
    value = f"{effect.value:g}" if isinstance(effect.value, float) else f"{stored(effect.value):.3g} (learned)"
    confirmed = effect.confirmed or "no"
    cells = effect.name, effect.physics, f"{value} {effect.unit}", effect.evidence, effect.fitted_on, confirmed
    return "| " + " | ".join((*cells, effect.interval)) + " |"


def test_the_page_shows_the_table():
    missing = [row(effect) for effect in EFFECTS if row(effect) not in PAGE.read_text()]
    assert not missing, "docs/how-it-works.md lacks:\n" + "\n".join(missing)


def test_what_one_network_showed_is_not_called_confirmed():
    """Two rows rest on one run each, and none but assumptions gives no interval."""
    wider = {effect.name for effect in EFFECTS if effect.interval == "wider by what it changes"}
    assert {"channels last in training, TF32", "channels last in training, fp32"} <= wider
    assert all(
        effect.fitted_on == "assumed" for effect in EFFECTS if effect.interval == "none, but where the device decides"
    )


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
