"""`joulecast account` on the command line: models, variants, and what goes wrong."""

import json

import pytest

from conftest import benchmark

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


def test_a_model_without_a_counter_has_seconds_and_says_why(printed, net):
    out = printed("account", net, "4,8", "--training", "--loop", "0.01", "--sensors", "cpu")
    assert "no energy counter in" in out
    assert "nothing to compare" in printed("account", net, "4,8", *QUICK, "--gpu", "A30")
    assert "joules not measured" in out.splitlines()[0]
    assert "note: no energy counter was read" in out
    assert any(line.endswith("first") for line in out.splitlines())
    report = json.loads(printed("account", net, "4,8", "--model-option", "width=16", *QUICK, "--json"))
    assert report["energy_j"] is None
    assert {row["path"] for row in report["tree"]["rows"]} == {"", "first", "last"}


def test_a_study_compares_variants_with_the_first():
    """Half of the layers of BERT need half of the joules in the encoder, in modules that are all shared."""
    with benchmark("variants") as script:
        whole, half = script.study("bert_base", (8, 128), ["num_hidden_layers=6"], "training", "A30")
    assert whole["pcc"] == pytest.approx(1)
    assert whole["med_j"] == 0
    assert half["forward_j"] == pytest.approx(whole["forward_j"] / 2, rel=0.05)
    assert half["shared_modules"] == whole["shared_modules"]
    assert half["med_j"] * half["shared_modules"] == pytest.approx(half["energy_j"] - whole["energy_j"], rel=1e-6)


def test_a_model_by_name_runs_with_random_weights(printed, tmp_path):
    printed("account", "squeezenet1_1", "1,3,64,64", *QUICK, "--summarized", "--plot", tmp_path / "page.html")
    assert "features" in (tmp_path / "page.html").read_text()
