"""Writes an energy tree as a table with joules, seconds and power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..energy import EnergyTree, Node, Share
from ..energy.tree import joules_text
from ..units import si

_COLUMNS = ("energy", "of energy", "time", "of time", "power")
"""Names of the table's columns, without the name of the part."""


def _parts(
    tree: EnergyTree, duration_s: float, depth: int = 0, least_share: float = 0.0
) -> Iterator[tuple[int, str, list[str]]]:
    """The rows of the table: level, name and columns of each part, parents first, and the unattributed share last."""
    measured = tree.total.source != "missing"
    whole_j, whole_s = tree.total.energy_j or 1.0, duration_s or 1.0

    def columns(share: Share) -> list[str]:
        known = share.source != "missing"
        return [
            joules_text(share),
            f"{100 * share.energy_j / whole_j:.1f} %" if known else "-",
            si(share.time_s, "s"),
            f"{100 * share.time_s / whole_s:.1f} %",
            si(share.energy_j / share.time_s, "W") if known and share.time_s else "-",
        ]

    def below(node: Node, level: int) -> Iterator[tuple[int, str, list[str]]]:
        share = node.total.energy_j / whole_j if measured else node.total.time_s / whole_s
        if level and share < least_share:
            return
        yield level, node.name, columns(node.total)
        if not depth or level < depth:
            for child in node.children:
                yield from below(child, level + 1)

    yield from below(tree.root, 0)
    yield 0, "unattributed", columns(tree.unattributed)


def table_text(tree: EnergyTree, duration_s: float, depth: int = 0, least_share: float = 0.0) -> str:
    """The table of parts as text, names indented below their parents.

    Args:
        duration_s: Seconds that the whole took, which is 100 % of the time.
        least_share: Parts with a smaller share are left out, 0 to 1. It is a share of the joules, or of the seconds if
            there are no joules.
    """
    rows = list(_parts(tree, duration_s, depth, least_share))
    widths = [max(len(name), *(len(cells[i]) for _, _, cells in rows)) for i, name in enumerate(_COLUMNS)]

    def line(cells: Sequence[str], name: str) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) + f"  {name}"

    lines = [line(cells, "  " * level + name) for level, name, cells in rows]
    return "\n".join([line(_COLUMNS, "part"), *lines])
