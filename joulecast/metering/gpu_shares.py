"""Shares of a GPU that a program and other processes use: time in which kernels run, and memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class ProcessUse:
    """Use of a GPU by one process.

    Args:
        busy: Share of the time in which one of its kernels ran, 0 to 1; None if the driver does not report it.
        memory_bytes: Device memory that it has allocated; None if the driver does not report it.
    """

    busy: float | None
    memory_bytes: int | None


ProcessReader = Callable[[], Mapping[int, ProcessUse]]
"""Process id -> its present use of a GPU; empty if the driver does not report single processes."""


@dataclass(frozen=True)
class GpuShare:
    """Use of a GPU by a program and by other processes; None for what the driver does not report.

    Args:
        busy: Share of the time in which kernels of the program ran, 0 to 1.
        others_busy: Share of the time in which kernels of other processes ran, 0 to 1.
        memory_bytes: Device memory of the program.
        others_memory_bytes: Device memory of all other processes.
    """

    busy: float | None
    others_busy: float | None
    memory_bytes: int | None
    others_memory_bytes: int | None

    @classmethod
    def of(cls, uses: Mapping[int, ProcessUse], mine: Collection[int], visible: Callable[[int], bool]) -> Self:
        """Divide the use of a GPU between a program and all other processes.

        Args:
            uses: Process id -> its use.
            mine: Ids of the program's processes.
            visible: Tells whether a process id exists for this process. In a container, the driver may use other ids;
                then the processes cannot be assigned.
        """
        if not uses or not all(map(visible, uses)):
            return cls(None, None, None, None)
        ours = [use for process, use in uses.items() if process in mine]
        others = [use for process, use in uses.items() if process not in mine]
        return cls(
            _sum(use.busy for use in ours),
            _sum(use.busy for use in others),
            _sum(use.memory_bytes for use in ours),
            _sum(use.memory_bytes for use in others),
        )

    @classmethod
    def over(cls, shares: Iterable[Mapping[str, Any]]) -> Self:
        """Mean of the shares of time, and maximum of the memory, over the lines of a recording."""
        listed = list(shares)

        def known(name: str) -> list[Any]:
            return [share[name] for share in listed if share.get(name) is not None]

        busy, others = known("busy"), known("others_busy")
        return cls(
            sum(busy) / len(busy) if busy else None,
            sum(others) / len(others) if others else None,
            max(known("memory_bytes"), default=None),
            max(known("others_memory_bytes"), default=None),
        )


def _sum(values: Iterable[Any]) -> Any:
    """The sum; None if a summand is not known."""
    listed = list(values)
    return None if None in listed else sum(listed)
