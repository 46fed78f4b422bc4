"""`joulecast account` on the command line: models, what goes wrong, and the evaluation."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("torch")

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, width), torch.nn.Linear(width, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))
"""
QUICK = ("--loop", "0.01", "--iterations", "2", "--sensors", "none")


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.setenv("JOULECAST_POWERCAP", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))  # Without perf, which may be able to count joules.
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:Net"


def test_a_model_without_a_counter_has_seconds_and_says_why(call, net):
    code, out, _ = call("account", net, "4,8", "--training", "--loop", "0.01", "--sensors", "cpu")
    assert code == 0
    assert "no energy counter in" in out
    assert "joules not measured" in out.splitlines()[0]
    assert "note: no energy counter was read" in out
    assert any(line.endswith("first") for line in out.splitlines())


def test_json_is_the_accounting(call, net):
    code, out, _ = call("account", net, "4,8", "--model-option", "width=16", *QUICK, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["energy_j"] is None
    assert {row["path"] for row in report["tree"]["rows"]} == {"", "first", "last"}


def test_a_prediction_stands_beside(call, net):
    code, out, _ = call("account", net, "4,8", *QUICK, "--gpu", "A30")
    assert code == 0
    assert "nothing to compare" in out


def test_a_study_compares_variants_with_the_first(call):
    """Half of the layers of BERT need half of the joules in the encoder, in modules that are all shared."""
    asked = ("account", "study", "bert_base", "8,128", "--gpu", "A30", "--training", "--variant", "num_hidden_layers=6")
    code, out, _ = call(*asked, "--json")
    assert code == 0
    whole, half = json.loads(out)
    assert whole["pcc"] == pytest.approx(1)
    assert whole["med_j"] == 0
    assert half["forward_j"] == pytest.approx(whole["forward_j"] / 2, rel=0.05)
    assert half["shared_modules"] == whole["shared_modules"]
    assert half["med_j"] * half["shared_modules"] == pytest.approx(half["energy_j"] - whole["energy_j"], rel=1e-6)
    assert "num_hidden_layers=6" in call(*asked)[1]


def test_a_model_by_name_runs_with_random_weights(call, tmp_path):
    code, _, _ = call("account", "squeezenet1_1", "1,3,64,64", *QUICK, "--summarized", "--save", tmp_path / "page.html")
    assert code == 0
    assert "features" in (tmp_path / "page.html").read_text()


def test_the_evaluation_stands_beside_what_was_published(call, net, tmp_path):
    given = "account", "evaluate", net, "64,8", "--training", "--experiments", "2", "--iterations", "2", "--pairs", "1"
    code, out, _ = call(*given, "--sensors", "none", "--save", tmp_path / "matrices.svg")
    assert code == 0
    assert "0.90 to 0.94" in out
    assert "simulated power" in out
    assert (tmp_path / "matrices.svg").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("account", "resnet18"), "needs the shape"),
        (("account", "resnet1888", "1,3,32,32"), "unknown model"),
        (("account", "resnet18", "1,3,32,32", "--recording", "r.jsonl"), "a recording can only be used with a trace"),
        (("account", "resnet18", "1,3,32,32", "--trace", "t.json"), "leave one of them out"),
        (("account", "--trace", "no-such-file.json"), "this trace cannot be read"),
        (("account", "resnet18", "1,3,32,32", "--static-power", "20"), "add --gpu"),
        (("account", "resnet18", "1,3,32,32", "--device", "cuda:99"), "is not available|no such GPU"),
    ],
)
def test_contradicting_arguments_are_refused(call, arguments, words):
    code, _, error = call(*arguments)
    assert code == 2
    assert re.search(words, error)
