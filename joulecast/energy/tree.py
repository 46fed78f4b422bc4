"""EnergyTree: shares by phase, module and operation, whether predicted or measured; and trees of ranks, added up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any, Self

from ..checked import in_range
from ..errors import InputError
from ..progress import paced
from ..rendering.answers import Answer, Table
from ..rendering.described import Column, Description, Grid, listing
from ..rendering.pictures import COLOURS, Picture, drawing
from ..units import si
from .comparison import TreeComparison, comparison
from .node import PHASES, Level, Node, Phase, Row, Share, starred

_WIDTH, _ROW, _MOST_ROWS = 960, 26, 8
_NARROWEST = 1.0  # Pixels; narrower boxes are not drawn.
_LETTER = 7.0  # Approximate width of a letter in pixels.
_COLOURS = dict(zip(("root", "phase", "module", "operation"), COLOURS, strict=True))


def icicle(root: Node, title: str) -> str:
    """Draw a node with all below it, at most eight rows deep: each box is as wide as its share of the joules.

    Where no joules are known, it is as wide as its share of the seconds.
    """
    known = root.total.source != "missing"
    placed = list(_placed(root, 0.0, float(_WIDTH), 0, known))
    height = (1 + max(row for _, _, _, row in placed)) * _ROW
    drawn = [_drawn(*each, known) for each in placed]
    levels = [level for level in _COLOURS if any(node.level == level for node, *_ in placed)]
    key = [
        f'<rect x="{120 * place}" y="{height + 8}" width="12" height="12" fill="{_COLOURS[level]}"/>'
        f'<text x="{120 * place + 17}" y="{height + 18}" fill="currentColor">{level.replace("root", "model")}</text>'
        for place, level in enumerate(levels)
    ]
    return drawing(_WIDTH, height + 24, f"{'Energy' if known else 'Time'} of {title}", [*drawn, *key])


def _size(node: Node, known: bool) -> float:
    return node.total.energy_j if known else node.total.time_s


def _placed(node: Node, left: float, width: float, row: int, known: bool) -> Iterator[tuple[Node, float, float, int]]:
    """The node and those below it, the largest first, with left edge, width in pixels and row of each box."""
    yield node, left, width, row
    size = _size(node, known)
    if row + 1 == _MOST_ROWS or not size:
        return
    for child in sorted(node.children, key=lambda child: -_size(child, known)):
        wide = width * _size(child, known) / size
        if wide >= _NARROWEST:
            yield from _placed(child, left, wide, row + 1, known)
        left += wide


def _drawn(node: Node, left: float, width: float, row: int, known: bool) -> str:
    room = int((width - 8) / _LETTER)
    label = node.name if len(node.name) <= room else f"{node.name[: room - 1]}…" if room > 3 else ""
    text = f'<text x="{left + 4:.1f}" y="{row * _ROW + 17}" fill="#fff">{escape(label)}</text>' if label else ""
    size = joules_text(node.total) if known else si(node.total.time_s, "s")
    tooltip = f"{node.path or node.name}: {size}"
    # White edges separate neighbours. Colours tell phases, modules and operations apart.
    return (
        f'<g><title>{escape(tooltip)}</title><rect x="{left:.1f}" y="{row * _ROW}" width="{width:.1f}" '
        f'height="{_ROW}" fill="{_COLOURS[node.level]}" stroke="#fff" stroke-width="0.5"/>{text}</g>'
    )


@dataclass
class _Draft:
    """A node while rows are still being added to it."""

    made: Node
    shares: list[Share] = field(default_factory=list)
    calls: float = 0.0
    children: list[_Draft] = field(default_factory=list)

    def finished(self) -> Node:
        """The node with everything below it. Raises InputError: the number of calls is negative or infinite."""
        parts = tuple(child.finished() for child in self.children)
        phases = {part.phase for part in parts}
        phase = self.made.phase or (phases.pop() if len(phases) == 1 else None)
        if not 0 <= self.calls < math.inf:
            raise InputError("a number of calls is out of range", given=self.calls, allowed="finite, 0 or more")
        return replace(self.made, phase=phase, calls=self.calls, own=Share.total(self.shares), children=parts)


Columns = Mapping[str, Callable[[Share, float], str]]
"""Columns of a tree as a table: title -> function from the share and the calls of a node to its cell."""

FORMAT = 1
"""Version of the JSON form."""

_MOST_NODES = 50_000  # several times those of the largest networks; each takes 2 kB

_DEEPEST = 50  # Modules within each other; those of networks are at most 15 deep.
_SHOWN = 30  # Rows of a table by default.


@dataclass(frozen=True, repr=False)
class EnergyTree(Answer):
    """Seconds and joules of a program by phase, module and operation.

    The own shares of all nodes and what is unattributed add up to the total.

    Args:
        title: Title of the prediction or measurement.
        root: Root node, which contains all others.
        unattributed: Measured share that belongs to no node, such as time without events and idle devices.
        notes: Remarks for the reader of the result.
    """

    title: str
    root: Node
    unattributed: Share = field(default_factory=Share)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, rows: Iterable[Row], unattributed: Share | None = None, notes: Sequence[str] = ()) -> Self:
        """Arrange rows by phase, module and operation. Rows of the same place and operation are added.

        Args:
            title: Title of the prediction or measurement.
            rows: Rows in any order; nodes are in the order in which their rows appear first.
            unattributed: Share that belongs to no row.
            notes: Remarks for the reader of the result.

        Raises:
            InputError: A phase is unknown; or there are too many parts, or too many within each other.
        """
        root, drafts = _Draft(Node(title, level="root")), dict[tuple[str, str, Level, Phase], _Draft]()

        def child(node: _Draft, *place: *tuple[str, str, Level, Phase]) -> _Draft:
            """The node with this name, path, level and phase, which is made where there is none yet."""
            if place not in drafts:
                if len(drafts) == _MOST_NODES:
                    raise InputError(
                        "an energy tree has too many parts", given=place[1][:100], allowed=f"up to {_MOST_NODES}"
                    )
                drafts[place] = _Draft(Node(*place))
                node.children.append(drafts[place])
            return drafts[place]

        for row in paced(rows):
            if row.phase not in PHASES:
                raise InputError("unknown phase", given=repr(row.phase), allowed=", ".join(PHASES))
            if row.path.count(".") >= _DEEPEST:
                raise InputError("a module lies too deep", given=row.path[:100], allowed=f"up to {_DEEPEST} levels")
            node, path = child(root, row.phase, "", "phase", row.phase), ""
            for name in row.path.split(".") if row.path else ():
                path = f"{path}.{name}" if path else name
                node = child(node, name, path, "module", row.phase)
            if row.operation is not None:
                node = child(node, row.operation, row.path, "operation", row.phase)
            node.shares.append(row.share)
            node.calls += row.calls
        if len(root.children) == 1:  # A single phase is not shown: its modules are the root's.
            root = replace(root.children[0], made=root.made)
        return cls(title, root.finished(), unattributed or Share(), tuple(notes))

    @cached_property
    def total(self) -> Share:
        """The sum of all nodes and of the unattributed share."""
        return Share.total([*(node.own for node in self.root.walk()), self.unattributed])

    def summarized(self) -> EnergyTree:
        """The tree with numbered modules merged: `layer.0` and `layer.1` become `layer.*`. Totals do not change."""
        rows = [replace(row, path=starred(row.path)) for row in self._rows()]
        return EnergyTree.of(self.title, rows, self.unattributed, self.notes)

    def flat(self) -> EnergyTree:
        """The tree without modules: operations of the same name are summed, and a module's own share has its name."""
        rows = [
            replace(row, path="", operation=node.name if node.level in ("operation", "module") else node.level)
            for row, node in zip(self._rows(), self._holders(), strict=True)
        ]
        return EnergyTree.of(self.title, rows, self.unattributed, self.notes)

    def top(self, n: int = 10) -> tuple[Node, ...]:
        """The nodes with the most joules of their own, or seconds if there are no joules; largest first."""
        in_range("the number of parts", n, 1, whole=True)
        known = self.total.source != "missing"
        return tuple(sorted(self._holders(), key=lambda node: -(node.own.energy_j if known else node.own.time_s))[:n])

    def at(self, path: str, phase: Phase | None = None) -> Node:
        """The module with a path, in the given phase, or in the first phase that contains it.

        Raises:
            InputError: There is no such module.
        """
        modules = [node for node in self.root.walk() if node.level == "module"]
        for node in modules:
            if node.path == path and phase in (None, node.phase):
                return node
        raise InputError(
            "the tree has no such module",
            given=repr(path) + (f" in phase {phase}" if phase else ""),
            allowed=", ".join(dict.fromkeys(node.path for node in modules[:12])) or "no modules at all",
        )

    def compare(self, other: EnergyTree) -> TreeComparison:
        """Compare the joules of the nodes that both trees have, such as predicted and measured ones."""
        mine, theirs = (
            {node.key: node.total.energy_j for node in tree.root.walk() if node.level in ("module", "operation")}
            for tree in (self, other)
        )
        return comparison(mine, theirs)

    def _holders(self) -> Iterator[Node]:
        return (node for node in self.root.walk() if node.own.energy or node.own.time)

    def _rows(self) -> Iterator[Row]:
        """The rows of which the tree can be made again."""
        for node in self._holders():
            name = node.name if node.level == "operation" else None
            yield Row(node.path, node.own, name, node.phase or "other", node.calls)

    def to_text(self, depth: int = 0, least_share: float = 0.0) -> str:
        """A table, one row per node, children indented below their parent.

        Args:
            depth: Levels of nodes to show; 0 for all.
            least_share: Nodes with less than this share of all joules are left out, 0 to 1.
        """
        unknown = self.total.source == "missing" and bool(self.total.energy)
        whole = self.total.energy_j or 1.0
        columns: Columns = {
            "energy": lambda share, _: joules_text(share),
            "share": lambda share, _: "-" if unknown else f"{100 * share.energy_j / whole:.1f} %",
            "time": lambda share, _: si(share.time_s, "s"),
            "calls": lambda _, calls: f"{calls:g}" if calls else "",
        }
        rest = bool(self.unattributed.energy or self.unattributed.time)
        nodes = self.grid(columns, depth, lambda share: unknown or share.energy_j >= least_share * whole, rest)
        return "\n".join([str(nodes), *(f"note: {note}" for note in self.notes)])

    def grid(self, columns: Columns, depth: int, shows: Callable[[Share], bool], rest: bool) -> Grid:
        """A table with a row for each node, its name indented below its parent's.

        Args:
            columns: Columns beside the names.
            depth: Levels of nodes to show; 0 for all.
            shows: Whether to show a node below the root with this share, and what is below it.
            rest: Whether the last row is what is unattributed.
        """
        rows: list[list[str]] = []

        def add(name: str, share: Share, calls: float = 0) -> None:
            rows.append([*(cell(share, calls) for cell in columns.values()), name])

        def below(node: Node, level: int) -> None:
            add("  " * level + node.name, node.total, node.calls)
            for child in node.children if not depth or level < depth else ():
                if shows(child.total):
                    below(child, level + 1)

        below(self.root, 0)
        if rest:
            add("unattributed", self.unattributed)
        return Grid([*columns, "part"], rows, range(len(columns)))

    def __str__(self) -> str:
        return self.to_text()

    def _table(self) -> Table:
        """A row for every node, parents first."""
        places = ("phase", "path", "level", "name", "calls")
        header = [*places, "own_time_s", "own_energy_j", "total_time_s", "total_energy_j", "source", "unknown_parts"]
        rows = [
            [
                *(getattr(node, name) for name in places),
                *(node.own.time_s, node.own.energy_j),
                *(node.total.time_s, node.total.energy_j, node.total.source, node.total.unknown),
            ]
            for node in self.root.walk()
        ]
        return Table(header, rows)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain lists and dictionaries; `from_dict` reads it."""
        return {
            "format": FORMAT,
            "title": self.title,
            "rows": [
                {name: getattr(row, name) for name in ("path", "operation", "phase", "calls")} | row.share.to_dict()
                for row in self._rows()
            ],
            "unattributed": self.unattributed.to_dict(),
            "notes": list(self.notes),
        }

    def to_nested(self) -> dict[str, Any]:
        """The nodes as nested dictionaries with the totals of each, for the service's page.

        Quantities are in SI units. energy_j is None if no part of it is known, and a lower bound if unknown_parts is
        not 0.
        """
        return {"title": self.title, "root": _nested(self.root), "unattributed": _summed(self.unattributed)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputError: The value has another format, or is not a tree.
        """
        try:
            if value["format"] != FORMAT:
                raise InputError("the energy tree has another format", given=repr(value["format"]), allowed=FORMAT)
            rows = [
                Row(str(row["path"]), Share.from_dict(row), row["operation"], row["phase"], float(row["calls"]))
                for row in value["rows"]
            ]
            unattributed = Share.from_dict(value["unattributed"])
            return cls.of(str(value["title"]), rows, unattributed, [str(note) for note in value["notes"]])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                "this is not an energy tree", given=repr(error), allowed="what EnergyTree.to_dict returns"
            ) from error

    def _picture(self) -> Picture:
        """The tree as an icicle."""
        return Picture(icicle(self.root, self.title))

    def largest(self, n: int) -> Grid:
        """The parts with the most joules of their own as a table."""
        columns = [
            Column("module", lambda node: node.path or "(model)", right=False),
            Column("part", lambda node: node.name, right=False),
            Column("phase", lambda node: node.phase or "", right=False),
            Column("energy", lambda node: joules_text(node.own)),
            Column("time", lambda node: si(node.own.time_s, "s")),
            Column("power", lambda node: si(node.own.power_w, "W")),
        ]
        return listing(self.top(n), columns)

    def described(self) -> Description:
        """What a notebook shows: the largest parts. A terminal shows `to_text`."""
        return Description(f"{self.title}: {joules_text(self.total)}", [self.largest(_SHOWN)], self.notes)


def joules_text(share: Share) -> str:
    """Joules as a text, with ">" if parts are unknown and a dash if all are."""
    if share.source == "missing":
        return "-" if share.energy else si(0.0, "J")
    return f"{'> ' if share.unknown else ''}{si(share.energy_j, 'J')}"


def _nested(node: Node) -> dict[str, Any]:
    return {
        **{name: getattr(node, name) for name in ("name", "path", "level", "phase", "calls")},
        **_summed(node.total),
        "children": [_nested(child) for child in node.children],
    }


def _summed(share: Share) -> dict[str, Any]:
    return {
        "time_s": share.time_s,
        "energy_j": None if share.source == "missing" else share.energy_j,
        "components_j": {name: figure.value for name, figure in share.by_component().items()},
        "source": share.source,
        "unknown_parts": share.unknown,
    }


def merged(title: str, trees: Mapping[str, EnergyTree]) -> EnergyTree:
    """One tree of the ranks of a parallel program: joules are added, and each rank's devices stay apart.

    The time of a part is that of the rank that took longest for it, because ranks work at the same time. `trees` are by
    the names of ranks, such as "rank0". Raises InputError: there is no tree.
    """
    if not trees:
        raise InputError("there is nothing to merge", given="no tree", allowed="at least one tree")

    def renamed(share: Share, rank: str) -> Share:
        return Share(
            {f"{rank}/{device}": figure for device, figure in share.time.items()},
            {(f"{rank}/{device}", component): figure for (device, component), figure in share.energy.items()},
        )

    rows = [replace(row, share=renamed(row.share, rank)) for rank, tree in trees.items() for row in tree._rows()]
    rest = Share.total(renamed(tree.unattributed, rank) for rank, tree in trees.items())
    notes = [f"{rank}: {note}" for rank, tree in trees.items() for note in tree.notes]
    return EnergyTree.of(title, rows, rest, notes)
