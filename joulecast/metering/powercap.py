"""The CPU's energy counters, as Linux shows them under /sys/class/powercap (RAPL on Intel and AMD)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ..errors import SensorError
from .sensor import PolledSensor, Reader

ZONES = Path("/sys/class/powercap")


def powercap_sensor(folder: Path = ZONES) -> PolledSensor:
    """The energy counters of all packages and of their memory.

    Raises:
        SensorError: There are none, or they may not be read.
    """
    zones = _zones(folder)
    if not zones:
        raise SensorError("this machine shows no energy counter", given=str(folder))
    try:
        _Reader(zones)()
    except OSError as error:
        raise SensorError(
            "the energy counters may not be read",
            given=str(error),
            hint=f"sudo chmod a+r {folder}/*/energy_uj",
        ) from error
    return PolledSensor(partial(_open, zones), {"sensor": f"powercap: energy counters of {len(zones)} zones"})


def _zones(folder: Path) -> list[Path]:
    """Packages, and memory where it is counted apart; "core" and "uncore" are parts of a package, "psys" holds it."""
    named = {path.parent: path.read_text().strip() for path in sorted(folder.glob("*/name"))}
    return [zone for zone, name in named.items() if name.startswith("package") or name == "dram"]


def _open(zones: list[Path]) -> Reader:
    return _Reader(zones)


class _Reader:
    """Adds up counters, each of which starts again from 0 at its limit."""

    def __init__(self, zones: list[Path]) -> None:
        self._zones = zones
        self._last = dict.fromkeys(zones, 0)
        self._turned_over_uj = 0

    def __call__(self) -> Mapping[str, float]:
        total_uj = 0
        for zone in self._zones:
            energy_uj = int((zone / "energy_uj").read_text())
            if energy_uj < self._last[zone]:
                self._turned_over_uj += int((zone / "max_energy_range_uj").read_text())
            self._last[zone] = energy_uj
            total_uj += energy_uj
        return {"energy_j": (total_uj + self._turned_over_uj) / 1e6}
