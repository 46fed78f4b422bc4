"""The lock files: every package by its version and hashes, and the versions are those that the checks ran on."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "deploy/requirements.lock", "mlflow/requirements.lock")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(path):
    """Package -> version, of a lock file or of constraints.txt."""
    return {
        canonical(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE)
    }


def required(requirements):
    return {canonical(re.match(r"[\w.-]+", each)[0]) for each in requirements}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_hashes_and_the_version_of_the_checks(name):
    entries = (ROOT / name).read_text().replace("\\\n", " ").splitlines()[1:]
    assert len(entries) > 20
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", entry), entry
    checked = pinned(ROOT / "constraints.txt")
    others = {package: v for package, v in pinned(ROOT / name).items() if checked.get(package, v) != v}
    assert not others, "run `python deploy/lock.py`"


def test_nothing_is_missing():
    everything = pinned(ROOT / "constraints.txt").keys() - {"torch", "torchvision"}
    assert pinned(ROOT / "requirements.lock").keys() == everything
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    service = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["service"]
    assert required(service) <= pinned(ROOT / "deploy/requirements.lock").keys()
    assert required((ROOT / "mlflow/requirements.in").read_text().split()) <= pinned(ROOT / LOCKS[2]).keys()


def test_a_password_in_an_address_is_refused_before_it_is_shown(tmp_path):
    environment = {
        "PATH": "/usr/bin:/bin",
        "ROOT": str(tmp_path),
        "STORE": "postgresql+psycopg2://mlflow:secret@db/mlflow",
    }
    ended = subprocess.run(
        ["/bin/sh", ROOT / "mlflow" / "serve.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, "PGPASSWORD" in ended.stderr, "secret" in ended.stderr) == (2, True, False)
