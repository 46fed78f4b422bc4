"""Shares of energy, the rows that a tree is built from, and its nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

from ..errors import InputError

Source = Literal["measured", "modelled", "missing"]
SOURCES: tuple[Source, ...] = ("measured", "modelled", "missing")
"""Sources of a figure, from the most to the least reliable."""


@dataclass(frozen=True)
class Figure:
    """A quantity, or a sum of several, with its source.

    Args:
        value: Sum of the known summands in seconds or joules; 0 if none is known.
        source: Least reliable source of the known summands; "missing" if none is known.
        unknown: Number of unknown summands. `value` does not include them, so it is a lower bound if there are any.
    """

    value: float
    source: Source
    unknown: int = 0

    def __post_init__(self) -> None:
        counted = type(self.unknown) is int and self.unknown >= 0
        contradicts = self.source == "missing" and (self.value or not self.unknown)
        if self.source not in SOURCES or not 0 <= self.value < math.inf or not counted or contradicts:
            raise InputError(
                "seconds or joules, their source or the number of unknown summands is out of range",
                given=f"{self.value!r}, {self.source!r}, {self.unknown!r} unknown",
                allowed=f"a finite value from 0, one of {', '.join(SOURCES)}, an integer from 0; a missing figure has "
                "the value 0.0 and at least 1 unknown summand",
                hint='Figure.of(None, "missing") makes a missing figure',
            )

    @classmethod
    def of(cls, value: float | None, source: Source) -> Self:
        """A single quantity; None if it is missing."""
        return cls(0.0, "missing", 1) if value is None or source == "missing" else cls(float(value), source)

    @classmethod
    def total(cls, figures: Iterable[Self]) -> Self:
        """The sum, rounded once (`math.fsum`), so that the order of the summands does not matter."""
        listed = list(figures)
        if len(listed) == 1:
            return listed[0]
        known = [figure for figure in listed if figure.source != "missing"]
        source: Source = max((figure.source for figure in known), key=SOURCES.index, default="missing")
        unknown = sum(figure.unknown for figure in listed)
        return cls(math.fsum(figure.value for figure in known), source, unknown if known else max(1, unknown))

    def scaled_by(self, factor: float) -> Figure:
        """The figure with its value multiplied by a factor; the number of unknown summands stays the same."""
        return Figure(self.value * factor, self.source, self.unknown)


@dataclass(frozen=True)
class Share:
    """Time and energy of one part of a program.

    Args:
        time: Device -> seconds that it was busy with the part. Devices work in parallel, so these are not summed.
        energy: (device, component) -> joules. The components of a device add up to its energy. They are, for example,
            "static" and "dynamic", levels of memory, domains of a CPU, or "total" alone.
    """

    time: Mapping[str, Figure] = field(default_factory=dict)
    energy: Mapping[tuple[str, str], Figure] = field(default_factory=dict)

    @classmethod
    def total(cls, shares: Iterable[Share]) -> Share:
        """The sum of shares, device by device and component by component."""
        listed = [share for share in shares if share.time or share.energy]
        if len(listed) == 1:
            return listed[0]
        times: dict[str, list[Figure]] = {}
        energies: dict[tuple[str, str], list[Figure]] = {}
        for share in listed:
            for device, figure in share.time.items():
                times.setdefault(device, []).append(figure)
            for part, figure in share.energy.items():
                energies.setdefault(part, []).append(figure)
        return cls(
            {device: Figure.total(figures) for device, figures in times.items()},
            {part: Figure.total(figures) for part, figures in energies.items()},
        )

    def scaled_by(self, factor: float) -> Share:
        """This fraction of the share."""
        return Share(
            {device: figure.scaled_by(factor) for device, figure in self.time.items()},
            {part: figure.scaled_by(factor) for part, figure in self.energy.items()},
        )

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices of the share, in order of first appearance."""
        return tuple(dict.fromkeys([*self.time, *(device for device, _ in self.energy)]))

    @property
    def components(self) -> tuple[str, ...]:
        """All components of any device, in order of first appearance."""
        return tuple(dict.fromkeys(component for _, component in self.energy))

    @property
    def time_s(self) -> float:
        """Seconds of the device that was busy for the longest time."""
        return max((figure.value for figure in self.time.values()), default=0.0)

    @property
    def energy_j(self) -> float:
        """Sum of the known joules of all devices and components."""
        return math.fsum(figure.value for figure in self.energy.values())

    @property
    def power_w(self) -> float | None:
        """Mean watts while the part ran; None where its joules or seconds are not known."""
        return self.energy_j / self.time_s if self.source != "missing" and self.time_s else None

    @property
    def source(self) -> Source:
        """Least reliable source of its joules; "missing" if none are known."""
        return Figure.total(self.energy.values()).source

    @property
    def unknown(self) -> int:
        """Number of unknown summands of its joules."""
        return sum(figure.unknown for figure in self.energy.values())

    def on(self, device: str) -> Share:
        """The part of one device."""
        return Share(
            {name: figure for name, figure in self.time.items() if name == device},
            {part: figure for part, figure in self.energy.items() if part[0] == device},
        )

    def by_component(self) -> dict[str, Figure]:
        """Joules by component, over all devices."""
        return {
            wanted: Figure.total(figure for (_, component), figure in self.energy.items() if component == wanted)
            for wanted in self.components
        }

    def to_dict(self) -> dict[str, Any]:
        """Lists of plain objects; quantities in SI units, None if they are missing."""
        return {
            "time_s": [{"device": device, **_plain(figure)} for device, figure in self.time.items()],
            "energy_j": [
                {"device": device, "component": component, **_plain(figure)}
                for (device, component), figure in self.energy.items()
            ],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Share:
        """Read what `to_dict` wrote. Raises KeyError, TypeError, InputError: the value was not written by `to_dict`."""
        return cls(
            {str(row["device"]): _figure(row) for row in value["time_s"]},
            {(str(row["device"]), str(row["component"])): _figure(row) for row in value["energy_j"]},
        )


def _plain(figure: Figure) -> dict[str, Any]:
    value = {"value": None if figure.source == "missing" else figure.value, "source": figure.source}
    return {**value, "unknown": figure.unknown} if figure.unknown else value


def _figure(row: Mapping[str, Any]) -> Figure:
    return Figure(0.0 if row["value"] is None else float(row["value"]), row["source"], row.get("unknown", 0))


Phase = Literal["forward", "backward", "optimizer", "other"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "other")
Level = Literal["root", "phase", "module", "operation"]

MOST_LEVELS = 100
"""Levels of a path. A tree is walked by recursion, and its size is the product of its rows and their levels."""

_MOST_PATH = 4000  # characters


def require_levels(path: str) -> None:
    """Require that the path of a module or window has at most 100 levels and 4,000 characters.

    Raises InputError: it has more.
    """
    levels = path.count(".") + 1
    if levels > MOST_LEVELS or len(path) > _MOST_PATH:
        raise InputError(
            "modules or windows are nested too deeply, or their names are too long",
            given=f"{path[:60]}...: {levels:,} levels, {len(path):,} characters",
            allowed=f"up to {MOST_LEVELS} levels and {_MOST_PATH:,} characters",
            hint="name fewer levels, with shorter names",
        )


def starred(path: str) -> str:
    """A path in which numbers of layers are stars, by which repeated layers are added up: "layer.*.conv"."""
    return ".".join("*" if part.isdecimal() else part for part in path.split("."))


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
