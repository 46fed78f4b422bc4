"""Share: seconds and joules of one part, by device and component, each measured, modelled or missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
        if self.source not in SOURCES:
            raise InputError("unknown source of a figure", given=repr(self.source), allowed=", ".join(SOURCES))
        if not math.isfinite(self.value) or self.value < 0:
            raise InputError(
                "a value of seconds or joules is out of range", given=repr(self.value), allowed="finite, 0 or more"
            )
        if isinstance(self.unknown, bool) or not isinstance(self.unknown, int) or self.unknown < 0:
            raise InputError(
                "the number of unknown summands is out of range", given=repr(self.unknown), allowed="an integer from 0"
            )
        if self.source == "missing" and (self.value or not self.unknown):
            raise InputError(
                "a missing figure has a value, or no unknown summand",
                given=f"value {self.value!r}, {self.unknown} unknown",
                allowed="value 0.0 and at least 1 unknown summand",
                hint='Figure.of(None, "missing") makes a missing figure',
            )

    @classmethod
    def of(cls, value: float | None, source: Source) -> Self:
        """A single quantity; None if it is missing."""
        return cls(0.0, "missing", 1) if value is None or source == "missing" else cls(float(value), source)

    @classmethod
    def total(cls, figures: Iterable[Figure]) -> Self:
        """The sum, rounded once (`math.fsum`), so that the order of the summands does not matter."""
        listed = list(figures)
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
        listed = list(shares)
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
        """Read what `to_dict` wrote.

        Raises:
            KeyError, TypeError, InputError: The value was not written by `to_dict`.
        """
        return cls(
            {str(row["device"]): _figure(row) for row in value["time_s"]},
            {(str(row["device"]), str(row["component"])): _figure(row) for row in value["energy_j"]},
        )


def _plain(figure: Figure) -> dict[str, Any]:
    value = {"value": None if figure.source == "missing" else figure.value, "source": figure.source}
    return {**value, "unknown": figure.unknown} if figure.unknown else value


def _figure(row: Mapping[str, Any]) -> Figure:
    return Figure(0.0 if row["value"] is None else float(row["value"]), row["source"], row.get("unknown", 0))
