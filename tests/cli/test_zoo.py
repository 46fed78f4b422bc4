"""`joulecast zoo`: list, show, pull, push, verify, remove."""

import json
import shutil

import pytest

from conftest import ENTRY_NAME
from joulecast.zoo import entries

pytestmark = pytest.mark.usefixtures("fresh_cache")


def test_push_list_show_pull_verify_remove(call, printed, small_entry, tmp_path):
    there = tmp_path / "there"
    assert call("zoo", "push", small_entry, there)[:2] == (0, f"{ENTRY_NAME}: {there}\n")
    assert ENTRY_NAME in printed("zoo", "list", there)
    assert list(json.loads(printed("zoo", "list", there, "--json"))) == [ENTRY_NAME]

    code, out, _ = call("zoo", "pull", there)
    assert (code, out) == (0, f"{ENTRY_NAME}: ships with joulecast; use --replace to pull it all the same\n")
    assert call("zoo", "pull", there, ENTRY_NAME)[0] == 5
    out = printed("zoo", "pull", "--replace", there)
    assert out.startswith(f"{ENTRY_NAME}: ")
    (row,) = [line for line in printed("zoo", "list").splitlines() if line.startswith(ENTRY_NAME)]
    assert f"pulled from {there}" in row
    assert row.split()[1] != "-"  # its size
    assert "simulated" in printed("zoo", "show", ENTRY_NAME)
    assert call("zoo", "verify", ENTRY_NAME)[:2] == (0, f"{ENTRY_NAME}: unchanged\n")
    out = printed("predict", "resnet18", "8,3,64,64", "--gpu", "A30", "--json")

    assert call("zoo", "remove", ENTRY_NAME)[:2] == (0, f"{ENTRY_NAME}: removed\n")
    assert call("zoo", "remove", ENTRY_NAME, "--from", there)[0] == 0
    assert printed("zoo", "list", there) == "the zoo is empty\n"
    assert call("zoo", "remove", ENTRY_NAME)[0] == 5


def test_a_card_for_machines_and_people(printed, small_entry):
    card = json.loads(printed("zoo", "show", small_entry, "--json"))
    assert card["name"] == ENTRY_NAME
    assert card["data"][0]["source"] == "simulated"
    assert card["licence"] == "Apache-2.0"
    (row,) = [row for row in card["errors"] if row["what"] == "conv2d"]
    assert row["time"]["median"] < 0.2
    assert set(card["entry"]) == {"manifest_sha256", "format_version", "libraries", "files"}
    assert card["provenance"]["git_commit"]
    text = printed("zoo", "show", small_entry)
    for part in ("## Data", "## Errors", "### Operations in folds", "## Limits", "## Recipe", "Apache-2.0"):
        assert part in text


def test_verify_names_what_is_damaged(call, small_entry, tmp_path):
    damaged = shutil.copytree(small_entry, tmp_path / "damaged")
    (damaged / "card.json").write_text("{}")
    code, out, err = call("zoo", "verify", small_entry, damaged)
    assert code == 5
    assert out == f"{small_entry}: unchanged\n"
    assert "was changed" in err
    assert err.count("next:") == 1


def test_shipped_entries_are_unchanged(printed):
    out = printed("zoo", "verify")
    assert len(out.splitlines()) == len(entries())
