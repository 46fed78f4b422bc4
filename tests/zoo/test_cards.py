"""Cards: what entries say is renewed without training, and nothing else changes; what was measured on each GPU."""

import json
import re
import shutil

import pytest

from conftest import benchmark, rewrite
from joulecast.system.resources import shipped
from joulecast.zoo.cards import Measured, measured_gpus
from joulecast.zoo.rendering import markdown

SHIPPED = sorted(path.parent for path in shipped("zoo").glob("*/*/card.json"))


def words(text):
    """The words of a text, whatever the order of its rows."""
    return sorted(re.findall(r"[^\s,]+", text))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_what_people_read_is_written_from_the_card(folder):
    card = json.loads((folder / "card.json").read_text())
    assert words((folder / "README.md").read_text()) == words(markdown(card)), "run `python3 tasks.py golden`"


@pytest.mark.parametrize("name", ["a30/forest-inference", "any-gpu/kernels"])
def test_old_sentences_are_replaced_and_nothing_else(name, tmp_path):
    entry = shutil.copytree(shipped("zoo") / name, tmp_path / "entry")
    with benchmark("renew") as script:
        renew_card = script.renew_card
    renew_card(entry)
    assert not renew_card(entry)
    before = {path.name: path.read_bytes() for path in entry.iterdir()}
    rewrite(entry, "card.json", {**json.loads(before["card.json"]), "splits": "as it was", "limits": ["none"]})
    assert renew_card(entry)
    assert {path.name: path.read_bytes() for path in entry.iterdir()} == before


def test_the_zoo_knows_what_it_learned_from():
    found = measured_gpus()
    assert found["NVIDIA A30"].networks == 48  # 20 in inference, 28 in training
    assert found["NVIDIA A30"].has_power
    assert not found["Tesla T4"].has_power  # NeuSight measured only times.
    assert len(found["NVIDIA A100-PCIE-40GB"].clocks_mhz) == 12
    assert found["NVIDIA H200"].has_power  # kernels in half precision and below
    assert not found["NVIDIA L40S"].has_power
    assert "NVIDIA H100 NVL" not in found


def test_datasets_add_up_and_predictors_share():
    one, other = Measured(100, 5, (900.0,), True), Measured(50, 3, (600.0, 900.0))
    assert one + other == Measured(150, 8, (600.0, 900.0), True)
    assert one | other == Measured(100, 5, (600.0, 900.0), True)
    assert str(other) == "50 operations, 3 measurements of networks at 2 clocks (time only)"
