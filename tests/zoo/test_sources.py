"""Zoo entries from folders and web servers into the cache, and back; and what a source of entries could try."""

import contextlib
import functools
import hashlib
import http.server
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import started

from conftest import ENTRY_NAME as NAME
from joulecast.errors import InputError, UnknownNameError, ZooError
from joulecast.zoo import files, find_predictor, places
from joulecast.zoo.files import MANIFEST, StoredEntry, put_in_place, write_files
from joulecast.zoo.places import fetch, index_of, open_source, push, remove
from joulecast.zoo.registry import name_in_cache
from joulecast.zoo.store import admit, forget, pull, pulled, pulled_folder

pytestmark = pytest.mark.usefixtures("fresh_cache")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler):
    """The address of a server in a thread of this process."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def answering(status, location):
    class Answering(QuietHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Location", location)
            self.end_headers()

    return Answering


@pytest.fixture
def folder(small_entry, tmp_path):
    """A folder with an index, as `zoo push` makes it."""
    push(small_entry, NAME, str(tmp_path / "zoo"))
    return tmp_path / "zoo"


@pytest.fixture
def web(folder):
    with serving(functools.partial(QuietHandler, directory=str(folder))) as address:
        yield address


@pytest.fixture(params=["folder", "folder without index", "web"])
def source(request, folder, small_entry, tmp_path):
    match request.param:
        case "folder without index":
            put_in_place(tmp_path / "trained" / NAME, StoredEntry.of(small_entry).files)  # as training writes it
            return str(tmp_path / "trained")
        case "web":
            return request.getfixturevalue("web")
    return str(folder)


def test_pull_from_anywhere(source, small):
    assert list(index_of(open_source(source))) == [NAME]
    where = pull(source, NAME, replace=True)
    assert where == pulled_folder(NAME)
    assert pulled()[NAME].source == source
    found = find_predictor("A30", "inference", "forest")
    assert found.operations.chip.measured == small.predictor.operations.chip.measured
    assert find_predictor("A30", "inference", NAME) is found
    with pytest.raises(UnknownNameError, match="did you mean a30/forest-inference"):
        fetch(open_source(source), "a30/forest-inferenc")
    forget(NAME)
    assert not where.exists()
    with pytest.raises(ZooError, match="no entry was pulled"):
        forget(NAME)


def test_predicting_from_the_cache_is_light(folder):
    """What was pulled, and a version of a registry that was fetched before, need no mlflow."""
    entry = StoredEntry.of(pull(str(folder), NAME, replace=True))
    admit(entry, name_in_cache("joulecast-a30-inference", "1", "http://registry"), "models:/joulecast-a30-inference/1")
    code = (
        "import sys, joulecast as j\n"
        "o = j.Operation('relu', [(32, 64, 56, 56)])\n"
        f"for p in ('forest', '{NAME}', 'models:/joulecast-a30-inference/1'):\n"
        "    assert j.predict_operations([o], 'A30', predictor=p).energy_j[0] > 0\n"
        "sys.exit(sorted({'mlflow', 'torch', 'sklearn', 'pandas'} & set(sys.modules)) or None)"
    )
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "http://registry"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


PUSH = """
import sys
from pathlib import Path
from joulecast.zoo.places import push
for number in range(int(sys.argv[4])):
    push(Path(sys.argv[1]), f"a30/{sys.argv[3]}-{number}", sys.argv[2])
"""


def test_entries_pushed_at_the_same_time_are_all_in_the_index(small_entry, tmp_path):
    zoo = tmp_path / "zoo"
    commands = [[sys.executable, "-c", PUSH, str(small_entry), str(zoo), name, "15"] for name in ("x", "y", "z")]
    with contextlib.ExitStack() as stack:
        pushing = [stack.enter_context(started(command)) for command in commands]
        assert [process.wait() for process in pushing] == [0, 0, 0]
    assert set(index_of(open_source(str(zoo)))) == {f"a30/{name}-{n}" for name in "xyz" for n in range(15)}


def test_push_replaces_the_same_name(folder, small_entry):
    before = index_of(open_source(str(folder)))
    push(small_entry, NAME, str(folder))
    push(small_entry, "a30/other", str(folder))
    found = index_of(open_source(str(folder)))
    assert found == {**before, "a30/other": found["a30/other"]}
    assert found["a30/other"].manifest_sha256 == before[NAME].manifest_sha256


@pytest.mark.parametrize("where", ["folder", "folder without index"])
def test_a_push_that_is_killed_anywhere_leaves_the_old_entry_or_the_new_one(where, folder, tmp_path):
    """The entry is replaced by one with files of other sizes, and the push dies before each of its changes in turn."""
    address = str(folder)
    first, other = (
        StoredEntry.of(
            write_files(
                tmp_path / name, {"card.json": name.encode(), f"{name}.bin": b"1" * len(name)}, {}, predictor="forest"
            )
        )
        for name in ("first", "another")
    )
    if where == "folder without index":
        address = str(tmp_path / "trained")
        put_in_place(tmp_path / "trained" / NAME, first.files)
    else:
        push(tmp_path / "first", NAME, address)

    class Killed(BaseException):
        pass

    def dying(step, left):
        def change(*given, **options):
            if next(left) == 0:
                raise Killed
            return step(*given, **options)

        return change

    found = []
    for entry, name in ((other, "another"), (first, "first")):
        for step in itertools.count(1):
            with pytest.MonkeyPatch.context() as context:
                left = iter(range(step, -1, -1))
                for where, change in ((files, "put_in_place"), (places, "whole_file"), (Path, "unlink")):
                    context.setattr(where, change, dying(getattr(where, change), left))
                killed = True
                with contextlib.suppress(Killed):
                    push(tmp_path / name, NAME, address)
                    killed = False
            found.append(fetch(open_source(address), NAME).files)
            assert found[-1] in (first.files, other.files), f"{step} changes were made"
            if not killed:
                break
        assert found[-1] == entry.files
    assert len(found) == 6  # each was killed before the index and before what was replaced, and then not at all
    remove(open_source(address), NAME)
    assert index_of(open_source(address)) == {}
    assert {path.name for path in Path(address).rglob("*") if path.is_file()} <= {"index.json", ".lock"}


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_an_entry_is_replaced_in_one_step(tmp_path, monkeypatch, exchange):
    folder = put_in_place(tmp_path / "entry", {"a": b"old"})
    with monkeypatch.context() as context:
        if exchange:  # There is no moment between two renames, at which a kill would leave no entry.
            context.setattr(Path, "replace", None)
        else:
            context.setattr(sys.modules[put_in_place.__module__], "exchanged", lambda *_: False)
        put_in_place(folder, {"b": b"new"})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"b": b"new"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_read_only_place(small_entry):
    with pytest.raises(InputError, match="read only"):
        push(small_entry, NAME, "https://example.org")


def test_shipped_entries_are_replaced_only_on_request(folder, small_entry):
    push(small_entry, "a30/mine-inference", str(folder))
    with pytest.raises(ZooError, match="ships with joulecast"):
        pull(str(folder), NAME)
    assert pulled() == {}
    pull(str(folder), "a30/mine-inference")
    pull(str(folder), NAME, replace=True)
    assert len({row.manifest_sha256 for row in pulled().values()}) == 1
    # An entry that was replaced once is renewed without being asked.
    assert pull(str(folder), NAME)


# What a source could try, and addresses and names that are none: all refused.


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


INVALID = dict.fromkeys(("http://[::1", "https://[x]:y/z", "http://a b", "http://\0"))
INVALID |= dict.fromkeys(("ftp://x/y", "models:/x/1", "s3://x"), "not the address of a zoo")
INVALID |= {"/nowhere/at/all": "no such folder"}


@pytest.mark.parametrize("where", INVALID)
def test_invalid_places_are_refused(where):
    with pytest.raises((InputError, ZooError), match=INVALID[where]):
        index_of(open_source(where))


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
    "name", ["any-gpu/forest", "any-gpu/forest-inference", "t4/forest-inference", "a30/forest-training"]
)
def test_a_name_means_what_it_holds(small_entry, tmp_path, fresh_cache, name):
    """Under another name, an entry would answer for other GPUs, or make their predictions fail."""
    folder = tmp_path / "zoo"
    push(small_entry, name, str(folder))
    with pytest.raises(ZooError, match="does not agree with its GPU, mode or predictor"):
        pull(str(folder), name, replace=True)
    assert pulled() == {}
