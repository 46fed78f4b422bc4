"""The job script of docs/cluster.md on a Slurm cluster of one node: it needs Slurm, and root."""

import os
import re
from pathlib import Path

import pytest
from slurm_node import is_possible, slurm_node

from joulecast import Network, Operation
from joulecast.datasets import load
from joulecast.profiling.journal import Journal

pytest.importorskip("distributed", reason="a campaign on a cluster needs joulecast[cluster]")

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/cluster.md"

# The first job gets the signal of its time limit while it measures, and is submitted again.
TWICE = """
import os, subprocess, sys
from pathlib import Path
from waiting import until

def call(*words):
    return subprocess.check_output(words, text=True).strip()

def submit():
    return call("sbatch", "--parsable", *sys.argv[1:])

def finished():
    until(lambda: not call("squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING", "--format=%i", "--me"))

first = submit()
until(lambda: any(Path(os.environ["MEASURING"]).iterdir()))
call("scancel", "--batch", "--signal=TERM", first)
finished()
print(len(Path("build/networks/gpu-a/journal.jsonl").read_text().splitlines()))
submit()
finished()
"""

# Measures on the simulated GPU what the page's script would measure on a real one.
JOULECAST = """#!/bin/bash
exec python -m joulecast.cli "${@/#networks/campaign.toml}" --device cpu
"""


@pytest.fixture
def node(tmp_path, monkeypatch):
    if not is_possible():
        pytest.skip("needs slurmctld and slurmd, and root")
    with slurm_node(tmp_path / "node") as configuration:
        monkeypatch.setenv("SLURM_CONF", str(configuration))
        yield


@pytest.fixture
def submit(on_driver, tmp_path, monkeypatch):
    """Run a script in a folder with `campaign.toml`, ten operations for workers with a simulated GPU."""
    Network.of([(Operation("relu", [(n, 8)]), 1) for n in range(1, 11)]).save(tmp_path / "net.json")
    (tmp_path / "campaign.toml").write_text(f'seconds = 0.3\n[[network]]\nmodel = "{tmp_path / "net.json"}"\n')
    measuring = tmp_path / "measuring"
    measuring.mkdir()
    monkeypatch.chdir(tmp_path)
    settings = {
        "DASK_DISTRIBUTED__WORKER__PRELOAD": HERE / "simulated_worker.py",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "FAKE_NVML_AVERAGING_MS": 20,
        "MEASURING": measuring,
    }
    return lambda script, *arguments: on_driver(script, *arguments, **settings)


def measured_by(folder: Path) -> dict[str, str]:
    """The worker that measured each operation. No operation may have been measured twice, and the dataset has all."""
    with Journal(folder / "journal.jsonl", None) as journal:
        done = [(record["key"], record["worker"]) for record in journal.records if record["status"] == "ok"]
    assert len(dict(done)) == len(done) == len(load(folder).measurements)
    return dict(done)


@pytest.mark.slow
def test_the_job_script_of_the_page_measures_and_resumes(node, submit, tmp_path):
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "job.sh").write_text(script)
    programs = tmp_path / "joulecast" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f'export PATH="{programs}:$PATH"\n')
    (programs / "joulecast").write_text(JOULECAST)
    (programs / "joulecast").chmod(0o755)
    result = submit(
        TWICE,
        *["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=10", "job.sh"],
    )
    logs = "\n".join(log.read_text() for log in tmp_path.glob("slurm-*.out"))
    assert result.returncode == 0, result.stderr + logs
    assert int(result.stdout) < len(measured_by(tmp_path / "build" / "networks" / "gpu-a")) == 10, logs
