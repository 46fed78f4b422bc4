"""Power of the parts of an energy tree: what each drew while it ran."""

from __future__ import annotations

from dataclasses import dataclass

from ..energy import Node
from ..energy.tree import Phase


@dataclass(frozen=True)
class Power:
    """Mean power of a part while it ran.

    Args:
        phase: Forward, backward or optimizer; None above the phases.
        path: Qualified name of the module.
        name: The operation; that of the module itself where it is none.
        time_s: Seconds of the part.
        power_w: Joules / seconds; None where joules are not known.
    """

    phase: Phase | None
    path: str
    name: str
    time_s: float
    power_w: float | None


def power_of(node: Node) -> Power:
    """The power of a part with all below it."""
    total = node.total
    known = total.source != "missing" and total.time_s > 0
    return Power(node.phase, node.path, node.name, total.time_s, total.energy_j / total.time_s if known else None)
