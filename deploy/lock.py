"""Write the lock files: the exact packages of each image, and of developing, with the sha256 of every file.

    python deploy/lock.py      # wherever constraints.txt, pyproject.toml or mlflow/requirements.in changes

pip refuses any other file: `pip install --require-hashes --no-deps -r requirements.lock`. The versions are those of
constraints.txt; the hashes are those of the files that pip would choose today on Linux, x86-64 and ARM. torch and
torchvision are in no lock file: which build of them is right depends on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MACHINES = ("x86_64", "aarch64")
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
UNLOCKED = ("torch", "torchvision")


def chosen(requirements: Sequence[str], python: str, machine: str, options: Sequence[str]) -> dict[str, str]:
    """The files that pip would install: "name==version" -> sha256."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), "--target", scratch, "--only-binary", ":all:", "--python-version", python]
        command += [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine}")]
        subprocess.run([*command, *options, *requirements], cwd=ROOT, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        f"{each['metadata']['name'].lower()}=={each['metadata']['version']}": each["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for each in found
    }


def write(path: Path, purpose: str, requirements: Sequence[str], python: str, options: Sequence[str]) -> None:
    """Write a lock file for all machines."""
    hashes: dict[str, set[str]] = defaultdict(set)
    for machine in MACHINES:
        for name, sha256 in chosen(requirements, python, machine, options).items():
            hashes[name].add(sha256)
    lines = [f"# {purpose}, Python {python}; `python deploy/lock.py` writes it."]
    for name in sorted(hashes):
        lines.append(" \\\n    ".join([name, *(f"--hash=sha256:{sha256}" for sha256 in sorted(hashes[name]))]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(hashes)} packages")


def main() -> None:
    """Write all lock files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    service = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["service"]]
    service += project["build-system"]["requires"]
    pinned = ["--constraint", "constraints.txt"]
    write(ROOT / "deploy" / "requirements.lock", "The image of the service", service, "3.11", pinned)
    server = (ROOT / "mlflow" / "requirements.in").read_text(encoding="utf-8").split()
    write(ROOT / "mlflow" / "requirements.lock", "The image of MLflow's server", server, "3.12", pinned)
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    everything = [line for line in lines if line and not line.startswith("#") and line.split("==")[0] not in UNLOCKED]
    write(
        ROOT / "requirements.lock", "constraints.txt without torch and torchvision", everything, "3.11", ["--no-deps"]
    )


if __name__ == "__main__":
    main()
