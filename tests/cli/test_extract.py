"""`joulecast extract`: the tree of modules, several inputs, differences; models of a user's own files, with options."""

import csv
import io
import json

import pytest

from joulecast import Network, Operation
from joulecast.cli.describe import tree_text
from joulecast.errors import InputError
from joulecast.operations.entry import Entry
from joulecast.operations.inputs import parse_shapes

RELU = Operation("relu", [(4, 8)])
LINEAR = Operation("linear", [(4, 8)], {"out_features": 8, "bias": False})
PATHS = ["stem", "layers.0.a", "layers.1.a", "layers.2.a", "layers.3.b", "layers.10.a"]
NETWORK = Network((Entry.at(LINEAR, PATHS), Entry.at(RELU, ["layers.0", "layers.1", "layers.2", "layers.3", "", ""])))


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[2:]]


def test_the_tree_counts_what_it_does_not_show():
    # Of 6 products 2 x 4 x 8 x 8 = 512 FLOPs each, of 6 relus 4 x 8 = 32: 3264 in all. Both move 32 elements in and
    # out, a product 64 weights as well: 6 x (4 x 64 + 256) + 6 x 256 = 4608 bytes.
    top = rows(tree_text(NETWORK, 1))
    assert top[0][:6] == ["(model)", "12", "3.26", "kFLOP", "4.61", "kB"]
    assert top[0][-2:] == ["2", "relu"]
    assert [row[0] for row in top] == ["(model)", "stem", "layers"]
    assert top[2][-4:] == ["5", "linear,", "4", "relu"]


def test_numbered_modules_share_a_row():
    shown = rows(tree_text(NETWORK, 2))
    assert [row[0] for row in shown] == ["(model)", "stem", "layers", "layers.*"]
    assert shown[3][1:3] == ["5", "9"]
    deep = rows(tree_text(NETWORK, 0))
    assert [row[:3] for row in deep[4:]] == [["layers.*.a", "4", "4"], ["layers.*.b", "1", "512"]]
    assert tree_text(NETWORK, 3) == tree_text(NETWORK, 0)


@pytest.mark.parametrize(
    ("texts", "shapes"),
    [
        ([], None),
        (["1,3,8,8"], (1, 3, 8, 8)),
        (["1x3", "2,4"], [(1, 3), (2, 4)]),
        (["input_ids=8,128", "mask=8,1"], {"input_ids": (8, 128), "mask": (8, 1)}),
        *((texts, InputError) for texts in (["a=1,2", "3,4"], ["a=1", "a=2"], ["a="], ["1,0"], ["="])),
    ],
)
def test_shapes_on_the_command_line(texts, shapes):
    if shapes is InputError:
        with pytest.raises(InputError):
            parse_shapes(texts)
    else:
        assert parse_shapes(texts) == shapes


def test_several_inputs(printed):
    out = printed("extract", "raft_small", "1,3,128,128", "1,3,128,128", "--json")
    assert json.loads(out)["input_shape"] == [[1, 3, 128, 128]] * 2


def test_rows_of_operations(printed):
    asked = ("extract", "resnet18", "1,3,64,64")
    tree, table, top, listed = (printed(*asked, *more) for more in ((), ("--operations",), ("--top", "2"), ("--csv",)))
    assert "layer1.*.conv1" in tree
    assert len(tree.splitlines()) < 100
    assert "conv2d 1x3x64x64 -> 1x64x32x32" in table
    assert len(table.splitlines()) > len(top.splitlines())
    rows = list(csv.DictReader(io.StringIO(listed)))
    assert len(rows) == len(json.loads(printed("extract", "resnet18", "1x3x64x64", "--json"))["operations"])
    assert sum(int(row["count"]) for row in rows) == 68


def test_differences(printed):
    out = printed("extract", "resnet18", "1,3,64,64", "--diff", "resnet34")
    assert "resnet18 -> resnet34: 68 -> 124 calls" in out
    out = printed("extract", "resnet18", "1,3,64,64", "--diff", "resnet18", "--json")
    assert json.loads(out)["changed"] == []


# Models of a user's own files.

NET = """
import torch
from helper import width

class Net(torch.nn.Module):
    def __init__(self, outputs=4):
        super().__init__()
        self.layer = torch.nn.Linear(width, outputs)

    def forward(self, x):
        return torch.relu(self.layer(x))

ready = Net(6)
number = 3
def fails():
    raise RuntimeError("no such file")
"""


@pytest.fixture
def net(tmp_path):
    (tmp_path / "helper.py").write_text("width = 8\n")
    (tmp_path / "bad.py").write_text("import nowhere_at_all\n")
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


@pytest.mark.parametrize(
    ("name", "options", "outputs"), [("Net", (), 4), ("Net", ("--model-option", "outputs=5"), 5), ("ready", (), 6)]
)
def test_a_class_or_a_model_of_a_file(call, printed, net, name, options, outputs):
    out = printed("extract", f"{net}:{name}", "2,8", *options, "--json")
    assert json.loads(out)["operations"][0]["attributes"]["out_features"] == outputs
    assert call("predict", f"{net}:{name}", "2,8", *options, "--gpu", "A30")[0] == 0


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        ("net.py:Nett", (), "did you mean Net"),
        ("net.py:fails", (), "no such file"),
        ("net.py:number", (), "this is not a model"),
        ("net.py:Net", ("--model-option", "width=9"), "width"),
        ("net.py:Net", ("--model-option", "outputs"), "NAME=VALUE"),
        ("net.py:ready", ("--model-option", "outputs=3"), "options make a model that is given by name"),
        ("no.py:Net", (), "no such Python file"),
        ("bad.py:Net", (), "nowhere_at_all"),
    ],
)
def test_impossible_models_are_refused(call, net, model, options, says):
    code, _, err = call("extract", f"{net.parent / model}", "2,8", *options)
    assert code == 2
    assert says in err


def test_options_of_models_by_name(call, printed):
    out = printed("extract", "vit_b_32", "1,3,64,64", "--model-option", "image_size=64", "--json")
    assert json.loads(out)["operations"][0]["input_shapes"] == [[1, 3, 64, 64]]
    out = printed("extract", "gpt2", "1,8", "--model-option", "n_layer=2", "--json")
    assert sum(op["count"] for op in json.loads(out)["operations"] if op["kind"] == "attention") == 2
    for option, says in (("weights=IMAGENET1K_V1", "without weights"), ("imagesize=64", "imagesize")):
        code, _, err = call("extract", "vit_b_32", "1,3,64,64", "--model-option", option)
        assert (code, says in err) == (2, True)


def test_assumptions_are_printed(call, printed, net):
    out = printed("extract", f"{net}:Net", "2,8", "--assume", "experts=uniform")
    assert "assumed: every expert gets equally many tokens" in out
    assert call("extract", f"{net}:Net", "2,8", "--assume", "expert=uniform")[0] == 2
