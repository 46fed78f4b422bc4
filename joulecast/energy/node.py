"""Parts of an energy tree: the rows that it is built from, and its nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from ..errors import InputError
from .share import Share

Phase = Literal["forward", "backward", "optimizer", "other"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "other")
MOST_NODES = 50_000  # several times those of the largest networks; each takes 2 kB
Level = Literal["root", "phase", "module", "operation"]

MOST_LEVELS = 100
"""Levels of a path. A tree is walked by recursion, and its size is the product of its rows and their levels."""

_MOST_PATH = 4000  # characters


def require_levels(path: str) -> None:
    """Require that the path of a module or window has at most 100 levels and 4,000 characters.

    Raises:
        InputError: It has more.
    """
    levels = path.count(".") + 1
    if levels > MOST_LEVELS or len(path) > _MOST_PATH:
        raise InputError(
            "modules or windows are nested too deeply, or their names are too long",
            given=f"{path[:60]}...: {levels:,} levels, {len(path):,} characters",
            allowed=f"up to {MOST_LEVELS} levels and {_MOST_PATH:,} characters",
            hint="name fewer levels, with shorter names",
        )


@dataclass(frozen=True)
class Row:
    """One entry to build a tree from.

    Args:
        path: Qualified name of the module, such as "layer1.0.conv2"; empty for the model itself.
        share: Seconds and joules of all calls together.
        operation: Name of the operation; None for the module itself.
        phase: "forward", "backward", "optimizer" or "other".
        calls: Number of calls.
    """

    path: str
    share: Share
    operation: str | None = None
    phase: Phase = "forward"
    calls: float = 1


@dataclass(frozen=True)
class Node:
    """A part of the tree with everything below it.

    Args:
        name: Last part of the path of a module, or name of an operation.
        path: Qualified name of the module, or of the module in which the operation ran.
        level: What the node represents, such as a module or an operation.
        phase: Phase to which the node belongs; None for nodes above the phases.
        calls: Number of calls; 0 if they were not counted, as for most modules.
        own: Share of the node itself, without its children.
        children: Child nodes, in order of first appearance.
    """

    name: str
    path: str = ""
    level: Level = "module"
    phase: Phase | None = None
    calls: float = 0
    own: Share = field(default_factory=Share)
    children: tuple[Node, ...] = ()

    @cached_property
    def total(self) -> Share:
        """Its own share and those of all nodes below."""
        return Share.total([self.own, *(child.total for child in self.children)])

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identifies a node in other trees of the same model: phase, path, level, name."""
        return self.phase or "", self.path, self.level, self.name if self.level == "operation" else ""


class Draft:
    """A node while rows are still being added to it."""

    def __init__(self, name: str, path: str, level: Level, phase: Phase | None, room: Iterator[int]) -> None:
        self.made = Node(name, path, level, phase)
        self._room = room  # gives as many numbers as nodes may still be added to the tree
        self.calls = 0.0
        self.shares: list[Share] = []
        self.children: dict[tuple[str, str], Draft] = {}

    def child(self, name: str, path: str, level: Level, phase: Phase) -> Draft:
        """The child node of this name, which is made where there is none yet.

        Raises:
            InputError: The tree has too many nodes.
        """
        key = (level, name)
        if key not in self.children:
            if next(self._room, None) is None:
                raise InputError("an energy tree has too many parts", given=path[:100], allowed=f"up to {MOST_NODES}")
            self.children[key] = Draft(name, path, level, phase, self._room)
        return self.children[key]

    def finished(self) -> Node:
        """The node with everything below it.

        Raises:
            InputError: The number of calls is negative or infinite.
        """
        parts = tuple(child.finished() for child in self.children.values())
        phases = {part.phase for part in parts}
        phase = self.made.phase or (phases.pop() if len(phases) == 1 else None)
        own = Share.total(self.shares)
        if not math.isfinite(self.calls) or self.calls < 0:
            raise InputError("a number of calls is out of range", given=self.calls, allowed="finite, 0 or more")
        return replace(self.made, phase=phase, calls=self.calls, own=own, children=parts)
