"""Zoo entries from folders, zip files, HTTP and S3 into the cache, and back."""

import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import started
from zoo_places import Bucket, QuietHandler, serving, zipped

import joulecast
from conftest import ENTRY_NAME as NAME
from joulecast.errors import InputError, MissingDependencyError, UnknownNameError, ZooError
from joulecast.zoo import find_predictor
from joulecast.zoo.entries.files import MANIFEST, put_in_place, write_files
from joulecast.zoo.places.sources import fetch, index_of, open_source, pull, push, remove
from joulecast.zoo.store import admit, forget, object_folder, pulled, pulled_folder

OPERATION = joulecast.Operation("relu", [(32, 64, 56, 56)])
pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.fixture
def folder(small_entry, tmp_path):
    """A folder with an index, as `zoo push` makes it."""
    push(small_entry, NAME, str(tmp_path / "zoo"))
    return tmp_path / "zoo"


@pytest.fixture
def web(folder):
    with serving(functools.partial(QuietHandler, directory=str(folder))) as address:
        yield address


@pytest.fixture
def bucket(monkeypatch):
    pytest.importorskip("boto3")
    Bucket.objects = {}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with serving(Bucket) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield Bucket.objects


@pytest.fixture(params=["folder", "folder without index", "zip", "zip of a folder", "web", "s3"])
def source(request, folder, small_entry, tmp_path):
    match request.param:
        case "folder without index":
            (folder / "index.json").unlink()
            return str(folder)
        case "zip":
            return str(zipped(folder, tmp_path / "zoo.zip"))
        case "zip of a folder":
            return str(zipped(folder, tmp_path / "zoo.zip", "top/"))
        case "web":
            return request.getfixturevalue("web")
        case "s3":
            request.getfixturevalue("bucket")
            push(small_entry, NAME, "s3://bucket/some/where")
            return "s3://bucket/some/where"
    return str(folder)


def test_pull_from_anywhere(source, small):
    assert list(index_of(open_source(source))) == [NAME]
    where = pull(source, NAME, replace=True)
    assert where == object_folder(pulled()[NAME].sha256) == pulled_folder(NAME)
    found = find_predictor("A30", "inference", "forest")
    assert found.operations.chip.measured == small.predictor.measured
    assert find_predictor("A30", "inference", NAME) is found
    with pytest.raises(UnknownNameError, match="did you mean a30/forest-inference"):
        fetch(open_source(source), "a30/forest-inferenc")
    forget(NAME)
    assert not where.exists()
    with pytest.raises(ZooError, match="no entry was pulled"):
        forget(NAME)


def test_predicting_from_the_cache_is_light(folder):
    """What was pulled, and a version of a registry that was fetched before, need no mlflow."""
    where = pull(str(folder), NAME, replace=True)
    files = {path.name: path.read_bytes() for path in where.iterdir()}
    admit(files, "models:/joulecast-a30-inference/1", "http://registry")
    code = (
        "import sys, joulecast as j\n"
        "o = j.Operation('relu', [(32, 64, 56, 56)])\n"
        f"for p in ('forest', '{NAME}', 'models:/joulecast-a30-inference/1'):\n"
        "    assert j.predict_operations([o], 'A30', predictor=p).energy_j[0] > 0\n"
        "sys.exit(sorted({'mlflow', 'torch', 'sklearn', 'pandas', 'boto3'} & set(sys.modules)) or None)"
    )
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "http://registry"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_remove_from_a_folder(folder):
    remove(str(folder), NAME)
    assert index_of(open_source(str(folder))) == {}
    assert not (folder / NAME).exists()


def test_remove_from_s3(bucket, small_entry):
    push(small_entry, NAME, "s3://bucket")
    remove("s3://bucket", NAME)
    assert list(bucket) == ["index.json"]


PUSH = """
import sys
from pathlib import Path
from joulecast.zoo.places.sources import push
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


def test_an_entry_that_an_index_lacks_is_found_by_the_next_push(small_entry, folder):
    """As after a push that was killed before it wrote the index, or by two at a time on a place without locks."""
    push(small_entry, "a30/other-inference", str(folder))
    index = json.loads((folder / "index.json").read_text())
    del index["entries"][NAME]
    (folder / "index.json").write_text(json.dumps(index))
    push(small_entry, "a30/third-inference", str(folder))
    assert set(index_of(open_source(str(folder)))) == {NAME, "a30/other-inference", "a30/third-inference"}


def test_push_replaces_the_same_name(folder, small_entry):
    before = index_of(open_source(str(folder)))
    push(small_entry, NAME, str(folder))
    push(small_entry, "a30/other", str(folder))
    assert index_of(open_source(str(folder))) == {**before, "a30/other": before[NAME]}


@pytest.mark.parametrize("where", ["folder", "folder without index", "s3"])
def test_a_push_that_is_killed_anywhere_leaves_the_old_entry_or_the_new_one(where, request, folder, tmp_path):
    """The entry is replaced by one with files of other sizes, and the push dies before each of its changes in turn."""
    address = str(folder)
    if where == "s3":
        request.getfixturevalue("bucket")
        address = "s3://bucket/zoo"
    first, other = (
        write_files(
            tmp_path / name, {"card.json": name.encode(), f"{name}.bin": b"1" * len(name)}, {}, predictor="forest"
        )
        for name in ("first", "another")
    )
    push(first, NAME, address)
    entries = {name: {path.name: path.read_bytes() for path in name.iterdir()} for name in (first, other)}
    source = type(open_source(address))

    class Killed(BaseException):
        pass

    def dying(method, left):
        def call(self, paths):
            if not paths:
                method(self, paths)
            for path in paths:
                if next(left) == 0:
                    raise Killed
                method(self, {path: paths[path]} if isinstance(paths, dict) else [path])

        return call

    found = []
    for entry in (other, first):
        for step in itertools.count(1):
            if where == "folder without index":
                (folder / "index.json").unlink(missing_ok=True)
            with pytest.MonkeyPatch.context() as context:
                left = iter(range(step, -1, -1))
                context.setattr(source, "write", dying(source.write, left))
                context.setattr(source, "delete", dying(source.delete, left))
                killed = True
                with contextlib.suppress(Killed):
                    push(entry, NAME, address)
                    killed = False
            found.append(fetch(open_source(address), NAME))
            assert found[-1] in entries.values(), f"{step} changes were made"
            if not killed:
                break
        assert found[-1] == entries[entry]
        # Nothing is left of pushes that were killed while they deleted.
        assert set(open_source(address).files(NAME)) == set(entries[entry])
    assert len(found) > 2 * len(entries[other])
    remove(address, NAME)
    left = list(Bucket.objects) if where == "s3" else [path.name for path in folder.rglob("*") if path.is_file()]
    assert {name.rpartition("/")[2] for name in left} <= {"index.json", ".lock"}


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


def test_s3_that_refuses(bucket):
    with pytest.raises(ZooError, match="denied access"):
        pull("s3://bucket/secret", NAME, replace=True)


def test_one_writer_to_s3_at_a_time(bucket, small_entry, monkeypatch):
    monkeypatch.setattr("joulecast.zoo.places.source_s3._POLL_S", 0.01)
    other = threading.Thread(target=push, args=(small_entry, NAME, "s3://bucket"))
    with open_source("s3://bucket").changing():
        other.start()
        other.join(0.1)
        assert list(bucket) == [".lock"]
    other.join()
    assert ".lock" not in bucket
    assert fetch(open_source("s3://bucket"), NAME)[MANIFEST] == (small_entry / MANIFEST).read_bytes()


def test_the_lock_of_a_killed_writer_to_s3_ends(bucket, small_entry, monkeypatch):
    bucket[".lock"] = b"of a killed process"
    monkeypatch.setattr("joulecast.zoo.places.source_s3._MOST_WAIT_S", 0.0)
    monkeypatch.setattr("joulecast.zoo.places.source_s3._POLL_S", 0.0)
    with pytest.raises(ZooError, match="another process is changing this zoo"):
        push(small_entry, NAME, "s3://bucket")
    assert list(bucket) == [".lock"]
    monkeypatch.setattr(Bucket, "age_s", 901.0)
    push(small_entry, NAME, "s3://bucket")
    assert list(index_of(open_source("s3://bucket"))) == [NAME]


def test_nobody_writes_to_s3_after_the_lock_has_ended(bucket, small_entry, monkeypatch):
    monkeypatch.setattr("joulecast.zoo.places.source_s3._HELD_S", -1.0)
    with pytest.raises(ZooError, match="takes longer than it may be locked"):
        push(small_entry, NAME, "s3://bucket")
    assert list(bucket) == [".lock"]


def test_s3_without_boto3(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(MissingDependencyError, match=r"\[s3\]"):
        open_source("s3://bucket")


def test_a_read_only_place():
    with pytest.raises(InputError, match="read only"):
        open_source("https://example.org").write({})


def test_shipped_entries_are_replaced_only_on_request(small_entry, tmp_path, fresh_cache):
    folder = tmp_path / "zoo"
    push(small_entry, NAME, str(folder))
    push(small_entry, "a30/mine-inference", str(folder))
    with pytest.raises(ZooError, match="ships with joulecast"):
        pull(str(folder), NAME)
    assert pulled() == {}
    assert pull(str(folder), "a30/mine-inference") == pull(str(folder), NAME, replace=True)
    # An entry that was replaced once is renewed without being asked.
    assert pull(str(folder), NAME)
