"""What entries say about themselves is renewed without training, and nothing else of them changes."""

from __future__ import annotations

import json
import shutil

import pytest

from conftest import rewrite
from joulecast.resources import shipped
from joulecast.zoo.entries.common_files import card_files
from joulecast.zoo.renewal import renew_card

SHIPPED = sorted(path.parent for path in shipped("zoo").glob("*/*/card.json"))


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_what_people_read_is_written_from_the_card(folder):
    for name, content in card_files(json.loads((folder / "card.json").read_text())).items():
        assert (folder / name).read_bytes() == content, f"{name}: run `python3 tasks.py golden`"


@pytest.mark.parametrize("name", ["a30/forest-inference", "any-gpu/kernels"])
def test_old_sentences_are_replaced_and_nothing_else(name, tmp_path):
    before = shipped("zoo") / name
    entry = shutil.copytree(before, tmp_path / "entry")
    assert not renew_card(entry)
    card = json.loads((entry / "card.json").read_text())
    rewrite(entry, "card.json", {**card, "splits": "as it was", "limits": ["none"]})
    assert renew_card(entry)
    assert {path.name: path.read_bytes() for path in entry.iterdir()} == {
        path.name: path.read_bytes() for path in before.iterdir()
    }
