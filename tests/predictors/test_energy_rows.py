"""Predictions as energy trees: nothing is lost, layers have their calls, forward and backward are told apart."""

from __future__ import annotations

import pytest

import joulecast
from joulecast import Operation
from joulecast.energy import EnergyTree
from joulecast.operations.network import Entry
from joulecast.predictors.networks.energy_rows import energy_rows, forward_fraction

SHAPE = (8, 3, 224, 224)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_tree_holds_all_joules_of_a_prediction(mode):
    prediction = joulecast.predict("resnet18", SHAPE, "A30", mode=mode)
    tree = prediction.tree()
    assert tree.total.energy_j == pytest.approx(prediction.energy_j, rel=1e-12)
    assert tree.total.time_s == pytest.approx(prediction.device_time_s, rel=1e-12)
    by_component = {name: figure.value for name, figure in tree.total.by_component().items()}
    assert sum(by_component.values()) == pytest.approx(prediction.energy_j, rel=1e-12)
    assert min(by_component.values()) > 0


def test_calls_decide_the_share_of_a_module():
    tree = joulecast.predict("resnet50", SHAPE, "A30").tree()
    # A bottleneck calls its one ReLU three times; the stem calls its own once.
    (in_block,) = [node for node in tree.at("layer1.0.relu").children if node.name == "relu"]
    assert in_block.calls == 3
    assert tree.at("relu").children[0].calls == 1


def test_forward_and_backward_by_hand():
    product = Operation("linear", [(64, 512)], {"out_features": 512}, mode="training")
    assert forward_fraction(product, by_memory=False) == pytest.approx(1 / 3, rel=0.01)  # both gradients are products
    relu = Operation("relu", [(64, 512)], mode="training")
    forward = Operation("relu", [(64, 512)])
    moved = forward.bytes_read + forward.bytes_written
    assert moved == 2 * 4 * 64 * 512  # read once, written once
    whole = relu.bytes_read + relu.bytes_written
    assert forward_fraction(relu, by_memory=True) == moved / whole


def test_training_has_phases():
    network = joulecast.extract("resnet18", SHAPE, mode="training", optimizer="adamw")
    tree = joulecast.predict(network, gpu="A30").tree()
    assert [node.name for node in tree.root.children] == ["forward", "backward", "optimizer"]
    forward, backward, _ = (node.total.energy_j for node in tree.root.children)
    assert 1.3 * forward < backward < 2.5 * forward


def test_uncovered_costs_stay_unknown():
    entry = Entry(Operation("relu", [(64, 512)]), 2, ("a", "b"))
    (first, second) = energy_rows(entry, None, {"static": None, "dynamic": None}, "missing", by_memory=True)
    assert (first.path, second.path) == ("a", "b")
    tree = EnergyTree.of("net", [first, second])
    assert tree.total.source == "missing"
    assert tree.total.unknown == 4  # static and dynamic energy of both modules
