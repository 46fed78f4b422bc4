"""What a source of zoo entries could try, and addresses and names that are none: all refused."""

import hashlib
import json
import shutil

import pytest
from zoo_places import answering, serving

from conftest import ENTRY_NAME as NAME
from joulecast.errors import InputError, ZooError
from joulecast.zoo import find_predictor
from joulecast.zoo.files import MANIFEST
from joulecast.zoo.places import index_of, open_source, push
from joulecast.zoo.store import pull, pulled

pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.fixture
def folder(small_entry, tmp_path):
    """A folder with an index, as `zoo push` makes it."""
    push(small_entry, NAME, str(tmp_path / "zoo"))
    return tmp_path / "zoo"


@pytest.fixture
def entry(folder):
    """The folder of the entry in it."""
    return folder / index_of(open_source(str(folder)))[NAME].folder


def test_a_cached_entry_that_was_changed_is_not_used(folder):
    where = pull(str(folder), NAME, replace=True)
    manifest = where / MANIFEST
    manifest.write_text(manifest.read_text().replace("numpy", "numbyte"))
    with pytest.raises(ZooError, match="a pulled zoo entry was changed"):
        find_predictor("A30", "inference", NAME)


@pytest.mark.parametrize("what", ["a file", "the manifest", "the file and the manifest"])
def test_changes_are_noticed(folder, entry, what):
    card, manifest = entry / "card.json", entry / MANIFEST
    facts = json.loads(manifest.read_text())
    if "file" in what:
        card.write_bytes(card.read_bytes().replace(b"simulated", b"stimulate", 1))
    if "manifest" in what:
        facts["files"]["card.json"]["sha256"] = hashlib.sha256(card.read_bytes()).hexdigest()
        facts["libraries"] = {}
        manifest.write_text(json.dumps(facts))
    with pytest.raises(ZooError, match="changed" if what == "a file" else "not the one in the index"):
        pull(str(folder), NAME, replace=True)
    assert pulled() == {}


def test_an_entry_that_predicts_otherwise_is_not_taken(small_entry, tmp_path):
    folder = tmp_path / "trained"
    manifest = shutil.copytree(small_entry, folder / NAME) / MANIFEST
    facts = json.loads(manifest.read_text())
    facts["golden"]["time_s"][0] *= 2
    manifest.write_text(json.dumps(facts))
    with pytest.raises(ZooError, match="no longer predicts"):
        pull(str(folder), NAME, replace=True)
    assert pulled() == {}


def test_no_more_of_a_file_is_read_than_it_may_have(folder, entry):
    (entry / "card.json").write_bytes(bytes(20 << 20))
    with pytest.raises(ZooError, match="a file of this zoo entry is too large"):
        pull(str(folder), NAME, replace=True)


def test_links_in_a_folder_are_not_followed(folder, entry, tmp_path):
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ZooError, match="is a link"):
        pull(str(folder), NAME, replace=True)


ROW = {"manifest_sha256": "", "size_bytes": 1, "predictor": "", "folder": "x"}
ELSEWHERE = ("../a30/x", "/etc", "a\\b", "a30/../../x", "c:/x")


@pytest.mark.parametrize(
    ("index", "says"),
    [
        *(
            ({"format_version": 2, "entries": {NAME: {**ROW, "folder": where}}}, "leads out of it")
            for where in ELSEWHERE
        ),
        ({"format_version": 3, "entries": {}}, "another format"),
        ({"format_version": 2, "entries": {"../x": ROW}}, "invalid name"),
        ({"format_version": 2, "entries": [1]}, "damaged"),
        ([], "damaged"),
    ],
)
def test_hostile_indexes_are_refused(folder, index, says):
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(ZooError, match=says):
        pull(str(folder), NAME, replace=True)


@pytest.mark.parametrize("where", ["http://[::1", "https://[x]:y/z", "http://a b", "http://\0"])
def test_addresses_that_are_none_are_refused(where):
    with pytest.raises((InputError, ZooError)):
        index_of(open_source(where))


def test_invalid_places_are_refused():
    for where in ("ftp://x/y", "models:/x/1", "s3://x"):
        with pytest.raises(InputError, match="not the address of a zoo"):
            open_source(where)
    with pytest.raises(InputError, match="no such folder"):
        index_of(open_source("/nowhere/at/all"))


def test_a_server_that_is_down():
    with pytest.raises(ZooError, match="cannot be reached") as caught:
        pull("http://127.0.0.1:9", NAME, replace=True)
    assert "need no network" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "location", "says"),
    [(401, "", "denied access"), (302, "file:///etc/passwd", "cannot be reached|answered with an error")],
    ids=["refusing", "redirecting to a file"],
)
def test_answers_that_give_nothing(status, location, says):
    with serving(answering(status, location)) as address, pytest.raises(ZooError, match=says):
        pull(address, NAME, replace=True)


@pytest.mark.parametrize(
    "name",
    [
        "any-gpu/forest",
        "any-gpu/forest-inference",
        "t4/forest-inference",
        "a30/forest-training",
    ],
)
def test_a_name_means_what_it_holds(small_entry, tmp_path, fresh_cache, name):
    """Under another name, an entry would answer for other GPUs, or make their predictions fail."""
    folder = tmp_path / "zoo"
    push(small_entry, name, str(folder))
    with pytest.raises(ZooError, match="does not agree with its GPU, mode or predictor"):
        pull(str(folder), name, replace=True)
    assert pulled() == {}
