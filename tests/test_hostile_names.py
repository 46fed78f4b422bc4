"""Names in files of strangers: no terminal, table, page, spreadsheet or Markdown gets more from them than a text."""

from __future__ import annotations

import csv
import io
import json

import pytest

import joulecast
from joulecast import Network
from joulecast.errors import InputError, JoulecastError
from joulecast.queries.budgets import Budget, Review

TAG = "<img src=x onerror=alert(1)>"
NAME = f"=1+1|**x**\n[a](http://evil)\x1b]0;owned\x07\u202e\ud800{TAG}"


@pytest.fixture
def network(tmp_path):
    """A network of a file in which every text is hostile."""
    relu = {"kind": "relu", "input_shapes": [[32, 64]], "count": 1, "module_paths": [NAME], "mode": "inference"}
    dropped = {"name": NAME, "count": 1, "module_paths": [NAME], "reason": NAME}
    path = tmp_path / "network.json"
    path.write_text(json.dumps({"name": NAME, "operations": [relu], "dropped": [dropped], "assumptions": [NAME]}))
    return Network.load(path)


def test_texts_of_a_network_are_printable(network):
    (entry,), (dropped,) = network.entries, network.dropped
    texts = [network.name, *entry.module_paths, dropped.name, dropped.reason, *dropped.module_paths]
    assert all(text.isprintable() for text in [*texts, *network.assumptions])
    assert "\\x1b]0;owned\\x07\\u202e\\ud800" in network.name
    assert Network(network.entries, name="a\nb\x00").name == "a\\nb\\x00"


def test_no_cell_of_a_table_is_a_formula_and_pages_and_pictures_hold_names_as_text(network):
    prediction = joulecast.predict(network, gpu="A30")
    tables = [prediction.to_csv(), network.to_csv()]
    cells = [cell for table in tables for row in csv.reader(io.StringIO(table)) for cell in row]
    assert any("1+1" in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    pages = [prediction._repr_html_(), prediction.tree()._repr_html_(), network._repr_html_()]
    assert not [page for page in pages if "<img" in page or "\x1b" in page]


def test_a_review_in_markdown_holds_names_as_text(network):
    found = joulecast.predict(network, gpu="A30").to_dict()
    text = Review(found, found, [Budget.of("energy=+5%")], ("main|<b>", "now")).to_markdown()
    assert "\\<img" in text
    assert not [tag for tag in ("<img", "<b>", "**x", "[a]") if text.replace(f"\\{tag[0]}", "").count(tag)]
    assert len({line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    on_cpu = joulecast.predict(network, gpu="cpu").to_dict()
    assert "| energy | - | - |" in Review(on_cpu, on_cpu, []).to_markdown()  # a CPU has seconds alone


@pytest.mark.parametrize("kind", ["\x1b[2J", "a\u202eb", "\ud800"])
def test_errors_send_nothing_to_a_terminal_but_text(kind):
    with pytest.raises(InputError) as refused:
        Network.from_dict({"operations": [{"kind": kind, "input_shapes": [[1]]}]})
    assert str(refused.value).replace("\n", "").isprintable()
    assert str(JoulecastError("no", given="a\nb\x07")) == "no\ngiven:   a\nb\\x07"


@pytest.mark.parametrize("given", ["a" * 10_000, "a" * 300 + ".b", "a/" + "b" * 300])
@pytest.mark.parametrize("field", ["model", "gpu", "host", "calibration"])
def test_a_name_longer_than_a_file_name_may_be(field, given):
    question = {"model": "resnet18", "input_shape": (1, 3, 64, 64), "gpu": "A30", field: given}
    with pytest.raises(JoulecastError):
        joulecast.predict(**question)
