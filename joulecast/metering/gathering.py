"""Gathers the measurements of all machines of an MPI job at rank 0 with mpi4py, so that no files need to be merged."""

from __future__ import annotations

from typing import Any, Protocol

from ..errors import InputError, MissingDependencyError
from .result import Metering, merged


class Communicator(Protocol):
    """The part of `mpi4py.MPI.Comm` that is used here."""

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """The objects of all ranks at the root; None at all other ranks."""
        ...


def world() -> Communicator:
    """All processes of the job.

    Raises:
        MissingDependencyError: mpi4py is not installed.
    """
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
        title: Title of the measurement.
        communicator: The processes to gather from; None for all processes of the job.

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
