"""What was measured on each GPU and used by the predictors of a zoo, according to their cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...system.resources import shipped
from .cards import load_card
from .files import MANIFEST

_NO_SENSOR = "none"


@dataclass(frozen=True)
class Measured:
    """How much was measured on a GPU or CPU.

    Args:
        operations: Number of measurements of single operations.
        networks: Number of measurements of whole networks; one network at two clocks counts twice.
        clocks_mhz: Clocks that were locked; empty where everything ran at the default clock.
        has_power: Whether power was measured, or times only.
    """

    operations: int = 0
    networks: int = 0
    clocks_mhz: tuple[float, ...] = ()
    has_power: bool = False

    def __or__(self, other: Measured) -> Measured:
        """Combine two predictors of one GPU. They share most of their data, so the larger number counts."""
        return Measured(
            max(self.operations, other.operations),
            max(self.networks, other.networks),
            max(self.clocks_mhz, other.clocks_mhz, key=len),
            self.has_power or other.has_power,
        )

    def __add__(self, other: Measured) -> Measured:
        """Add measurements of two different datasets."""
        return Measured(
            self.operations + other.operations,
            self.networks + other.networks,
            tuple(sorted({*self.clocks_mhz, *other.clocks_mhz})),
            self.has_power or other.has_power,
        )

    def __str__(self) -> str:
        parts = []
        if self.operations:
            parts.append(f"{self.operations} operations")
        if self.networks:
            clocks = len(self.clocks_mhz)
            at = f" at {clocks} clocks" if clocks > 1 else f" at {self.clocks_mhz[0]:g} MHz" if clocks else ""
            parts.append(f"{self.networks} measurements of networks{at}")
        return ", ".join(parts) + ("" if self.has_power else " (time only)")


def measured_gpus(zoo: Path | None = None) -> Mapping[str, Measured]:
    """Full name of a GPU or CPU -> what was measured on it. Of GPUs that are not listed, only the data sheet is known.

    Raises:
        ZooError: There is no zoo, or the card of an entry is damaged.
    """
    zoo = zoo or shipped("zoo")
    manifests = sorted(zoo.glob(f"*/*/{MANIFEST}"))
    return _measured(tuple((path.parent, path.stat().st_mtime_ns) for path in manifests))


@lru_cache(maxsize=4)
def _measured(stamped: tuple[tuple[Path, int], ...]) -> Mapping[str, Measured]:
    found: dict[str, Measured] = {}
    for folder, _ in stamped:
        of_entry: dict[str, Measured] = {}
        for gpu, measured in _of_card(load_card(folder)):
            of_entry[gpu] = of_entry.get(gpu, Measured()) + measured
        for gpu, measured in of_entry.items():
            found[gpu] = found.get(gpu, Measured()) | measured
    return found


def _of_card(card: Mapping[str, Any]) -> Iterator[tuple[str, Measured]]:
    if isinstance(card["data"], Mapping):  # a predictor of one GPU or CPU
        operations = int(card["data"].get("unique_operations", 0))
        has_power = not card["data"].get("sensor", "").startswith(_NO_SENSOR)
        yield card["gpu"], Measured(operations, len(card["network_errors"]), has_power=has_power)
        return
    for data in card["data"]:
        # Cards of kernels have no clocks and networks: kernels were measured one by one, at the default clock.
        clocks = () if data.get("clock_mhz") is None else (float(data["clock_mhz"]),)
        has_power = data.get("sensor", _NO_SENSOR) != _NO_SENSOR
        yield data["gpu"], Measured(data["operations"], data.get("networks", 0), clocks, has_power)
