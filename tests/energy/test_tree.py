"""Shares and trees of them: own shares and what is unattributed add up to the total, however a tree is arranged."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulecast.energy import EnergyTree, Figure, Row, Share
from joulecast.energy.comparison import repeated
from joulecast.energy.tree import merged
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
    single = EnergyTree.of("one phase", [Row("a", share(1.0), "mm", "backward", 0)])
    named = [(each.root.name, each.root.level, each.root.phase, each.root.calls) for each in (tree, single)]
    assert named == [("a model", "root", None, 0), ("one phase", "root", "backward", 0)]
    most = [(node.path, node.phase) for node in tree.top(2)]
    assert most == [("layer.0.conv", "backward"), ("layer.1.conv", "forward")]


def test_equal_layers_are_added():
    tree = two_layers().summarized()
    assert tree.at("layer.*.conv", "forward").total.energy_j == 8.0
    (conv,) = tree.at("layer.*.conv", "forward").children
    assert (conv.name, conv.calls, conv.total.time_s) == ("conv2d", 4, pytest.approx(0.8))
    assert tree.total.energy_j == 20.0


def test_flat_adds_operations_wherever_they_ran():
    found = {(node.phase, node.name): node.total.energy_j for node in two_layers().flat().root.walk() if node.calls}
    assert found == {("forward", "conv2d"): 8.0, ("backward", "conv2d"): 7.0, ("forward", "linear"): 1.0}
    # What modules and the model did without an operation has their names.
    own = EnergyTree.of("net", [Row("a.b", share(1.0)), Row("", share(2.0))]).flat()
    assert {node.name: node.own.energy_j for node in own.root.children} == {"b": 1.0, "root": 2.0}


def test_a_sum_has_the_weakest_source_counts_what_is_unknown_and_is_rounded_once():
    total = Figure.total([Figure.of(1.5, "measured"), Figure.of(2.0, "modelled"), Figure.of(None, "measured")])
    assert total == Figure(3.5, "modelled", unknown=1)
    assert Figure.total([Figure.of(None, "modelled")] * 2) == Figure(0.0, "missing", unknown=2)
    # 1 + 1e-16 rounds back to 1, ten thousand times over; together they are 1e-12.
    small = [Figure.of(1e-16, "measured")] * 10_000
    assert Figure.total([Figure.of(1.0, "measured"), *small]).value == 1.000000000001


def test_missing_is_never_zero_and_what_is_impossible_is_refused():
    assert Figure.of(0.0, "measured").source == "measured"
    assert Figure.of(None, "measured") == Figure(0.0, "missing", unknown=1)
    wrong = [(0.0, "missing"), (1.0, "missing", 1), (1.0, "guessed"), (1.0, "measured", -1), (1.0, "measured", True)]
    for figure in (*wrong, *((value, "measured") for value in (-1.0, math.nan, math.inf))):
        with pytest.raises(InputError, match="out of range"):
            Figure(*figure)


def test_devices_work_side_by_side_and_their_joules_add_up():
    gpu = Share({"gpu": Figure.of(2.0, "measured")}, {("gpu", "static"): Figure.of(60.0, "measured")})
    cpu = Share({"cpu": Figure.of(3.0, "measured")}, {("cpu", "package"): Figure.of(40.0, "modelled")})
    both = Share.total([gpu, cpu, gpu])
    assert (both.time_s, both.energy_j, both.source) == (4.0, 160.0, "modelled")  # the GPU: 2 s + 2 s
    assert both.on("gpu").energy_j == 120.0
    assert both.devices == ("gpu", "cpu")
    assert both.by_component() == {"static": Figure(120.0, "measured"), "package": Figure(40.0, "modelled")}


def test_half_of_a_share_knows_no_more_than_the_whole():
    part = ("gpu", "total")
    for figure, half in ((Figure(4.0, "measured", unknown=2), 2.0), (Figure.of(None, "measured"), 0.0)):
        scaled = Share({"gpu": figure}, {part: figure}).scaled_by(0.5)
        assert scaled.energy[part] == scaled.time["gpu"] == Figure(half, figure.source, figure.unknown)
        assert scaled.unknown == figure.unknown > 0


PATHS = st.lists(st.sampled_from(["a", "b", "0", "1"]), max_size=4).map(".".join)
ROWS = st.builds(
    Row,
    PATHS,
    st.builds(share, st.none() | st.floats(0, 1e6), st.floats(0, 10), st.sampled_from(["static", "dynamic"])),
    st.sampled_from([None, "relu", "linear"]),
    st.sampled_from(["forward", "backward", "optimizer", "other"]),
)


@given(st.lists(ROWS, max_size=30), st.floats(0, 1e6))
def test_own_shares_and_what_is_unattributed_are_the_total(rows, unattributed):
    whole = math.fsum([*(row.share.energy_j for row in rows), unattributed])
    tree = EnergyTree.of("random", rows, share(unattributed))
    again = EnergyTree.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert again.to_dict() == tree.to_dict()
    assert again.total.unknown == sum(row.share.unknown for row in rows)
    for each in (tree, again, tree.summarized(), tree.flat()):
        own = math.fsum([*(node.own.energy_j for node in each.root.walk()), each.unattributed.energy_j])
        assert own == pytest.approx(whole, rel=1e-12, abs=0)
        assert each.total.energy_j == pytest.approx(whole, rel=1e-12, abs=0)
        assert each.root.total.energy_j + unattributed == pytest.approx(whole, rel=1e-12, abs=0)


def test_a_tree_as_text_csv_and_nested_nodes():
    """What is unknown and unattributed is said; nodes have the totals of what is below."""
    missing = Share(energy={("gpu", "total"): Figure.of(None, "modelled")})
    tree = EnergyTree.of("net", [Row("a", share(2.0, 0.1), calls=2), Row("b", missing)], share(2.0), ["a note"])
    assert tree.to_text().splitlines() == [
        "energy   share    time  calls  part",
        "------  ------  ------  -----  ------------",
        " > 2 J  50.0 %  100 ms         net",
        "   2 J  50.0 %  100 ms      2    a",
        "     -   0.0 %     0 s      1    b",
        "   2 J  50.0 %     0 s         unattributed",
        "note: a note",
    ]
    head, *lines = two_layers().to_csv().splitlines()
    assert head.startswith("phase,path,level,name,calls,own_time_s,own_energy_j")
    assert len(lines) == sum(1 for _ in two_layers().root.walk())
    assert any(line.startswith("forward,layer.1.conv,operation,conv2d,2") for line in lines)
    nested = tree.to_nested()
    assert (nested["root"]["energy_j"], nested["unattributed"]["energy_j"]) == (2.0, 2.0)
    assert [(node["path"], node["energy_j"]) for node in nested["root"]["children"]] == [("a", 2.0), ("b", None)]
    assert nested["root"]["children"][0]["components_j"] == {"total": 2.0}
    forward, backward = two_layers().to_nested()["root"]["children"]
    assert (forward["level"], forward["energy_j"], backward["energy_j"]) == ("phase", 9.0, 7.0)
    assert forward["children"][1]["children"][0]["name"] == "linear"


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


def test_pictures_are_drawn_to_scale():
    svg = EnergyTree.of("net", [Row("a", share(3.0)), Row("<b>", share(1.0))]).plot().svg
    assert 'width="720.0"' in svg  # three quarters of 960 pixels
    assert 'width="240.0"' in svg
    assert "<b>" not in svg
    in_s = [Row(name, Share({"cpu": Figure(seconds, "measured")})) for name, seconds in (("a", 3.0), ("b", 1.0))]
    assert 'width="720.0"' in EnergyTree.of("net", in_s).plot().svg  # by seconds, where no joules are known
    deep = EnergyTree.of("net", [Row(".".join("abcdefghijkl"), share(1.0))])
    assert deep.plot().svg.count("<g>") == 8  # rows at most


def test_damaged_json_and_unknown_modules_phases_and_calls_are_refused():
    for damage in ({"format": 2}, {"rows": 3}, {"rows": [{"path": "a"}]}, {"unattributed": None}, {"notes": 1}):
        with pytest.raises(InputError):
            EnergyTree.from_dict({**two_layers().to_dict(), **damage})
    with pytest.raises(InputError, match="no such module"):
        two_layers().at("tail")
    with pytest.raises(InputError, match="unknown phase"):
        EnergyTree.of("net", [Row("a", share(1.0), phase="sideways")])
    for calls in (-1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="number of calls"):
            EnergyTree.of("net", [Row("a", share(1.0), calls=calls)])


def of_rank(joules, seconds, source="measured"):
    share = Share({"gpu0": Figure.of(seconds, source)}, {("gpu0", "board"): Figure.of(joules, source)})
    rest = Share({}, {("gpu0", "board"): Figure.of(1.0, source)})
    rows = [Row("layer.0", share, "linear", "forward", 2), Row("head", share.scaled_by(0.5), "linear", "forward")]
    return EnergyTree.of("model", rows, rest, notes=("a note",))


def test_joules_of_ranks_add_up_and_the_longest_time_counts():
    found = merged("two ranks", {"rank0": of_rank(10.0, 1.0), "rank1": of_rank(20.0, 3.0)})
    layer = found.at("layer.0")
    assert (layer.total.energy_j, layer.total.time_s, layer.children[0].calls) == (30.0, 3.0, 4)
    assert found.total.energy_j == pytest.approx(30 + 15 + 2)
    assert set(found.total.devices) == {"rank0/gpu0", "rank1/gpu0"}
    assert found.notes == ("rank0: a note", "rank1: a note")
    with pytest.raises(InputError, match="nothing to merge"):
        merged("none", {})


def test_repeats_have_a_mean_and_a_deviation():
    largest, head = repeated([of_rank(10.0, 1.0).root, of_rank(20.0, 3.0).root])
    assert (largest.path, largest.energy_j, largest.mean) == ("layer.0", (10.0, 20.0), 15.0)
    assert largest.deviation == pytest.approx(50**0.5)
    assert head.time_s == (0.5, 1.5)
    rows = [Row(path, Share({"cpu": Figure(2.0, "measured")}), "mm", "forward") for path in "ab"]
    seconds, _ = repeated([EnergyTree.of("model", rows).root])
    assert (seconds.mean, seconds.deviation) == (2.0, 0.0)


def test_the_command_merges_what_ranks_wrote(call, printed, tmp_path):
    for rank, joules in enumerate((10.0, 20.0)):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"tree": of_rank(joules, 1.0).to_dict()}))
    out = printed("account", "merge", tmp_path / "rank0.json", tmp_path / "rank1.json", "--json")
    assert EnergyTree.from_dict(json.loads(out)).total.energy_j == pytest.approx(47)
    # Two nodes, whose ranks name their files alike.
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "rank0.json").write_text((tmp_path / "rank1.json").read_text())
    out = printed("account", "merge", tmp_path / "rank0.json", tmp_path / "node1" / "rank0.json", "--json")
    assert EnergyTree.from_dict(json.loads(out)).total.energy_j == pytest.approx(47)
    (tmp_path / "rank1.json").write_text("{}")
    code, _, err = call("account", "merge", tmp_path / "rank1.json")
    assert (code, "not an accounting" in err) == (2, True)
