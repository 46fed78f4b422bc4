"""Networks: counting, JSON, other modes and precisions."""

import json
import re
from copy import copy

import pytest

from conftest import full_disk
from joulecast import Network, Operation
from joulecast.errors import InputError
from joulecast.operations.entry import Entry

RELU = Operation("relu", [(4, 8)])
LINEAR = Operation("linear", [(4, 8)], {"out_features": 2})


def test_equal_operations_are_merged():
    network = Network.of([(RELU, 2), (LINEAR, 1), (RELU, 3)])
    assert [(entry.operation, entry.count) for entry in network] == [(RELU, 5), (LINEAR, 1)]
    assert network.calls == 6
    assert network.flops == 5 * 32 + 2 * 4 * 8 * 2


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    """So a calibration that is killed while it lists its operations chooses them again, or has all of them."""
    small, large = (Network.of([(Operation("relu", [(n, 8)]), 1) for n in range(1, count)]) for count in (2, 50))
    small.save(tmp_path / "net.json")
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        large.save(tmp_path / "net.json")
    assert Network.load(tmp_path / "net.json") == small
    assert [path.name for path in tmp_path.iterdir()] == ["net.json"]
    (tmp_path / "null").symlink_to("/dev/null")
    small.save(tmp_path / "null")
    assert (tmp_path / "null").is_char_device()  # A device is written to, and not replaced.


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("[]", "at least one"),
        ("{", "cannot be read"),
        ('{"operations": 3}', "list of operations"),
        ('[{"kind": "relu", "input_shapes": [[4]]}, {"kind": "relo", "input_shapes": [[4]]}]', "operation 2 of"),
        ('[{"kind": "relu", "input_shapes": [[4]], "count": 0}]', "positive integer"),
        (
            '[{"kind": "relu", "input_shapes": [[4]], "mode": "training"}, {"kind": "relu", "input_shapes": [[4]]}]',
            "share",
        ),
        ("[3]", "an operation is an object"),
        ('{"operations": [{"kind": "relu", "input_shapes": [[4]]}], "chanels_last": true}', "n has no such keys"),
    ],
)
def test_files_that_are_no_network_are_refused(tmp_path, value, says):
    (tmp_path / "n.json").write_text(value)
    with pytest.raises(InputError, match=says):
        Network.load(tmp_path / "n.json")


def test_calls_by_module():
    entry = Entry.at(RELU, ["a.0", "a.1", "a.0"])
    assert (entry.module_paths, entry.module_counts) == (("a.0", "a.1"), (2, 1))
    assert entry.by_module == {"a.0": 2, "a.1": 1}
    assert Entry.from_dict(entry.to_dict()) == entry
    assert Entry.at(RELU, ["a", "b"]).module_counts == ()
    # A file from before counts were kept: somewhere in a.
    assert Entry(RELU, 3, ("a.0", "a.1")).by_module == {"a": 3}
    assert Entry(RELU, 3).by_module == {"": 3}
    with pytest.raises(InputError, match="add up"):
        Entry(RELU, 3, ("a", "b"), (1, 1))


def test_calls_by_module_survive_another_precision():
    half = Operation("relu", [(4, 8)], precision="bf16")
    network = Network((Entry.at(RELU, ["a", "a"]), Entry.at(half, ["a", "b"])))
    (entry,) = network.replace(mode="inference", precision="fp32")
    assert entry == Entry(RELU, 4, ("a", "b"), (3, 1))


def test_diff():
    before = Network.of([(RELU, 2), (LINEAR, 1)], name="before")
    wide = Operation("linear", [(4, 8)], {"out_features": 4})
    after = Network.of([(RELU, 5), (wide, 1)], name="after")
    diff = before.diff(after)
    assert (diff.added, diff.removed, diff.changed) == (((wide, 1),), ((LINEAR, 1),), ((RELU, 2, 5),))
    assert diff.flops_difference == 3 * 32 + 2 * 4 * 8 * 2
    assert str(diff).splitlines() == [
        "before -> after: 3 -> 6 calls, +224 FLOP (+116.7%)",
        f"- 1 x {LINEAR}",
        f"~ 2 -> 5 x {RELU}",
        f"+ 1 x {wide}",
    ]
    html = diff._repr_html_()
    assert "<strong>before -&gt; after: 3 -&gt; 6 calls, +224 FLOP (+116.7%)</strong>" in html
    sides, cells = zip(*re.findall("text-align:(left|right)[^>]*>([^<]*)</t[hd]>", html), strict=True)
    assert sides == ("left", "right", "right") * 4
    assert cells == (
        *("operation", "calls in before", "in after"),
        *("linear 4x8 -&gt; 4x2 fp32", "1", ""),
        *("relu 4x8 fp32", "2", "5"),
        *("linear 4x8 -&gt; 4x4 fp32", "", "1"),
    )
    assert "<table>" not in before.diff(before)._repr_html_()
    assert not before.diff(before)
    assert json.loads(diff.to_json())["changed"][0]["counts"] == [2, 5]


def test_what_is_derived_does_not_travel_along():
    network = Network.of([(Operation("relu", [(2, 3)]), 1)])
    assert network.derived(lambda each: each.calls) == 1
    travelled = copy(network)
    assert travelled == network
    assert "_derived" not in vars(travelled)
