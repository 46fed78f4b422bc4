"""Models of the user's own files, with options, on the command line."""

import json

import pytest

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
    ("name", "options", "says"),
    [
        ("Nett", (), "did you mean Net"),
        ("fails", (), "no such file"),
        ("number", (), "this is not a model"),
        ("Net", ("--model-option", "width=9"), "width"),
        ("Net", ("--model-option", "outputs"), "NAME=VALUE"),
        ("ready", ("--model-option", "outputs=3"), "options make a model that is given by name"),
    ],
)
def test_impossible_models_are_refused(call, net, name, options, says):
    code, _, err = call("extract", f"{net}:{name}", "2,8", *options)
    assert code == 2
    assert says in err


def test_a_file_that_is_not_there_or_does_not_run(call, tmp_path):
    (tmp_path / "bad.py").write_text("import nowhere_at_all\n")
    for file, says in (("no.py", "cannot be read"), ("bad.py", "nowhere_at_all")):
        assert says in call("extract", f"{tmp_path / file}:Net", "2,8")[2]


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
