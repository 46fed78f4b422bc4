"""What part of a machine a program and its children use, beside what the whole machine uses (Linux, /proc)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class ProcessTree:
    """A process with its children, as far as their CPU time goes.

    Args:
        root: Process id.
        folder: Where the kernel shows processes.
    """

    def __init__(self, root: int, folder: Path = Path("/proc")) -> None:
        self._root, self._folder = root, folder
        self._seen_s: dict[int, float] = {}
        self._last: tuple[float, float] | None = None

    def shares(self) -> dict[str, Any]:
        """The tree's share of the CPU time that the machine used since the last call; None where it cannot be told."""
        self._look()
        tree_s, machine_s = sum(self._seen_s.values()), self._machine_s()
        before, self._last = self._last, (tree_s, machine_s)
        if before is None or machine_s <= before[1]:
            return {"cpu": None, "processes": len(self._seen_s)}
        share = (tree_s - before[0]) / (machine_s - before[1])
        return {"cpu": min(1.0, max(0.0, share)), "processes": len(self._seen_s)}

    def _look(self) -> None:
        """Note the CPU time of every process of the tree. What ended keeps the last that was seen of it."""
        parents: dict[int, int] = {}
        cpu_s: dict[int, float] = {}
        for entry in self._folder.glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
                # The name, in brackets, may itself hold brackets and spaces.
                values = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(values[1])
                cpu_s[int(entry.name)] = (int(values[11]) + int(values[12])) / _TICKS
        members, pending = set(), [self._root]
        while pending:
            process = pending.pop()
            if process not in members:
                members.add(process)
                pending += [child for child, parent in parents.items() if parent == process]
        self._seen_s |= {process: cpu_s[process] for process in members if process in cpu_s}

    def _machine_s(self) -> float:
        try:
            values = (self._folder / "stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return 0.0
        user, nice, system, _idle, _waiting, irq, soft_irq, _stolen = (int(value) for value in values)
        return (user + nice + system + irq + soft_irq) / _TICKS
