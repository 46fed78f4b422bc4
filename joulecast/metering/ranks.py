"""Processes of a parallel job: which of them measures a machine, and how their results are put together.

If every process measured, the same devices would be counted several times. So the first that takes the job's lock on a
machine measures it, and the others measure nothing. Launchers tell each process its job and its rank in environment
variables.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from ..errors import InputError, MissingDependencyError
from ..system.whole_files import lock
from .result import Metering, merged

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
    """The job of this process and its rank in it; None if the process does not belong to a parallel job."""
    for launcher, job, rank in _JOBS:
        if environment.get(job) and environment.get(rank):
            return f"{launcher} job {environment[job]}", environment[rank]
    # torchrun's static rendezvous and mpi4py launchers may set no job id. Then the address of rank 0 identifies the
    # job.
    if environment.get("RANK") and environment.get("MASTER_ADDR"):
        return f"job at {environment['MASTER_ADDR']}:{environment.get('MASTER_PORT', '')}", environment["RANK"]
    # MPICH sets no job id, but a single proxy process starts all processes of a job on a machine.
    if environment.get("PMI_RANK"):
        return f"MPICH job of process {os.getppid()}", environment["PMI_RANK"]
    return None


class MachineLock:
    """A lock that is held by the process that measures a machine for a job. The system releases it when that ends.

    Args:
        folder: Folder of the lock files, the same for all processes of the machine; None for the temporary folder.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        self._found = job_and_rank(os.environ if environment is None else environment)
        self._folder = folder or Path(tempfile.gettempdir())
        self._file: IO[str] | None = None

    @property
    def rank(self) -> str | None:
        """The rank of this process; None if it does not belong to a parallel job."""
        return None if self._found is None else self._found[1]

    def take(self) -> bool:
        """Try to take the lock. Returns whether this process measures, which is always so outside parallel jobs."""
        if self._found is None:
            return True
        user = getattr(os, "getuid", lambda: "")()  # Windows has none, and none of these launchers.
        name = hashlib.sha256(self._found[0].encode()).hexdigest()[:16]
        self._file = (self._folder / f"joulecast-meter-{user}-{name}.lock").open("w")
        if lock(self._file, wait=False):
            return True
        self.release()
        return False

    def release(self) -> None:
        """Release the lock, so that another process can measure."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Communicator(Protocol):
    """The part of `mpi4py.MPI.Comm` that is used here."""

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """The objects of all ranks at the root; None at all other ranks."""


def world() -> Communicator:
    """All processes of the job. Raises MissingDependencyError: mpi4py is not installed."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingDependencyError("gathering over machines needs mpi4py", hint="pip install mpi4py") from error
    found: Communicator = MPI.COMM_WORLD
    return found


def gathered(metering: Metering | None, title: str, communicator: Communicator | None = None) -> Metering | None:
    """Gather the results of all machines at rank 0. All ranks must call this function.

    Args:
        metering: Result of this process; None if another process measures this machine.

    Returns:
        The merged result at rank 0: the sum of the energies, and the longest time. None at other ranks.

    Raises:
        MissingDependencyError: mpi4py is not installed, and no communicator is given.
        InputError: No rank measured anything, or two measured one machine at the same time. Raised at rank 0.
    """
    found = (world() if communicator is None else communicator).gather(metering, root=0)
    if found is None:
        return None
    measured = [each for each in found if each is not None]
    if not measured:
        raise InputError(
            "no process of this job measured anything",
            given=f"{len(found)} processes",
            hint="enter joulecast.measure() in all of them; one of each machine will measure",
        )
    return merged(title, measured)
