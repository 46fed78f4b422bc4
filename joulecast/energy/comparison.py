"""Comparison of energy trees: of two of one model, where they differ most; and of equal runs, how much they scatter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..units import si
from .node import Node, Share

Key = tuple[str, str, str, str]
"""Phase, path, level and name of a node."""


@dataclass(frozen=True)
class Gap:
    """A node that both trees have, with its joules in the first and in the other tree.

    Args:
        phase: Phase such as "forward"; empty if the node belongs to no single phase.
        name: The operation; empty for the module itself.
    """

    phase: str
    path: str
    name: str
    energy_j: float
    other_energy_j: float

    @property
    def difference_j(self) -> float:
        """Second minus first, in joules."""
        return self.other_energy_j - self.energy_j

    def __str__(self) -> str:
        place = " ".join(part for part in (self.phase, self.path or "(model)", self.name) if part)
        return f"{place}: {si(self.energy_j, 'J')} against {si(self.other_energy_j, 'J')}"


@dataclass(frozen=True)
class TreeComparison:
    """Result of comparing two trees.

    Args:
        gaps: Nodes that both trees have.
        only_first, only_second: Nodes that only one tree has, as phase, path, level and name.
    """

    gaps: tuple[Gap, ...]
    only_first: tuple[Key, ...]
    only_second: tuple[Key, ...]

    @property
    def pearson(self) -> float | None:
        """Pearson correlation of the joules over all shared nodes; None for fewer than two, or if all are equal."""
        first = [gap.energy_j for gap in self.gaps]
        second = [gap.other_energy_j for gap in self.gaps]
        try:
            return statistics.correlation(first, second)
        except statistics.StatisticsError:
            return None

    @property
    def mean_difference_j(self) -> float:
        """Mean of the absolute differences over all shared nodes, in joules; 0 if there are none."""
        return math.fsum(abs(gap.difference_j) for gap in self.gaps) / max(1, len(self.gaps))

    def largest(self, n: int = 10) -> tuple[Gap, ...]:
        """The nodes on which the trees disagree most, in joules."""
        return tuple(sorted(self.gaps, key=lambda gap: -abs(gap.difference_j))[:n])

    def __str__(self) -> str:
        pearson = "not defined" if self.pearson is None else f"{self.pearson:.3f}"
        head = (
            f"{len(self.gaps)} shared parts: Pearson's correlation {pearson}, "
            f"mean absolute difference {si(self.mean_difference_j, 'J')}"
        )
        alone = [
            f"{len(keys)} parts only in the {which} tree"
            for which, keys in (("first", self.only_first), ("second", self.only_second))
            if keys
        ]
        return "\n".join([head, *alone, *(f"  {gap}" for gap in self.largest())])


def comparison(first: Mapping[Key, float], second: Mapping[Key, float]) -> TreeComparison:
    """Compare the joules of the nodes of two trees."""
    gaps = tuple(
        Gap(phase, path, name, joules, second[phase, path, level, name])
        for (phase, path, level, name), joules in first.items()
        if (phase, path, level, name) in second
    )
    return TreeComparison(
        gaps, tuple(key for key in first if key not in second), tuple(key for key in second if key not in first)
    )


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


def repeated(roots: Sequence[Node]) -> tuple[Repeated, ...]:
    """The parts of a program in several equal runs, by the roots of their trees; largest first."""
    runs = [{node.key: node for node in root.walk() if node.own.time or node.own.energy} for root in roots]
    known = all(root.total.source != "missing" for root in roots)
    found = []
    for key in dict.fromkeys(key for run in runs for key in run):
        own = [run[key].own if key in run else Share() for run in runs]
        node = next(run[key] for run in runs if key in run)
        joules = tuple(share.energy_j for share in own) if known else ()
        found.append(Repeated(node.phase or "", node.path, node.name, joules, tuple(share.time_s for share in own)))
    return tuple(sorted(found, key=lambda part: -part.mean))
