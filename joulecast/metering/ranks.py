"""One meter per machine, whichever process of a parallel job asks first.

Launchers tell each process its rank and its job by environment variables. The first process of a job on a machine that
takes the job's lock measures; the others only mark their windows, which would count the same devices again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_JOBS = (
    # Launcher, variable of the job, variable of the rank.
    ("torchrun", "TORCHELASTIC_RUN_ID", "RANK"),
    ("Slurm", "SLURM_JOB_ID", "SLURM_PROCID"),
    ("Open MPI", "OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_RANK"),
    ("Open MPI", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"),
    ("PMI", "PMI_JOBID", "PMI_RANK"),
    ("PMI", "PMI_ID", "PMI_RANK"),
)


def job_and_rank(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The job that this process belongs to and its rank there; None for a program on its own."""
    for launcher, job, rank in _JOBS:
        if environment.get(job) and environment.get(rank):
            return f"{launcher} job {environment[job]}", environment[rank]
    # torchrun's static rendezvous and mpi4py launchers may name no job: the address of rank 0 tells jobs apart.
    if environment.get("RANK") and environment.get("MASTER_ADDR"):
        return f"job at {environment['MASTER_ADDR']}:{environment.get('MASTER_PORT', '')}", environment["RANK"]
    # MPICH names no job. One proxy starts all processes that a job has on a machine.
    if environment.get("PMI_RANK"):
        return f"MPICH job of process {os.getppid()}", environment["PMI_RANK"]
    return None


class MachineLock:
    """Held by the one process of a job that measures a machine; goes with its process.

    Args:
        environment: Environment variables.
        folder: Where locks lie; the same for all processes of the machine.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        self._found = job_and_rank(os.environ if environment is None else environment)
        self._folder = folder or Path(tempfile.gettempdir())
        self._file: IO[str] | None = None

    @property
    def rank(self) -> str | None:
        """The rank of this process; None where it belongs to no parallel job."""
        return None if self._found is None else self._found[1]

    def take(self) -> bool:
        """Whether this process is the one to measure; always so for a program on its own."""
        if self._found is None:
            return True
        try:
            import fcntl
        except ImportError:  # not on Windows, where no launcher of these runs either
            return True
        name = hashlib.sha256(self._found[0].encode()).hexdigest()[:16]
        self._file = (self._folder / f"joulecast-meter-{os.getuid()}-{name}.lock").open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            self._file = None
            return False
        return True

    def release(self) -> None:
        """Let another process measure."""
        if self._file is not None:
            self._file.close()
            self._file = None
