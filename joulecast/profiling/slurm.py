"""Slurm jobs as the workers of a campaign: `joulecast collect --slurm 4`. dask-jobqueue writes and submits them.

Any user of a cluster could reach the scheduler and have programs run in the name of whoever started it. Scheduler and
workers therefore talk by TLS, with certificates that are made for this campaign and that only its user can read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..errors import InputError, needing, with_extra
from .session import say

if TYPE_CHECKING:
    from dask_jobqueue import SLURMCluster
    from distributed.security import Security

_SIZE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})? ?[KMGT]i?B?", re.IGNORECASE | re.ASCII)
_MOST_JOBS = 10_000  # of a campaign; Slurm's own limit of all jobs is 10,000 unless it was raised
_RENEW_S = 5.0  # between two looks at whether a job has ended and another has to be submitted
_LOGS = (("error", "err"), ("output", "out"))
_LOST_S = "2s"  # after which Dask takes a worker that has gone for lost, and its job for ended
# Dask would otherwise query the GPU twice a second, for a display that campaigns do not have.
_WITHOUT_DISPLAY = "export DASK_DISTRIBUTED__DIAGNOSTICS__NVML=False"


@dataclass(frozen=True)
class SlurmJobs:
    """The jobs that measure, in the terms of sbatch. Each is one worker on one GPU.

    Args:
        number: How many jobs run at the same time. A job that ends is replaced until the campaign is finished.
        gres: Generic resources of a job: one GPU, such as gpu:a100:1, or none.
        walltime: Longest time that a job runs, such as 01:00:00. The measurement that it ends in is made again.
    """

    number: int
    partition: str | None = None
    account: str | None = None
    gres: str = "gpu:1"
    walltime: str = "01:00:00"
    cpus: int = 4
    memory: str = "16GB"
    directives: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would end a line of the job's script, and what dask-jobqueue cannot read.

        Raises InputError: a text contains a control character, the memory is no size, or there are too many jobs.
        """
        texts = (self.partition, self.account, self.gres, self.walltime, self.memory, *self.directives)
        for text in filter(None, texts):
            if not text.isprintable():
                raise InputError(
                    "an option of a Slurm job contains a control character",
                    given=repr(text)[:200],
                    allowed="printable characters, in one line",
                )
        if not _SIZE.fullmatch(self.memory):
            raise InputError("this is not the memory of a job", given=self.memory, allowed="a size, such as 16GB")
        if not 1 <= self.number <= _MOST_JOBS:
            raise InputError(
                "this number of Slurm jobs is not possible", given=self.number, allowed=f"1 to {_MOST_JOBS}"
            )

    def to_options(self) -> dict[str, Any]:
        """The options of dask-jobqueue's SLURMCluster that describe these jobs."""
        return {
            "queue": self.partition and quote(self.partition),
            "account": self.account and quote(self.account),
            "walltime": quote(self.walltime),
            "job_cpu": self.cpus,
            "job_mem": quote(self.memory),
            "job_extra_directives": [quote(f"--gres={self.gres}"), *self.directives],
        }


def quoted_job() -> type[Any]:
    """The class of dask-jobqueue's jobs, with all paths quoted in the script: as it is, it writes them as they are.

    Both the shell and sbatch, which reads the lines that begin with #SBATCH, know the quotes of the shell. sbatch also
    replaces symbols that begin with %.
    """
    from dask_jobqueue.slurm import SLURMJob

    class QuotedJob(SLURMJob):  # type: ignore[misc]
        def __init__(
            self, *args: Any, log_directory: str, security: Security | None = None, python: str, **options: Any
        ) -> None:
            tls = {} if security is None else security.get_tls_config_for_role("worker")
            # The list of ciphers is no option of a worker.
            named = [(f"--tls-{key.replace('_', '-')}", value) for key, value in tls.items() if key != "ciphers"]
            worker = [*options.pop("worker_extra_args", ()), *(quote(word) for pair in named for word in pair)]
            logs = log_directory.replace("\\", "\\\\").replace("%", "%%")
            directives = [quote(f"--{stream}={logs}/dask-worker-%J.{end}") for stream, end in _LOGS]
            super().__init__(
                *args,
                python=quote(python),
                worker_extra_args=worker,
                job_extra_directives=[*directives, *options.pop("job_extra_directives", ())],
                **options,
            )

    return QuotedJob


@contextmanager
def slurm_cluster(jobs: SlurmJobs, folder: Path) -> Iterator[SLURMCluster]:
    """Start a scheduler here and submit the jobs of its workers. The jobs are cancelled at the end.

    Raises MissingDependencyError: dask-jobqueue is not installed. Raises InputError: slurm is not on this machine, or
    does not accept the jobs.

    Args:
        folder: Folder that all nodes see, for logs and for certificates while the campaign runs.
    """
    with needing("Slurm jobs need dask-jobqueue", with_extra("slurm")):
        import dask
        from dask_jobqueue import SLURMCluster
        from tornado.ioloop import PeriodicCallback
    if shutil.which("sbatch") is None:
        raise InputError(
            "Slurm jobs cannot be submitted from here",
            given="no sbatch in PATH",
            allowed="a machine of the cluster",
            hint="run this on its login node, or start the workers yourself and use --cluster",
        )
    logs = folder.resolve() / "slurm"
    if not str(logs).isprintable():
        raise InputError("the folder's name contains a control character", given=repr(str(logs)), hint="rename it")
    logs.mkdir(parents=True, exist_ok=True)
    prologue = dask.config.get("jobqueue.slurm.job-script-prologue", None) or []
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": _LOST_S, "distributed.diagnostics.nvml": False}),
        _certificates(logs) as security,
        SLURMCluster(
            cores=1,  # threads of a worker, which measures one operation at a time
            processes=1,
            memory=jobs.memory,
            nanny=False,
            # A worker must not pause or restart because of the memory that a measurement takes.
            worker_extra_args=["--memory-limit", "0", "--no-dashboard"],
            job_script_prologue=[*prologue, _WITHOUT_DISPLAY],
            security=security,
            log_directory=str(logs),
            python=sys.executable,
            job_cls=quoted_job(),
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
            **jobs.to_options(),
        ) as cluster,
    ):
        _check(cluster.job_script())
        say(f"{jobs.number} Slurm jobs; their logs are in {logs}\n")
        renewal = PeriodicCallback(partial(cluster.scale, jobs.number), 1e3 * _RENEW_S)
        cluster.scale(jobs.number)
        cluster.loop.add_callback(renewal.start)
        try:
            yield cluster
        finally:
            cluster.loop.add_callback(renewal.stop)


@contextmanager
def _certificates(folder: Path) -> Iterator[Security]:
    """Certificates for one campaign, in files in a folder that only its user can read; they are deleted at the end."""
    from distributed.security import Security

    made = Security.temporary().get_tls_config_for_role("worker")
    with tempfile.TemporaryDirectory(prefix="certificates-", dir=folder) as private:
        files = {name: Path(private) / name for name in ("ca_file", "cert", "key")}
        for name, path in files.items():
            path.write_text(made[name], encoding="utf-8")
        roles = {
            f"tls_{role}_{name}": str(files[name])
            for role in ("client", "scheduler", "worker")
            for name in ("cert", "key")
        }
        yield Security(require_encryption=True, tls_ca_file=str(files["ca_file"]), **roles)


def _check(script: str) -> None:
    """Have Slurm look at a job without running it, so that what is wrong is said at once and not in a log.

    Raises InputError: Slurm does not accept it.
    """
    tried = subprocess.run(
        ["sbatch", "--test-only"],  # noqa: S607  (wherever the cluster has it)
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        raise InputError(
            "Slurm does not accept these jobs",
            given=tried.stderr.strip(),
            hint="`sinfo -o '%P %l %G'` lists partitions, their longest time, and their GPUs",
        )
