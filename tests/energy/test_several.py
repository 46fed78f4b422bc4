"""Trees of several ranks are added up, and those of repeats compared."""

import json

import pytest

from joulecast.energy import EnergyTree, Figure, Row, Share
from joulecast.energy.several import merged, repeated
from joulecast.errors import InputError


def tree(joules, seconds, source="measured"):
    share = Share({"gpu0": Figure.of(seconds, source)}, {("gpu0", "board"): Figure.of(joules, source)})
    rest = Share({}, {("gpu0", "board"): Figure.of(1.0, source)})
    rows = [Row("layer.0", share, "linear", "forward", 2), Row("head", share.scaled_by(0.5), "linear", "forward")]
    return EnergyTree.of("model", rows, rest, notes=("a note",))


def test_joules_of_ranks_add_up_and_the_longest_time_counts():
    found = merged("two ranks", {"rank0": tree(10.0, 1.0), "rank1": tree(20.0, 3.0)})
    layer = found.at("layer.0")
    assert (layer.total.energy_j, layer.total.time_s, layer.children[0].calls) == (30.0, 3.0, 4)
    assert found.total.energy_j == pytest.approx(30 + 15 + 2)
    assert set(found.total.devices) == {"rank0/gpu0", "rank1/gpu0"}
    assert found.notes == ("rank0: a note", "rank1: a note")
    with pytest.raises(InputError, match="nothing to merge"):
        merged("none", {})


def test_repeats_have_a_mean_and_a_deviation():
    largest, head = repeated([tree(10.0, 1.0), tree(20.0, 3.0)])
    assert (largest.path, largest.energy_j, largest.mean) == ("layer.0", (10.0, 20.0), 15.0)
    assert largest.deviation == pytest.approx(50**0.5)
    assert head.time_s == (0.5, 1.5)
    rows = [Row(path, Share({"cpu": Figure(2.0, "measured")}), "mm", "forward") for path in "ab"]
    seconds, _ = repeated([EnergyTree.of("model", rows)])
    assert (seconds.mean, seconds.deviation) == (2.0, 0.0)


def test_the_command_merges_what_ranks_wrote(call, printed, tmp_path):
    for rank, joules in enumerate((10.0, 20.0)):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"tree": tree(joules, 1.0).to_dict()}))
    out = printed("account", "merge", tmp_path / "rank0.json", tmp_path / "rank1.json", "--json")
    assert EnergyTree.from_dict(json.loads(out)).total.energy_j == pytest.approx(47)
    (tmp_path / "rank1.json").write_text("{}")
    code, _, err = call("account", "merge", tmp_path / "rank1.json")
    assert (code, "not an accounting" in err) == (2, True)
