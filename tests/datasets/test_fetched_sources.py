"""Fetching tables: from a web server on this machine, with digests, into a cache, and then imported."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast.datasets import IMPORTERS, load
from joulecast.datasets.fetching import DIGESTS, fetch_tables
from joulecast.datasets.published import PUBLISHED
from joulecast.errors import DatasetError, InputError, UnknownNameError

TABLE = "convolutions.parquet"
ROW = {"gpu": "AMD Instinct MI210", "precision": "fp16", "direction": "F", "solver": "ConvAsm", "time_us": 50.0}
ROW |= {"c": 16, "h": 56, "w": 56, "k": 32, "out_h": 56, "out_w": 56, "r": 3, "s": 3, "n": 4, "groups": 1}
ROW |= dict.fromkeys(("pad_h", "pad_w", "dilation_h", "dilation_w", "stride_h", "stride_w"), 1)
README = Path(__file__).resolve().parents[2] / "datasets" / "README.md"


class Recording(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def published(tmp_path):
    """A folder with the table of a source and its digest, as sha256sum writes it where there is one."""
    folder = tmp_path / "published"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([ROW]), folder / TABLE)
    if not (program := shutil.which("sha256sum")):
        pytest.skip("needs sha256sum")
    listed = subprocess.run([program, TABLE], cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / DIGESTS).write_text(listed)
    return folder


@pytest.fixture
def server(published):
    handler = functools.partial(Recording, directory=str(published))
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    served.asked = []
    served.url = f"http://127.0.0.1:{served.server_address[1]}"
    threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True).start()
    yield served
    served.shutdown()
    served.server_close()


def test_fetched_tables_are_imported(call, server, tmp_path):
    code, out, _ = call("datasets", "fetch", "miopen2024", "--from", server.url, "--out", tmp_path / "out")
    assert code == 0
    assert "1 measurements" in out
    (measurement,) = load(tmp_path / "out" / "mi210").measurements
    assert measurement.operation.input_shapes == ((4, 16, 56, 56),)


def test_only_what_has_changed_is_fetched_again(server, published, tmp_path):
    for _ in range(2):
        folder = fetch_tables("miopen2024", f"{server.url}/", tmp_path / "cache")
    assert server.asked == [f"/{DIGESTS}", f"/{TABLE}", f"/{DIGESTS}"]
    assert (folder / TABLE).read_bytes() == (published / TABLE).read_bytes()
    (folder / TABLE).write_bytes(b"damaged")
    fetch_tables("miopen2024", server.url, tmp_path / "cache")
    assert (folder / TABLE).read_bytes() == (published / TABLE).read_bytes()


def test_a_table_with_another_digest_is_refused(server, published, tmp_path):
    (published / TABLE).write_bytes((published / TABLE).read_bytes() + b"!")
    with pytest.raises(DatasetError, match="not the one that was published"):
        fetch_tables("miopen2024", server.url, tmp_path / "cache")
    assert list((tmp_path / "cache" / "tables" / "miopen2024").iterdir()) == []


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ("", "no list of digests"),
        ("<html>not found</html>", "no list of digests"),
        (f"{'0' * 64}  ../{TABLE}\n", "no list of digests"),
        (f"{'0' * 64}  other.parquet\n", "lacks tables of miopen2024"),
        (None, "status 404"),
    ],
)
def test_a_server_without_the_tables(server, published, tmp_path, listed, says):
    (published / DIGESTS).unlink() if listed is None else (published / DIGESTS).write_text(listed)
    with pytest.raises(DatasetError, match=says):
        fetch_tables("miopen2024", server.url, tmp_path / "cache")


def test_without_a_network(tmp_path):
    with pytest.raises(DatasetError, match="cannot be fetched") as caught:
        fetch_tables("miopen2024", "http://127.0.0.1:9/tables", tmp_path)
    assert "joulecast datasets import" in caught.value.hint


def test_what_nobody_serves_says_where_the_authors_files_are(call, tmp_path):
    for address in (None, str(tmp_path), "ftp://example.org/tables"):
        with pytest.raises(InputError) as caught:
            fetch_tables("vidur2024", address, tmp_path)
        assert f"layers.parquet and {DIGESTS}" in caught.value.allowed
    with pytest.raises(UnknownNameError, match="did you mean vidur2024"):
        fetch_tables("vidur2042", None, tmp_path)
    code, _, err = call("datasets", "fetch", "nicolai2025")
    assert code == InputError.exit_code
    assert PUBLISHED["nicolai2025"].address in err
    assert "operations.csv, networks.csv" in err


def test_every_source_is_listed_with_its_tables_and_address(call):
    assert PUBLISHED.keys() == IMPORTERS.keys()
    _, out, _ = call("datasets", "sources")
    text = README.read_text(encoding="utf-8")
    for name, published in PUBLISHED.items():
        assert published.address in out
        assert f"`{name}`" in text
        assert published.licence in text
        assert all(f"`{table}`" in text for table in (*published.tables, *published.more_tables))
        repository = published.address.removeprefix("https://github.com/").partition(",")[0]
        assert repository in text or "artifact of the paper" in repository
