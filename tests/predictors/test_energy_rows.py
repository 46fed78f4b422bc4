"""Predictions as energy trees: nothing is lost, layers have their calls, forward and backward are told apart."""

import pytest

import joulecast
from joulecast import Operation
from joulecast.energy import EnergyTree
from joulecast.operations.entry import Entry
from joulecast.predictors.networks.memory_levels import WAITING, energy_rows, forward_fraction

SHAPE = (8, 3, 224, 224)


@pytest.mark.parametrize("of", [lambda p: p.tree(), lambda p: p.by_memory_level().tree()], ids=["tree", "levels"])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        (SHAPE, {}),
        (SHAPE, {"mode": "training"}),
        ((1, 3, 32, 32), {}),
        ((2, 3, 32, 32), {"mode": "training", "optimizer": "adamw"}),
        ((1, 3, 32, 32), {"execution": "graph"}),
        (SHAPE, {"power_limit_w": 110}),
        (SHAPE, {"composition": "sum"}),
    ],
)
def test_a_tree_holds_all_seconds_and_joules_of_a_prediction(shape, options, of):
    prediction = joulecast.predict("resnet18", shape, "A30", **options)
    tree = of(prediction)
    assert tree.root.total.time_s == pytest.approx(prediction.time_s, rel=1e-9)
    assert tree.root.total.energy_j == pytest.approx(prediction.energy_j, rel=1e-9)
    assert tree.total.energy_j == pytest.approx(tree.root.total.energy_j, rel=1e-12)  # nothing is unattributed
    by_component = {name: figure.value for name, figure in tree.total.by_component().items()}
    assert sum(by_component.values()) == pytest.approx(prediction.energy_j, rel=1e-12)
    assert min(by_component.values()) > 0


def test_waiting_for_the_host_is_a_part_with_the_static_energy_of_its_seconds():
    prediction = joulecast.predict("resnet18", (1, 3, 32, 32), "A30")
    (waiting,) = [node for node in prediction.tree().root.children if node.name == WAITING]
    busy_s = sum(cost.device_time_s for cost in prediction.operations)
    assert waiting.total.time_s == pytest.approx(prediction.time_s - busy_s)
    assert waiting.total.time_s > 0.5 * prediction.time_s  # 70 launches, and little to compute
    static_j = prediction.energy_j - sum(cost.dynamic_energy_j for cost in prediction.operations)
    assert waiting.total.energy_j / waiting.total.time_s == pytest.approx(static_j / prediction.time_s)


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
    assert [node.name for node in tree.root.children] == ["forward", "backward", "optimizer", "other"]
    forward, backward, _, _ = (node.total.energy_j for node in tree.root.children)
    assert 1.3 * forward < backward < 2.5 * forward


def test_uncovered_costs_stay_unknown():
    entry = Entry(Operation("relu", [(64, 512)]), 2, ("a", "b"))
    (first, second) = energy_rows(entry, None, {"static": None, "dynamic": None}, "missing", by_memory=True)
    assert (first.path, second.path) == ("a", "b")
    tree = EnergyTree.of("net", [first, second])
    assert tree.total.source == "missing"
    assert tree.total.unknown == 4  # static and dynamic energy of both modules
