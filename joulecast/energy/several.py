"""Several trees of one program: of its ranks on several GPUs, which are added up, or of repeats, which are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .node import Row, Share
from .tree import EnergyTree


def merged(title: str, trees: Mapping[str, EnergyTree]) -> EnergyTree:
    """One tree of the ranks of a parallel program: joules are added, and each rank's devices stay apart.

    The time of a part is that of the rank that took longest for it, because ranks work at the same time. Raises
    InputError: there is no tree.

    Args:
        title: Title of the program.
        trees: Name of a rank, such as "rank0" -> its tree.
    """
    if not trees:
        raise InputError("there is nothing to merge", given="no tree", allowed="at least one tree")

    def renamed(share: Share, rank: str) -> Share:
        return Share(
            {f"{rank}/{device}": figure for device, figure in share.time.items()},
            {(f"{rank}/{device}", component): figure for (device, component), figure in share.energy.items()},
        )

    def rows() -> Iterator[Row]:
        for rank, tree in trees.items():
            for node in tree.root.walk():
                if node.own.time or node.own.energy:
                    name = node.name if node.level == "operation" else None
                    yield Row(node.path, renamed(node.own, rank), name, node.phase or "other", node.calls)

    rest = Share.total(renamed(tree.unattributed, rank) for rank, tree in trees.items())
    notes = [f"{rank}: {note}" for rank, tree in trees.items() for note in tree.notes]
    return EnergyTree.of(title, rows(), rest, notes)


@dataclass(frozen=True)
class Repeated:
    """A part of a program over several runs.

    Args:
        energy_j: Joules of its own in each run; zero in a run without it, and empty if joules are not known.
    """

    phase: str
    path: str
    name: str
    energy_j: tuple[float, ...]
    time_s: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the joules, or of the seconds if joules are not known."""
        return float(np.mean(self.energy_j or self.time_s))

    @property
    def deviation(self) -> float:
        """Standard deviation of the joules, or of the seconds; 0 for a single run."""
        return float(np.std(self.energy_j or self.time_s, ddof=1)) if len(self.time_s) > 1 else 0.0


def repeated(trees: Sequence[EnergyTree]) -> tuple[Repeated, ...]:
    """The parts of a program with their joules and seconds in each of several equal runs, largest first."""
    runs = [{node.key: node for node in tree.root.walk() if node.own.time or node.own.energy} for tree in trees]
    known = all(tree.total.source != "missing" for tree in trees)
    found = []
    for key in dict.fromkeys(key for run in runs for key in run):
        own = [run[key].own if key in run else Share() for run in runs]
        node = next(run[key] for run in runs if key in run)
        joules = tuple(share.energy_j for share in own) if known else ()
        found.append(Repeated(node.phase or "", node.path, node.name, joules, tuple(share.time_s for share in own)))
    return tuple(sorted(found, key=lambda part: -part.mean))
