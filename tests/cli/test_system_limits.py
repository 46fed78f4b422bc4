"""Refusals of the system become errors of joulecast: full disks, folders that cannot be made, limits on memory."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from joulecast.zoo.places import push

resource = pytest.importorskip("resource", reason="limits of POSIX")
PREDICT = ("predict", "resnet18", "1,3,64,64", "--gpu", "A30")


@pytest.fixture
def joulecast(tmp_path):
    """Runs a command under limits, {resource.RLIMIT_...: most}, with a cache of its own; returns how it ended."""

    def run(*arguments, limits=(), output=subprocess.PIPE, cache=tmp_path / "cache"):
        def limit():
            for each, most in dict(limits).items():
                resource.setrlimit(each, (most, most))

        return subprocess.run(
            [sys.executable, "-m", "joulecast", *map(str, arguments)],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
            check=False,
            cwd=tmp_path,
            # If it writes without a buffer, Python itself cuts the output off on a full disk, and reports nothing.
            env={**os.environ, "JOULECAST_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""},
        )

    return run


def refused(ended, code, *says):
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert all(text in ended.stderr for text in says), ended.stderr


@pytest.fixture
def pull(small_entry, tmp_path):
    push(small_entry, "a30/forest-inference", str(tmp_path / "source"))
    return "zoo", "pull", tmp_path / "source", "a30/forest-inference", "--replace"


def test_a_full_disk_under_the_zoo(joulecast, pull, tmp_path):
    refused(joulecast(*pull, limits={resource.RLIMIT_FSIZE: 1000}), 5, "this zoo cannot be written to", "make")
    assert not (tmp_path / "cache" / "zoo").exists()


def test_a_cache_that_cannot_be_made(joulecast, pull, tmp_path):
    (tmp_path / "file").write_text("")
    refused(joulecast(*pull, cache=tmp_path / "file"), 5, "this zoo cannot be written to", "$JOULECAST_CACHE")
    assert joulecast(*PREDICT, cache=tmp_path / "file").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written(joulecast):
    with Path("/dev/full").open("w") as full:
        refused(joulecast(*PREDICT, output=full), 1, "cannot be read or written", "No space left")


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs root, to become another user")
def test_folders_that_a_plain_user_may_only_read(request):
    """Root may write anywhere, so the commands run as the user nobody; pytest closes its own folders to others."""
    folder = Path(tempfile.mkdtemp(prefix="joulecast-plain-"))
    request.addfinalizer(lambda: shutil.rmtree(folder))
    folder.chmod(0o755)
    locked = folder / "locked"
    locked.mkdir(mode=0o555)
    nobody = {"user": 65534, "cwd": folder, "capture_output": True, "text": True, "check": False}
    environment = {**os.environ, "JOULECAST_CACHE": str(locked), "HOME": str(locked), "OMP_NUM_THREADS": "1"}

    def run(*words):
        command = [sys.executable, "-m", "joulecast", *map(str, words)]
        return subprocess.run(command, env=environment, **nobody)

    if "PermissionError" in (predicted := run(*PREDICT)).stderr:
        pytest.skip("another user may not read this checkout")
    assert predicted.returncode == 0, predicted.stderr
    refused(run("zoo", "push", "a30/forest-inference", locked), 5, "Permission denied")
    refused(run("measure", "--devices", "ram", "--out", locked / "r.jsonl", "--", "true"), 10, "Permission denied")
    refused(run("host", "--out", locked / "host.json"), 2, "Permission denied")
