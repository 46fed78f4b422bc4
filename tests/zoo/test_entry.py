"""Zoo entries: round trip, golden prediction, every way to be damaged that a user could meet; and cards."""

import json
import os
import re
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_operations

from conftest import benchmark, rewrite, train_small
from joulecast import Network
from joulecast.errors import JoulecastError, ZooError
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.recipes import ForestRecipe
from joulecast.system.resources import shipped
from joulecast.zoo import entries, find_predictor, load_entry
from joulecast.zoo.cards import Measured, measured_gpus
from joulecast.zoo.catalogue import CPU_FOLDERS
from joulecast.zoo.entry import load_any
from joulecast.zoo.files import StoredEntry, parsed_json
from joulecast.zoo.rendering import markdown

TIME, POWER = "time.safetensors.z", "power.safetensors.z"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_small(tmp_path_factory.mktemp("data"), ForestRecipe(trees=8, folds=3))


@pytest.fixture(scope="module")
def stored(trained, tmp_path_factory):
    return trained.save(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def entry(stored, tmp_path):
    return shutil.copytree(stored, tmp_path / "entry")


def test_a_stored_predictor_predicts_as_the_trained_one(trained, entry):
    operations = simulated_operations()
    before, after = trained.predictor.operations.predict(operations), load_entry(entry).operations.predict(operations)
    assert after.time_s == pytest.approx(before.time_s, rel=1e-4)
    assert after.power_w == pytest.approx(before.power_w, rel=1e-4)
    assert after.source == before.source


@pytest.mark.parametrize(
    ("name", "unlearned", "learned"), [("network_static_w", 0, 13), ("network_tf32_factor", 1, 0.95)]
)
def test_what_networks_taught_is_stored(trained, tmp_path, name, unlearned, learned):
    chip = trained.predictor.operations.chip
    assert getattr(chip, name) == unlearned  # Trained without networks.
    operations = chip_alone(replace(chip, **{name: float(learned)}))
    more = replace(trained, predictor=replace(trained.predictor, operations=operations))
    assert getattr(load_entry(more.save(tmp_path)).operations.chip, name) == learned


def test_card_says_what_matters(entry):
    card = StoredEntry.of(entry).card
    assert card["data"][0]["operations"] == 100
    assert card["errors"][0]["time"]["r2"] > 0.99
    text = (entry / "README.md").read_text()
    assert "Limits" in text
    assert "simulated" in text


@pytest.mark.parametrize("name", ["card.json", "predictor.json", TIME, POWER, "manifest.json"])
@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_entries_that_lack_a_file_are_refused_and_left_alone(entry, name, content):
    """Files with changed bytes are refused in tests/system/test_damaged_files.py."""
    path = entry / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ZooError):
        load_entry(entry)
    assert path.exists() == (content is not None)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("predictor.json", {"inputs": ["log_roofline"]}, "other features"),
        ("predictor.json", {"gpu": "A31"}, "damaged"),
        ("predictor.json", {"baseline": {}}, "damaged"),
        ("predictor.json", {"network_static_w": -1.0}, "damaged"),
        ("predictor.json", {"network_static_w": 1000.0}, "damaged"),
        ("predictor.json", {"network_static_w": "13"}, "damaged"),
        ("predictor.json", {"network_tf32_factor": 0.0}, "damaged"),
        ("predictor.json", {"network_tf32_factor": 2.0}, "damaged"),
        ("predictor.json", {"host": None}, "damaged"),
    ],
)
def test_wrong_content_is_refused(entry, name, change, says):
    rewrite(entry, name, {**json.loads((entry / name).read_text()), **change})
    with pytest.raises(ZooError, match=says):
        load_entry(entry)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format_version": 4}, "of a newer joulecast"),
        ({"format_version": 0}, "another format"),
        ({"format_version": True}, "another format"),
        ({"predictor": "magic"}, "does not know the predictor"),
        ({"files": {"../card.json": {"sha256": "0" * 64, "size_bytes": 1}}}, "outside"),
        ({"files": {"card.json": {"sha256": "0", "size_bytes": 1}}}, "damaged"),
        ({"files": {f"f{i}": {} for i in range(161)}}, "more files"),
        ({"golden": {"operations": [], "time_s": [], "power_w": []}}, "number of operations"),
        ({"golden": []}, "damaged"),
        ({"golden": {"operations": [simulated_operations()[0].to_dict()], "time_s": [1.0]}}, "damaged"),
        ({"files": {}}, "incomplete"),
    ],
)
def test_wrong_manifests_are_refused(entry, change, says):
    manifest = json.loads((entry / "manifest.json").read_text())
    (entry / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ZooError, match=says) as caught:
        load_any(entry)
    if change.get("format_version") == 0:
        assert f"written by joulecast {manifest['libraries']['joulecast']}" in str(caught.value.given)
        assert "joulecast train" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda entry: (entry / POWER).read_bytes(), "no longer predicts"),
        (
            lambda _: zlib.compress(b"cos\nsystem\n(S'touch /tmp/never'\ntR."),
            "file of arrays in a zoo entry is damaged",
        ),
        (lambda _: zlib.compress(bytes((128 << 20) + 1), 1), "unpacks to more"),
    ],
    ids=["another predictor", "code", "gigabytes"],
)
def test_other_arrays_are_refused(entry, content, says):
    rewrite(entry, TIME, content(entry))
    with pytest.raises(ZooError, match=says):
        load_entry(entry)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_plain_files_are_opened(entry, kind):
    card = entry / "card.json"
    content = card.read_bytes()
    card.unlink()
    if kind == "link":
        (entry / "elsewhere").write_bytes(content)
        card.symlink_to(entry / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(card)
    else:
        card.mkdir()
    with pytest.raises(ZooError, match=r"plain file|cannot be read"):
        load_entry(entry)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": NaN}', '{"a": 1e999}', '"' + "x" * (9 << 20) + '"', "\xff", "{"]
)
def test_impossible_json_is_refused(text):
    with pytest.raises(ZooError, match=r"not valid JSON|larger than a"):
        parsed_json(text.encode("latin1"), "a card")


# What ships


@pytest.mark.parametrize("name", [name for name in entries() if not name.startswith(("any-gpu/", CPU_FOLDERS))])
def test_shipped_entries_load_and_are_what_they_say(name):
    loaded = load_entry(shipped("zoo") / name)
    card = StoredEntry.of(shipped("zoo") / name).card
    assert loaded.name == card["name"] == name
    assert loaded.operations.gpu.name == card["gpu"]
    assert card["data"][0]["source"]
    assert card["limits"]
    relu = [op for op in simulated_operations(card["mode"]) if op.kind == "relu"]
    network = loaded.predict(Network.of([(op, 1) for op in relu]))
    assert 0 < network.power_w <= 1.05 * loaded.operations.gpu.power_limit_w
    assert np.isfinite(network.energy_j)


def test_finding_predictors(entry):
    assert find_predictor("A30", "inference", str(entry)).name == "a30/forest-inference"
    assert find_predictor("A30", "training", "forest").name == "a30/forest-training"
    assert find_predictor("A30", "training", "a30/forest-training").name == "a30/forest-training"
    with pytest.raises(JoulecastError, match="another GPU or mode"):
        find_predictor("A30", "training", str(entry))
    with pytest.raises(JoulecastError, match="did you mean a30/forest"):
        find_predictor("A30", "training", "a30/forst-training")


@pytest.mark.slow
def test_training_that_is_killed_leaves_the_old_entry_or_the_new_one():
    with benchmark("kills") as kills:
        assert kills.trainings(5) == 0


# Cards: what entries say is renewed without training, and nothing else changes; what was measured on each GPU.

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


def test_what_was_measured_is_said_in_words():
    measured = Measured(50, 3, (600.0, 900.0), has_power=False)
    assert str(measured) == "50 operations, 3 measurements of networks at 2 clocks (time only)"
