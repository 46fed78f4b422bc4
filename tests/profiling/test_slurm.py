"""Campaigns in Slurm jobs. Where Slurm is installed and the tests run as root, on a real cluster of one node."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from slurm_node import is_possible, slurm_node

from joulecast import Network, Operation
from joulecast.datasets import load
from joulecast.errors import InputError
from joulecast.profiling import command
from joulecast.profiling.journal import Journal
from joulecast.profiling.slurm import SlurmJobs, quoted_job

pytest.importorskip("dask_jobqueue", reason="Slurm jobs need joulecast[slurm]")
from distributed.security import Security  # only where it is installed

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/cluster.md"

# All jobs are cancelled as soon as one of them measures.
SCRIPT = """
import os, subprocess, sys, threading
from pathlib import Path

if __name__ == "__main__":
    from waiting import until
    from joulecast.profiling import command

    def cancel():
        until(lambda: any(Path(os.environ["MEASURING"]).iterdir()))
        subprocess.run(["scancel", "--name=dask-worker", "--state=RUNNING"], check=True)

    threading.Thread(target=cancel, daemon=True).start()
    print(command.collect(sys.argv[1:]))
"""

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


PATHS = [
    "/data/my runs; touch INJECTED",
    "/data/$(touch INJECTED)",
    '/data/it\'s "100%j"',
    "/data/a\\b`touch INJECTED`",
]


@pytest.mark.parametrize("folder", PATHS)
def test_no_path_breaks_the_script_or_runs_a_command(folder, tmp_path):
    """The script is run by a shell, with a program that notes its arguments in place of Python."""
    program = tmp_path / "a python; exit 3"
    program.write_text(f'#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done > "{tmp_path}/words"\n')
    program.chmod(0o755)
    security = Security(tls_ca_file=f"{folder}/ca", tls_worker_cert=f"{folder}/cert", tls_worker_key=f"{folder}/key")
    jobs = SlurmJobs(1, partition="a b", gres="gpu:1 --wrap=id", directives=("--exclusive",))
    job = quoted_job()(
        "tls://127.0.0.1:1", name="w", cores=1, memory="1GB", nanny=False, security=security, log_directory=folder,
        python=str(program), worker_extra_args=["--no-dashboard"], job_script_prologue=["true"], **jobs.to_options()
    )  # fmt: skip
    script = job.job_script()
    subprocess.run(["bash"], input=script, text=True, check=True, cwd=tmp_path)  # noqa: S607
    words = (tmp_path / "words").read_text().splitlines()
    assert [words[words.index(f"--tls-{name}") + 1] for name in ("ca-file", "cert", "key")] == [
        f"{folder}/{name}" for name in ("ca", "cert", "key")
    ]
    assert not (tmp_path / "INJECTED").exists()
    options = [shlex.split(line.removeprefix("#SBATCH ")) for line in script.splitlines() if line.startswith("#SBATCH")]
    assert ["-p", "a b"] in options
    assert ["--gres=gpu:1 --wrap=id"] in options
    written = folder.replace("\\", "\\\\").replace("%", "%%")
    assert [f"--error={written}/dask-worker-%J.err"] in options


@pytest.mark.parametrize("memory", ["", "abc", "-5GB", "1e400GB", "16 GB; id", "9" * 7 + "GB"])
def test_memory_that_is_no_size_is_refused(memory):
    with pytest.raises(InputError, match="memory of a job"):
        SlurmJobs(1, memory=memory)


@pytest.mark.parametrize("number", [-3, 0, 10**8])
def test_a_number_of_jobs_that_no_cluster_takes_is_refused(number):
    with pytest.raises(InputError, match="number of Slurm jobs"):
        SlurmJobs(number)


@pytest.mark.parametrize("option", ["partition", "account", "gres", "walltime", "memory"])
def test_control_characters_are_refused(option):
    for text in ("a\nrm -rf ~", "a\rb", "a\0b", "a\x1bb"):
        with pytest.raises(InputError, match="control character"):
            SlurmJobs(1, **{option: text})
    with pytest.raises(InputError, match="control character"):
        SlurmJobs(1, directives=("--exclusive\n#SBATCH --uid=0",))


@pytest.mark.slow
def test_a_campaign_runs_in_slurm_jobs_and_cancelled_ones_are_replaced(node, submit, tmp_path):
    options = ["--slurm", "2", "--partition", "gpus", "--cpus", "1", "--memory", "1GB", "--sbatch=--nice=10"]
    result = submit(
        SCRIPT,
        *["campaign.toml", "--out", str(tmp_path / "out"), "--device", "cpu", *options],
    )
    assert result.returncode == 0, result.stderr
    assert "its measurement is made again" in result.stderr
    workers = measured_by(tmp_path / "out" / "gpu-a")
    assert len(workers) == 10
    assert all(worker.startswith("tls://") for worker in workers.values())
    assert not subprocess.check_output(["squeue", "--noheader", "--states=RUNNING,PENDING"])  # noqa: S607
    assert not list((tmp_path / "out" / "slurm").glob("certificates-*"))


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


@pytest.mark.slow
def test_jobs_that_slurm_would_refuse_are_refused_at_once(node, tmp_path):
    with pytest.raises(InputError, match="Slurm does not accept these jobs") as caught:
        command.collect(["small", "--out", str(tmp_path / "out"), "--slurm", "1", "--partition", "nowhere"])
    assert "invalid partition" in caught.value.given


def test_without_slurm_the_message_says_where_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Slurm jobs cannot be submitted from here") as caught:
        command.collect(["small", "--out", str(tmp_path / "out"), "--slurm", "2"])
    assert "login node" in caught.value.hint


def test_options_of_jobs_without_jobs_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.collect(["small", "--out", str(tmp_path), "--partition", "gpus", "--sbatch=--exclusive"])
    assert "--slurm is needed: the number of jobs that get partition directives" in capsys.readouterr().err
