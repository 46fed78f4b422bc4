"""What entries say about themselves is renewed without training, and nothing else of them changes."""

import json
import re
import shutil

import pytest

from conftest import benchmark, rewrite
from joulecast.system.resources import shipped
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
