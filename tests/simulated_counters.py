"""Energy counters of a simulated machine, as Linux shows them below /sys/class/powercap."""

import time
from collections.abc import Mapping
from pathlib import Path

SIMULATION = Path(__file__).parent / "metering" / "fake_powercap" / "powercap.c"
RANGE_J = 1000.0
"""Joules after which a counter starts again from 0."""

FIRST_J = RANGE_J - 3.0
"""What a counter shows when it is first read. It starts again soon afterwards, and then not for many seconds."""


def simulate_zones(folder: Path, zones: Mapping[str, tuple[str, str]]) -> None:
    """Write the files of zones, whose counters are then simulated by the library of the fixture `preloaded`.

    Args:
        folder: The folder in which Linux would show the zones.
        zones: Name of a zone's folder -> name of the zone, and one of the loads of powercap.c.
    """
    for zone, (name, load) in zones.items():
        (folder / zone).mkdir(parents=True)
        (folder / zone / "name").write_text(name)
        (folder / zone / "max_energy_range_uj").write_text(f"{RANGE_J * 1e6:.0f}")
        (folder / zone / "energy_uj").write_text("0")
        (folder / zone / "load").write_text(f"{load}, {time.monotonic()} {FIRST_J} {RANGE_J}")


def begin_s(folder: Path) -> float:
    """Monotonic time in seconds at which the load of a zone began, from the folder of the zone."""
    return float((folder / "load").read_text().split(", ")[1].split()[0])
