"""Which part of a GPU a program uses, and which part other processes: kernels by time, and memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class ProcessUse:
    """What one process uses of a GPU.

    Args:
        busy: Share of the time in which a kernel of it ran, 0 to 1; None where the driver does not tell.
        memory_bytes: Device memory that it holds; None where the driver does not tell.
    """

    busy: float | None
    memory_bytes: int | None


ProcessReader = Callable[[], Mapping[int, ProcessUse]]
"""Process id -> what it uses of a GPU now; empty where the driver does not tell processes apart."""


@dataclass(frozen=True)
class GpuShare:
    """What a program and what others use of a GPU; None where the driver does not tell.

    Args:
        busy: Share of the time in which kernels of the program ran, 0 to 1.
        others_busy: The same of all other processes.
        memory_bytes: Device memory of the program.
        others_memory_bytes: The same of all other processes.
    """

    busy: float | None
    others_busy: float | None
    memory_bytes: int | None
    others_memory_bytes: int | None

    @classmethod
    def of(cls, uses: Mapping[int, ProcessUse], mine: Collection[int], visible: Callable[[int], bool]) -> Self:
        """The share of some processes.

        Args:
            uses: Process id -> what it uses.
            mine: Ids of the program's processes.
            visible: Whether a process id is one that we know. In a container the driver may count them otherwise than
                we do; then nobody can tell whose they are.
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
        """The mean of the times and the most of the memory, over a recording's lines."""
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
    """The sum; None where a summand is not known."""
    listed = list(values)
    return None if None in listed else sum(listed)
