"""The CPU's energy counters, which Linux shows under /sys/class/powercap (RAPL on Intel and AMD).

Linux calls a domain with a counter a zone, and zones may contain others: "core" and "uncore" are parts of a package,
and "psys" contains the packages and more. The energy of "dram" is not part of its package's, although its folder lies
inside the package's. The same package may appear up to three times: read through the processor's registers
(intel-rapl), through memory-mapped registers (intel-rapl-mmio), and as its dies. Here it counts once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import SensorError
from .samples import Reader

ZONES = Path("/sys/class/powercap")
_FOLDER = "JOULECAST_POWERCAP"
_PACKAGE = re.compile(r"package-(\d+)(-die-\d+)?")
_INSIDE = ("core", "uncore")


class Zone(NamedTuple):
    """A domain with an energy counter: our name for it, and whether no other zone that counts contains its joules."""

    folder: Path
    device: str  # "cpu0", "cpu0.core", "ram0", "platform", ...
    component: str
    counted: bool


def zones_folder() -> Path:
    """The folder with the zones: Linux's, or the one that JOULECAST_POWERCAP names, as in containers."""
    return Path(os.environ.get(_FOLDER, ZONES))


def zones(folder: Path = ZONES) -> list[Zone]:
    """All zones of a machine, without zones that show a counter a second time."""
    found = {path.parent: _text(path) for path in sorted(folder.glob("*/name"))}
    by_registers = {name for zone, name in found.items() if not _is_mmio(zone)}
    names = {zone: name for zone, name in found.items() if not (_is_mmio(zone) and name in by_registers)}
    packages = {name for name in names.values() if (match := _PACKAGE.fullmatch(name)) and not match[2]}
    listed = []
    for zone, name in names.items():
        match = _PACKAGE.fullmatch(name)
        if match and match[2]:
            if f"package-{match[1]}" not in packages:
                listed.append(Zone(zone, f"cpu{match[1]}{match[2].replace('-die-', '.die')}", "package", True))
        elif match:
            listed.append(Zone(zone, f"cpu{match[1]}", "package", True))
        elif name == "dram" or name in _INSIDE:
            number = _number_of_package(zone, names)
            device = f"ram{number}" if name == "dram" else f"cpu{number}.{name}"
            listed.append(Zone(zone, device, name, name == "dram"))
        elif name == "psys":
            listed.append(Zone(zone, "platform", "psys", not any(_PACKAGE.fullmatch(each) for each in names.values())))
    return listed


def _is_mmio(zone: Path) -> bool:
    return zone.name.startswith("intel-rapl-mmio")


def _number_of_package(zone: Path, names: Mapping[Path, str]) -> str:
    """The number of the package that contains a zone: intel-rapl:1:0 lies in the package of intel-rapl:1."""
    above = zone.with_name(zone.name.rpartition(":")[0])
    match = _PACKAGE.fullmatch(names.get(above, ""))
    return match[1] if match else above.name.rpartition(":")[2]


def counted_zones(folder: Path = ZONES) -> list[str]:
    """Folders of the counters whose sum is the energy of CPUs and their memory. Raises SensorError: there are none."""
    found = [str(zone.folder) for zone in zones(folder) if zone.counted]
    if not found:
        raise SensorError(
            "this machine shows no energy counter of the CPU",
            given=str(folder),
            allowed="a folder with zones of RAPL",
            hint="virtual machines and containers often hide them: measure on the host",
        )
    return found


def allowing(folder: Path = ZONES) -> str:
    """The command that lets users read the counters, which Linux reserves for root since CVE-2020-8694."""
    return f"sudo chmod a+r {folder}/*/energy_uj"


def open_reader(folders: Sequence[str]) -> Reader:
    """The reader of the sum of some zones, at least one. Raises SensorError: a counter cannot be read.

    Each counter starts again from 0 when it reaches its limit.
    """
    zones = [Path(folder) for folder in folders]
    last, wrapped_uj = dict.fromkeys(zones, 0), 0

    def read() -> Mapping[str, float]:
        nonlocal wrapped_uj
        try:
            for zone in zones:
                energy_uj = int((zone / "energy_uj").read_text())
                if energy_uj < last[zone]:
                    wrapped_uj += int((zone / "max_energy_range_uj").read_text())
                last[zone] = energy_uj
        except (OSError, ValueError) as error:
            hint = allowing(zones[0].parent)
            raise SensorError("an energy counter cannot be read", given=str(error), hint=hint) from error
        return {"energy_j": (sum(last.values()) + wrapped_uj) / 1e6}

    read()
    return read


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
