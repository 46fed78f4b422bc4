"""Zoo entries from folders, zip files, HTTP and S3 into the cache, and everything that a source could try.

The file is long, because pulling, pushing and refusing share the servers and buckets that it starts for one entry.
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import hashlib
import http.server
import itertools
import json
import os
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from processes import started

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


def zipped(folder: Path, target: Path, top: str = "") -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, top + str(path.relative_to(folder)))
    return target


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serving(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def web(folder):
    server, address = serving(functools.partial(QuietHandler, directory=str(folder)))
    yield address
    server.shutdown()
    server.server_close()


class Bucket(QuietHandler):
    """The requests of S3 that are needed, for boto3 to talk to."""

    protocol_version = "HTTP/1.1"  # With HTTP/1.0, boto3 waits a second for permission to send.
    wbufsize = -1  # An answer is sent at once; a body sent after its head would wait 40 ms for an acknowledgement.
    objects: dict[str, bytes]

    def handle_expect_100(self):
        allowed = super().handle_expect_100()
        self.wfile.flush()
        return allowed

    age_s = 0.0  # of objects, as they say

    def _etag(self):
        return f'"{hashlib.md5(self.objects[self._key()]).hexdigest()}"'  # noqa: S324  # as S3 computes it

    def _key(self):
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")

    def _answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "list-type" in query:
            keys = "".join(
                f"<Contents><Key>{key}</Key></Contents>" for key in self.objects if key.startswith(query["prefix"][0])
            )
            listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>"
            self._answer(200, listing.encode())
        elif self._key() in self.objects:
            self._answer(200, self.objects[self._key()])
        elif "secret" in self.path:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_HEAD(self):
        found = self._key() in self.objects
        self.send_response(200 if found else 404)
        if found:
            self.send_header("ETag", self._etag())
            self.send_header("Last-Modified", email.utils.formatdate(time.time() - self.age_s, usegmt=True))
        self.end_headers()

    def do_PUT(self):
        there = self._key() in self.objects
        if (self.headers.get("If-None-Match") and there) or (
            self.headers.get("If-Match") and not (there and self.headers["If-Match"] == self._etag())
        ):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            size, rest = data.split(b"\r\n", 1)
            data = rest[: int(size.split(b";")[0], 16)]
        self.objects[self._key()] = data
        self._answer(200)

    def do_DELETE(self):
        self.objects.pop(self._key(), None)
        self._answer(204)


@pytest.fixture
def bucket(monkeypatch):
    pytest.importorskip("boto3")
    Bucket.objects = {}
    server, address = serving(Bucket)
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    }.items():
        monkeypatch.setenv(name, value)
    yield Bucket.objects
    server.shutdown()
    server.server_close()


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
    assert found.operations.measured == small.predictor.measured
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


@pytest.mark.parametrize("where", ["http://[::1", "https://[x]:y/z", "s3://[", "http://a b", "http://\0"])
def test_addresses_that_are_none_are_refused(where):
    with pytest.raises((InputError, ZooError)):
        index_of(open_source(where))


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
            tmp_path / name, {"card.json": name.encode(), "trees.bin": b"1" * len(name)}, {}, predictor="forest"
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
    assert len(found) > 2 * len(entries[other])
    remove(address, NAME)
    left = list(Bucket.objects) if where == "s3" else [path.name for path in folder.rglob("*") if path.is_file()]
    assert {name.rpartition("/")[2] for name in left} <= {"index.json", ".lock"}


def test_a_cached_entry_that_was_changed_is_not_used(folder):
    where = pull(str(folder), NAME, replace=True)
    manifest = where / MANIFEST
    manifest.write_text(manifest.read_text().replace("numpy", "numbyte"))
    with pytest.raises(ZooError, match="a pulled zoo entry was changed"):
        find_predictor("A30", "inference", NAME)


# Attacks by a source


@pytest.mark.parametrize("what", ["a file", "the manifest", "the file and the manifest"])
def test_changes_are_noticed(folder, what):
    card, manifest = folder / NAME / "card.json", folder / NAME / MANIFEST
    facts = json.loads(manifest.read_text())
    if "file" in what:
        card.write_bytes(card.read_bytes().replace(b"simulated", b"stimulate", 1))
    if "manifest" in what:
        import hashlib

        facts["files"]["card.json"]["sha256"] = hashlib.sha256(card.read_bytes()).hexdigest()
        facts["libraries"] = {}
        manifest.write_text(json.dumps(facts))
    with pytest.raises(ZooError, match="changed" if what == "a file" else "not the one in the index"):
        pull(str(folder), NAME, replace=True)
    assert pulled() == {}


def test_an_entry_that_predicts_otherwise_is_not_taken(folder):
    (folder / "index.json").unlink()
    manifest = folder / NAME / MANIFEST
    facts = json.loads(manifest.read_text())
    facts["golden"]["time_s"][0] *= 2
    manifest.write_text(json.dumps(facts))
    with pytest.raises(ZooError, match="cannot be loaded, and was not added"):
        pull(str(folder), NAME, replace=True)
    assert pulled() == {}


@pytest.mark.parametrize("name", ["../a30/x/card.json", "/etc/passwd", "a\\b", "a30/../../x", "c:/x"])
def test_members_outside_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as file:
        info = zipfile.ZipInfo("x")
        info.filename = name
        file.writestr(info, b"x")
    with pytest.raises(ZooError, match="leads out of it"):
        open_source(str(tmp_path / "z.zip"))


def test_links_in_an_archive_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as file:
        info = zipfile.ZipInfo("a30/x/card.json")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, b"/etc/passwd")
    with pytest.raises(ZooError, match="link or a device"):
        open_source(str(tmp_path / "z.zip"))


def test_a_zip_bomb_is_read_no_further_than_it_may(folder, tmp_path):
    (folder / NAME / "card.json").write_bytes(bytes(20 << 20))
    with pytest.raises(ZooError, match="larger than allowed"):
        pull(str(zipped(folder, tmp_path / "z.zip")), NAME, replace=True)


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"no zip at all"])
def test_damaged_zip_files_are_refused(tmp_path, content):
    (tmp_path / "z.zip").write_bytes(content)
    with pytest.raises(ZooError, match="zip file cannot be read"):
        open_source(str(tmp_path / "z.zip"))


def test_links_in_a_folder_are_not_followed(folder, tmp_path):
    (folder / NAME).rename(tmp_path / "elsewhere")
    (folder / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ZooError, match="is a link"):
        pull(str(folder), NAME, replace=True)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ({"format_version": 2, "entries": {}}, "another format"),
        (
            {"format_version": 1, "entries": {"../x": {"manifest_sha256": "", "size_bytes": 1, "predictor": ""}}},
            "invalid name",
        ),
        ({"format_version": 1, "entries": [1]}, "damaged"),
        ([], "damaged"),
    ],
)
def test_hostile_indexes_are_refused(folder, index, says):
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(ZooError, match=says):
        index_of(open_source(str(folder)))


# Bad input


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


def test_invalid_places_are_refused():
    for where in ("ftp://x/y", "models:/x/1", "gs://x"):
        with pytest.raises(InputError, match="not the address of a zoo"):
            open_source(where)
    with pytest.raises(InputError, match="no such folder"):
        index_of(open_source("/nowhere/at/all"))


def test_a_server_that_is_down_or_refuses():
    with pytest.raises(ZooError, match="cannot be reached") as caught:
        pull("http://127.0.0.1:9", NAME, replace=True)
    assert "need no network" in caught.value.hint

    class Refusing(QuietHandler):
        def do_GET(self):
            self.send_error(401)

    server, address = serving(Refusing)
    with pytest.raises(ZooError, match="denied access"):
        pull(address, NAME, replace=True)
    server.shutdown()
    server.server_close()


def test_redirects_do_not_lead_to_files():
    class Redirecting(QuietHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()

    server, address = serving(Redirecting)
    with pytest.raises(ZooError, match=r"cannot be reached|answered with an error"):
        pull(address, NAME, replace=True)
    server.shutdown()
    server.server_close()


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


@pytest.mark.parametrize(
    "name",
    [
        "any-gpu/boosting",
        "any-gpu/forest-inference",
        "t4/forest-inference",
        "a30/forest-training",
        "a30/blend-training",
    ],
)
def test_a_name_means_what_it_holds(small_entry, tmp_path, fresh_cache, name):
    """Under another name, an entry would answer for other GPUs, or make their predictions fail."""
    folder = tmp_path / "zoo"
    push(small_entry, name, str(folder))
    with pytest.raises(ZooError, match="does not agree with its GPU, mode or predictor"):
        pull(str(folder), name, replace=True)
    assert pulled() == {}


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
