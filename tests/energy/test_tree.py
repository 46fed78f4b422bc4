"""Energy trees: own shares and what is unattributed add up to the total, however the tree is arranged."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulecast.energy import EnergyTree, Figure, Row, Share
from joulecast.errors import InputError


def share(joules, seconds=0.0, component="total"):
    return Share({"gpu": Figure.of(seconds, "modelled")}, {("gpu", component): Figure.of(joules, "modelled")})


def two_layers():
    return EnergyTree.of(
        "a model",
        [
            Row("layer.0.conv", share(3.0, 0.3), "conv2d", "forward", 2),
            Row("layer.1.conv", share(5.0, 0.5), "conv2d", "forward", 2),
            Row("layer.0.conv", share(7.0, 0.7), "conv2d", "backward", 2),
            Row("head", share(1.0, 0.1), "linear", "forward"),
        ],
        unattributed=share(4.0),
    )


def test_parents_hold_their_children():
    tree = two_layers()
    assert tree.at("layer", "forward").total.energy_j == 8.0  # 3 + 5
    assert tree.at("layer", "backward").total.energy_j == 7.0
    assert [(node.name, node.total.energy_j) for node in tree.root.children] == [("forward", 9.0), ("backward", 7.0)]
    assert tree.total.energy_j == 20.0  # 3 + 5 + 7 + 1, and 4 that belong to no module.


def test_equal_layers_are_added():
    tree = two_layers().summarized()
    assert tree.at("layer.*.conv", "forward").total.energy_j == 8.0
    (conv,) = tree.at("layer.*.conv", "forward").children
    assert (conv.name, conv.calls, conv.total.time_s) == ("conv2d", 4, pytest.approx(0.8))
    assert tree.total.energy_j == 20.0


def test_flat_adds_operations_wherever_they_ran():
    found = {(node.phase, node.name): node.total.energy_j for node in two_layers().flat().root.walk() if node.calls}
    assert found == {("forward", "conv2d"): 8.0, ("backward", "conv2d"): 7.0, ("forward", "linear"): 1.0}


def test_top_lists_what_costs_most():
    assert [(node.path, node.phase) for node in two_layers().top(2)] == [
        ("layer.0.conv", "backward"),
        ("layer.1.conv", "forward"),
    ]


PATHS = st.lists(st.sampled_from(["a", "b", "0", "1"]), max_size=4).map(".".join)
ROWS = st.builds(
    Row,
    PATHS,
    st.builds(share, st.floats(0, 1e6), st.floats(0, 10), st.sampled_from(["static", "dynamic"])),
    st.sampled_from([None, "relu", "linear"]),
    st.sampled_from(["forward", "backward", "optimizer", "other"]),
)


@given(st.lists(ROWS, max_size=30), st.floats(0, 1e6))
def test_own_shares_and_what_is_unattributed_are_the_total(rows, unattributed):
    whole = math.fsum([*(row.share.energy_j for row in rows), unattributed])
    tree = EnergyTree.of("random", rows, share(unattributed))
    for each in (tree, tree.summarized(), tree.flat(), EnergyTree.from_dict(json.loads(json.dumps(tree.to_dict())))):
        own = math.fsum([*(node.own.energy_j for node in each.root.walk()), each.unattributed.energy_j])
        assert own == pytest.approx(whole, rel=1e-12, abs=0)
        assert each.total.energy_j == pytest.approx(whole, rel=1e-12, abs=0)
        assert each.root.total.energy_j + unattributed == pytest.approx(whole, rel=1e-12, abs=0)


def test_csv_has_a_line_for_every_node():
    lines = two_layers().to_csv().splitlines()
    assert lines[0].startswith("phase,path,level,name,calls,own_time_s,own_energy_j")
    assert len(lines) == 1 + sum(1 for _ in two_layers().root.walk())
    assert "forward,layer.1.conv,operation,conv2d,2" in two_layers().to_csv()


def test_trees_are_compared_part_by_part():
    predicted = EnergyTree.of("predicted", [Row("a", share(1.0)), Row("b", share(2.0)), Row("c", share(3.0))])
    measured = EnergyTree.of(
        "measured", [Row("a", share(2.0)), Row("b", share(4.0)), Row("c", share(9.0)), Row("d", share(1.0))]
    )
    found = predicted.compare(measured)
    # Means 2 and 5; products of deviations 3 + 0 + 4 = 7; squares 2 and 26.
    assert found.pearson == pytest.approx(7 / math.sqrt(2 * 26))
    assert found.mean_difference_j == pytest.approx((1 + 2 + 6) / 3)
    assert [gap.path for gap in found.largest(2)] == ["c", "b"]
    assert found.only_second == (("forward", "d", "module", ""),)
    assert "d" not in [gap.path for gap in found.gaps]


def test_text_says_what_is_unknown_and_unattributed():
    missing = Share(energy={("gpu", "total"): Figure.of(None, "modelled")})
    tree = EnergyTree.of("net", [Row("a", share(2.0, 0.1)), Row("b", missing)], share(2.0), ["a note"])
    assert tree.to_text().splitlines() == [
        "    energy   share       time    calls  part",
        "     > 2 J   50.0%     100 ms           net",
        "       2 J   50.0%     100 ms        1    a",
        "         -    0.0%        0 s        1    b",
        "       2 J   50.0%        0 s           unattributed",
        "note: a note",
    ]


def test_pictures_are_drawn_to_scale():
    svg = EnergyTree.of("net", [Row("a", share(3.0)), Row("<b>", share(1.0))]).plot().svg
    assert 'width="720.0"' in svg  # three quarters of 960 pixels
    assert 'width="240.0"' in svg
    assert "<b>" not in svg
    in_s = [Row(name, Share({"cpu": Figure(seconds, "measured")})) for name, seconds in (("a", 3.0), ("b", 1.0))]
    assert 'width="720.0"' in EnergyTree.of("net", in_s).plot().svg  # by seconds, where no joules are known
    deep = EnergyTree.of("net", [Row(".".join("abcdefghijkl"), share(1.0))])
    assert deep.plot().svg.count("<g>") == 8  # rows at most


@pytest.mark.parametrize(
    "damage", [{"format": 2}, {"rows": 3}, {"rows": [{"path": "a"}]}, {"unattributed": None}, {"notes": 1}], ids=str
)
def test_damaged_json_is_refused(damage):
    with pytest.raises(InputError):
        EnergyTree.from_dict({**two_layers().to_dict(), **damage})


def test_unknown_modules_and_phases_are_refused():
    with pytest.raises(InputError, match="no such module"):
        two_layers().at("tail")
    with pytest.raises(InputError, match="unknown phase"):
        EnergyTree.of("net", [Row("a", share(1.0), phase="sideways")])


def test_nested_nodes_have_the_totals_of_what_is_below():
    nested = two_layers().to_nested()
    forward, backward = nested["root"]["children"]
    assert (nested["root"]["energy_j"], nested["unattributed"]["energy_j"]) == (16.0, 4.0)
    assert (forward["level"], forward["energy_j"], backward["energy_j"]) == ("phase", 9.0, 7.0)
    (layers, head) = forward["children"]
    assert (layers["path"], layers["energy_j"], head["children"][0]["name"]) == ("layer", 8.0, "linear")
    assert layers["components_j"] == {"total": 8.0}
    missing = EnergyTree.of("a model", [Row("head", Share({}, {("gpu", "total"): Figure.of(None, "missing")}))])
    assert missing.to_nested()["root"]["energy_j"] is None
