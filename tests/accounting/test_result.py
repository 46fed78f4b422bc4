"""Accountings: sums by module and operator, power, comparison with predictions, the model share, pictures."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast.accounting import Events, Place
from joulecast.accounting.account import one_pass
from joulecast.accounting.model_share import tree_by_module
from joulecast.accounting.result import Accounting
from joulecast.energy import EnergyTree, Figure, Row, Share
from joulecast.errors import InputError
from joulecast.metering.recording import DeviceInfo, Recording
from joulecast.metering.samples import Samples

WINDOW_S = 10.0


def place(path, phase="forward", operation="aten::mm"):
    return Place(path, phase, operation)


def accounting(idle_w=None):
    """Two equal layers take 1 s each, a head 2 s, a backward 4 s and a loss 1 s. Nothing runs for another second."""
    rows = [
        (0, 1, place("layer.0.linear"), "cpu"),
        (1, 2, place("layer.1.linear"), "cpu"),
        (2, 4, place("head"), "cpu"),
        (4, 5, place(None, operation="aten::loss"), "cpu"),
        (5, 9, place("head", "backward", "MmBackward0"), "cpu"),
    ]
    events = Events.of(rows, windows=[(0, WINDOW_S)])
    time_s = np.arange(-1, 12, 0.01)
    device = DeviceInfo("cpu0", "package", idle_w=idle_w)
    samples = {"cpu0": Samples.of(time_s, energy_j=50.0 * (time_s + 1))}
    return one_pass("model", events, Recording("here", "", -1, 12, (device,), samples))


def predicted(*rows):
    """A prediction's tree: phase, path, static and dynamic joules."""
    return EnergyTree.of(
        "prediction",
        [
            Row(
                path,
                Share({"gpu": Figure(1.0, "modelled")}, {
                    ("gpu", "static"): Figure(static_j, "modelled"),
                    ("gpu", "dynamic"): Figure(dynamic_j, "modelled"),
                }),
                "linear",
                phase,
            )
            for phase, path, static_j, dynamic_j in rows
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("view", "phase", "name", "joules"),
    [
        ("tree", "backward", "head", 200),
        ("summarized", "forward", "linear", 100),  # the layers of a kind
        ("by_operator", "forward", "aten::mm", 200),
        ("by_operator", "backward", "MmBackward0", 200),
        ("flat", "forward", "layer.1.linear.aten::mm", 50),
        ("flat", "backward", "head.MmBackward0", 200),
    ],
)
def test_views_add_up_what_they_name(view, phase, name, joules):
    made = getattr(accounting(), view)()
    nodes = {(node.phase, node.name): node.total for node in made.root.walk()}
    assert nodes[phase, name].energy_j == pytest.approx(joules, rel=1e-6)
    assert made.total.energy_j == pytest.approx(50 * WINDOW_S, rel=1e-6)
    assert [total.power_w for total in nodes.values()] == pytest.approx([50.0] * len(nodes))


def test_the_programs_share_leaves_out_other_programs():
    """The first line of a recording's shares says nothing; of the others, one of 2 s counts twice one of 1 s."""
    shares = tuple({"time_s": time_s, "cpu": share} for time_s, share in ((0, None), (2, 0.5), (3, 0.2)))
    made = accounting()
    alone = replace(made, recording=replace(made.recording, shares=shares)).of_program()
    assert alone.energy_j == pytest.approx(0.4 * made.energy_j)
    assert alone.total.time_s == made.total.time_s
    assert "of cpu0, 40 % counts" in alone.notes
    unknown = made.of_program()
    assert unknown.energy_j == made.energy_j
    assert any("is not known" in note for note in unknown.notes)


def test_predicted_and_accounted_modules_side_by_side():
    # Accounted are 100 J for the head's forward, 200 J for its backward, and 50 J for each layer.
    found = accounting().compare(
        predicted(("forward", "head", 10, 80), ("backward", "head", 30, 250), ("forward", "layer.0.linear", 5, 45))
    )
    gaps = {(gap.phase, gap.path): (gap.energy_j, gap.other_energy_j) for gap in found.gaps}
    assert gaps["forward", "head"] == (90, pytest.approx(100, rel=1e-6))
    assert gaps["backward", "head"] == (280, pytest.approx(200, rel=1e-6))
    assert found.largest(1)[0].phase == "backward"
    assert [key[:2] for key in found.only_second] == [("forward", "layer.1.linear")]
    xs, ys = np.array([90, 280, 50]), np.array([100, 200, 50])
    assert found.pearson == pytest.approx(np.corrcoef(xs, ys)[0, 1], rel=1e-6)


def test_the_step_of_an_optimizer_is_the_same_part_in_both():
    measured = EnergyTree.of("measured", [Row("", Share({}, {("cpu0", "package"): Figure(2.0, "measured")}),
                                              "aten::mul_", "optimizer")])  # fmt: skip
    step = predicted(("optimizer", "(optimizer)", 1, 3))
    assert tree_by_module(measured) == {("optimizer", ""): 2}
    assert tree_by_module(step) == {("optimizer", ""): 4}


def test_the_model_share_gives_dynamic_joules_by_prediction_and_static_ones_by_time():
    # 50 W for 10 s, of which 1 s is idle: 500 J. 20 W static: 20 J a second, 200 J in all; 300 J are dynamic.
    # Predicted dynamic: head 30 + 60, layer.0 10: 100 J over 2 + 4 + 1 s, so 100/7 W in the mean for what has none,
    # which is layer.1 and the loss with 1 s each: all weights together 100 + 200/7 = 900/7.
    made = accounting().by_model(
        predicted(("forward", "head", 9, 30), ("backward", "head", 9, 60), ("forward", "layer.0.linear", 9, 10)), 20.0
    )
    rows = {(row.phase, row.path): row.share.energy for row in made.rows}
    dynamic = {key: energy["cpu0", "dynamic"].value for key, energy in rows.items()}
    assert dynamic["forward", "head"] == pytest.approx(300 * 30 / (900 / 7), rel=1e-6)
    assert dynamic["backward", "head"] == pytest.approx(300 * 60 / (900 / 7), rel=1e-6)
    assert dynamic["forward", "layer.1.linear"] == pytest.approx(300 * (100 / 7) / (900 / 7), rel=1e-6)
    assert rows["backward", "head"]["cpu0", "static"].value == pytest.approx(80, rel=1e-6)
    assert made.unattributed.energy_j == pytest.approx(20, rel=1e-6)
    assert made.energy_j == pytest.approx(accounting().energy_j, rel=1e-9)
    assert made.sharing == "model"
    # Static power cannot be more than was drawn.
    still = accounting().by_model(predicted(("forward", "head", 9, 30)), 80.0)
    assert still.energy_j == pytest.approx(500, rel=1e-6)
    assert all(row.share.energy["cpu0", "dynamic"].value == 0 for row in still.rows)


def test_the_model_share_takes_the_idle_power_of_the_catalogue():
    tree = predicted(("forward", "head", 0, 1))
    known, given = accounting(idle_w=20.0).by_model(tree), accounting().by_model(tree, {"cpu0": 20.0})
    assert known.tree().to_dict()["rows"] == given.tree().to_dict()["rows"]
    with pytest.raises(InputError, match="static power of a device is not known"):
        accounting().by_model(tree)
    with pytest.raises(InputError, match="contains no module that ran"):
        accounting().by_model(predicted(("forward", "other", 0, 1)), 20.0)


def test_text_and_table_have_shares_of_joules_and_of_seconds():
    """`stages` are the phases that ran, and `top` lists the largest first."""
    made = accounting()
    assert [(phase, stage.energy_j) for phase, stage in made.stages().items()] == [
        ("forward", pytest.approx(250, rel=1e-6)),
        ("backward", pytest.approx(200, rel=1e-6)),
    ]
    assert [(node.path, node.phase) for node in made.top(2)] == [("head", "backward"), ("head", "forward")]
    layers = [node for node in made.top(9, summarized=True) if node.path == "layer.*.linear"]
    assert [node.own.energy_j for node in layers] == [pytest.approx(100, rel=1e-6)]
    with pytest.raises(InputError, match="number of parts is out of range"):
        made.top(0)
    rows = [
        Row(path, Share({"cpu": Figure(1.0, "measured")}, {("cpu0", "package"): Figure(joules, "measured")}))
        for path, joules in (("a", 1.0), ("b", 3.0))
    ]
    text = Accounting("model", tuple(rows), Share(), 2.0, 1, 1).to_text()
    first = next(line for line in text.splitlines() if line.endswith(" a"))
    assert first.split() == ["1", "J", "25.0", "%", "1", "s", "50.0", "%", "1", "W", "a"]
    assert made.to_text(depth=2).splitlines()[-1].endswith("unattributed")
    assert "head" in made._repr_html_()
    assert "head" not in made.to_text(least_share=0.9)
