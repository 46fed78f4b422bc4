"""Computes the mean power of the parts of an energy tree while they ran."""

from __future__ import annotations

from dataclasses import dataclass

from ..energy import Node
from ..energy.node import Phase


@dataclass(frozen=True)
class Power:
    """Mean power of a part while it ran.

    Args:
        phase: Phase of the part; None for the root of the tree.
        path: Qualified name of the module.
        name: Name of the operation, or of the module if the part is a module.
        time_s: Seconds in which the part ran.
        power_w: Joules over seconds; None if the joules are not known.
    """

    phase: Phase | None
    path: str
    name: str
    time_s: float
    power_w: float | None


def power_of(node: Node) -> Power:
    """The mean power of a part, including everything below it in the tree."""
    total = node.total
    known = total.source != "missing" and total.time_s > 0
    return Power(node.phase, node.path, node.name, total.time_s, total.energy_j / total.time_s if known else None)
