"""Shares of a GPU that a program and other processes use: time in which kernels run, memory, and who is who."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np

from ..errors import SensorError
from ..system.regular_files import refusing_damage

ProcessReader = Callable[[], Mapping[int, tuple[float | None, int | None]]]
"""Process id -> share of the time in which one of its kernels ran, 0 to 1, and bytes of memory that it allocated.

None is what the driver does not report; there is no process at all if it does not report single ones."""


@dataclass(frozen=True)
class GpuShare:
    """Use of a GPU by a program and by other processes; None for what the driver does not report.

    Args:
        busy: Share of the time in which kernels of the program ran, 0 to 1.
    """

    busy: float | None
    others_busy: float | None
    memory_bytes: int | None
    others_memory_bytes: int | None

    @classmethod
    def of(
        cls, uses: Mapping[int, tuple[float | None, int | None]], mine: Collection[int], visible: Callable[[int], bool]
    ) -> Self:
        """Divide the use of a GPU between a program and all other processes.

        Args:
            visible: Tells whether a process id exists for this process. In a container, the driver may use other ids;
                then the processes cannot be assigned.
        """
        if not uses or not all(map(visible, uses)):
            return cls(None, None, None, None)

        def total(column: int, ours: bool) -> Any:
            """The sum over the processes of the program, or of all others; None if a summand is not known."""
            summands: list[Any] = [use[column] for process, use in uses.items() if (process in mine) == ours]
            return None if None in summands else sum(summands)

        return cls(*(total(column, ours) for column in (0, 1) for ours in (True, False)))

    @classmethod
    def over(cls, shares: Iterable[Mapping[str, Any]]) -> Self:
        """Mean of the shares of time, and maximum of the memory, over the lines of a recording."""
        listed = list(shares)

        def over(name: str, of: Callable[[list[Any]], Any]) -> Any:
            known = [share[name] for share in listed if share.get(name) is not None]
            return of(known) if known else None

        time, memory = ("busy", "others_busy"), ("memory_bytes", "others_memory_bytes")
        return cls(*(over(name, fmean) for name in time), *(over(name, max) for name in memory))


def program_share(shares: Sequence[Mapping[str, Any]], device: str) -> float | None:
    """The program's share of what all programs used of a device, 0 to 1; None if it is not known.

    Of a CPU, and of memory, it is the share of the CPU time that was used on the machine; of a GPU that of the time in
    which kernels ran. EFLECT (Babakol et al., 2020) divides the joules of a processor among programs in this way.

    Args:
        shares: The lines of a recording with shares, each of the time since the line before.
    """
    moments = [float(share["time_s"]) for share in shares]
    weighed: list[tuple[float, float]] = []
    for share, length_s in zip(shares, np.diff(moments, prepend=moments[:1]).tolist(), strict=True):
        found = share.get("cpu")
        if device.startswith("gpu"):
            use = share.get("gpus", {}).get(device, {})
            busy, others = use.get("busy"), use.get("others_busy")
            found = busy / (busy + others) if busy is not None and others is not None and busy + others else None
        if found is not None:
            weighed.append((found, length_s))
    whole_s = sum(length_s for _, length_s in weighed)
    return sum(found * length_s for found, length_s in weighed) / whole_s if whole_s else None


_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def busy_s(stat: Path) -> float:
    """Seconds that all hardware threads together were busy since the machine started.

    Raises SensorError: the kernel's file cannot be read, or has another form.
    """
    with refusing_damage("the time that processors were busy cannot be read", stat, SensorError):
        values = stat.read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _waiting, irq, soft_irq, _stolen = map(int, values)
    return (user + nice + system + irq + soft_irq) / _TICKS


class ProcessTree:
    """The CPU time of a process and all of its descendants."""

    def __init__(self, root: int, folder: Path = Path("/proc")) -> None:
        self._root, self._folder = root, folder
        self._seen_s: dict[int, float] = {}
        self._last: tuple[float, float] | None = None

    def shares(self) -> dict[str, Any]:
        """The share of the machine's used CPU time since the last call ("cpu"), and the number of processes.

        The share is None at the first call.
        """
        pending, members = [self._root], set()
        while pending:
            process = pending.pop()
            if process in members:
                continue
            members.add(process)
            with suppress(OSError, ValueError, IndexError):  # The process may end at any moment.
                values = self._state(process)
                # Those that have ended keep their last value.
                self._seen_s[process] = (int(values[11]) + int(values[12])) / _TICKS
                pending += self._children(process)
        tree_s, machine_s = sum(self._seen_s.values()), 0.0
        with suppress(SensorError):
            machine_s = busy_s(self._folder / "stat")
        before, self._last = self._last, (tree_s, machine_s)
        if before is None or machine_s <= before[1]:
            return {"cpu": None, "processes": len(self._seen_s)}
        share = (tree_s - before[0]) / (machine_s - before[1])
        return {"cpu": min(1.0, max(0.0, share)), "processes": len(self._seen_s)}

    @property
    def members(self) -> Collection[int]:
        """Ids of all processes that have been seen in the tree, including those that have ended."""
        return self._seen_s.keys()

    def visible(self, process: int) -> bool:
        """Whether the kernel shows a process of this id. Inside a container it hides the processes outside."""
        return (self._folder / str(process)).exists()

    def _state(self, process: int) -> list[str]:
        """The fields of a process's stat file after its name, which may itself contain brackets and spaces."""
        return (self._folder / str(process) / "stat").read_text().rpartition(")")[2].split()

    def _children(self, process: int) -> list[int]:
        """The children of a process.

        Kernels list the children of each thread if they were built to do so. Otherwise all processes are searched for
        those with this parent.
        """
        found = []
        for path in (self._folder / str(process)).glob("task/*/children"):
            found += [int(child) for child in path.read_text().split()]
        if found or (self._folder / str(process) / "task" / str(process) / "children").exists():
            return found
        for entry in self._folder.glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                if int(self._state(int(entry.name))[1]) == process:
                    found.append(int(entry.name))
        return found
