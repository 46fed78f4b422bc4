"""The CPU's energy counters: Linux's powercap (RAPL), and programs that print joules where it has none.

Linux shows the counters of Intel and AMD under /sys/class/powercap, and calls a domain with a counter a zone. Zones may
contain others: "core" and "uncore" are parts of a package, and "psys" contains the packages and more. The energy of
"dram" is not part of its package's, although its folder lies inside the package's. The same package may appear up to
three times: read through the processor's registers (intel-rapl), through memory-mapped registers (intel-rapl-mmio), and
as its dies. Here it counts once.

The programs are `perf` on Linux, `powermetrics` on macOS, and `typeperf` on Windows, which reads the energy meter
interface (EMI) through performance counters. All have been tried on recorded output only.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    found: dict[Path, str] = {}
    for path in sorted(folder.glob("*/name")):
        with suppress(OSError):
            found[path.parent] = path.read_text().strip()
    mirrored = {zone for zone in found if zone.name.startswith("intel-rapl-mmio")}
    by_registers = {name for zone, name in found.items() if zone not in mirrored}
    names = {zone: name for zone, name in found.items() if not (zone in mirrored and name in by_registers)}
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
            above = zone.with_name(zone.name.rpartition(":")[0])  # intel-rapl:1:0 lies in the package of intel-rapl:1.
            package = _PACKAGE.fullmatch(names.get(above, ""))
            number = package[1] if package else above.name.rpartition(":")[2]
            device = f"ram{number}" if name == "dram" else f"cpu{number}.{name}"
            listed.append(Zone(zone, device, name, name == "dram"))
        elif name == "psys":
            listed.append(Zone(zone, "platform", "psys", not any(_PACKAGE.fullmatch(each) for each in names.values())))
    return listed


def allowing(folder: Path = ZONES) -> str:
    """The command that lets users read the counters, which Linux reserves for root since CVE-2020-8694."""
    return f"sudo chmod a+r {folder}/*/energy_uj"


def open_zones(folders: Sequence[str]) -> Reader:
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


_PICOWATT_HOUR_J = 3.6e-9
_EVENT = "power/energy-pkg/"


def joules_of_perf(lines: Iterable[str]) -> Iterator[float]:
    """The joules of lines such as "0.100,1.53,Joules,power/energy-pkg/,..."."""
    for line in lines:
        parts = line.split(",")
        with suppress(ValueError):  # Other lines, and "<not counted>".
            yield float(parts[parts.index("Joules") - 1])


def _powermetrics(lines: Iterable[str]) -> Iterator[float]:
    """Samples state the time since the one before, and the mean power: of an Apple chip, or of an Intel package."""
    elapsed_s = 0.0
    for line in lines:
        if found := re.search(r"\(([\d.]+)\s*ms elapsed\)", line):
            elapsed_s = float(found[1]) / 1e3
        if found := re.match(
            r"(?:Combined Power .*|Intel energy model derived package power .*): ([\d.]+) ?(m?)W", line
        ):
            yield float(found[1]) * (1e-3 if found[2] else 1.0) * elapsed_s


def _typeperf(lines: Iterable[str]) -> Iterator[float]:
    """Its first line names the columns. Those of packages have names such as RAPL_Package0_PKG, and count up."""
    packages: list[int] = []
    before_j: float | None = None
    for cells in csv.reader(lines):
        if not packages:
            packages = [place for place, name in enumerate(cells) if re.search(r"\(.*_PKG\)", name, re.IGNORECASE)]
            continue
        with suppress(ValueError, IndexError):
            now_j = sum(float(cells[place]) for place in packages) * _PICOWATT_HOUR_J
            yield 0.0 if before_j is None else now_j - before_j
            before_j = now_j


class Program(NamedTuple):
    """A program that prints joules of the CPU.

    Args:
        once: Arguments that make it end after the first line, to see whether it can be read.
        joules: Joules since the line before, of each of its lines that states them.
    """

    command: tuple[str, ...]
    once: tuple[str, ...]
    joules: Callable[[Iterable[str]], Iterator[float]]
    system: str
    hint: str
    about: str


PERF = ("perf", "stat", "-a", "-x", ",", "-e", _EVENT)
"""Without another argument it counts until it is interrupted, and prints the sum."""

PROGRAMS: Mapping[str, Program] = {
    "perf": Program(
        # 0.1 s is the shortest interval that perf prints without a warning about its own overhead.
        (*PERF, "-I", "100"),
        ("--", "true"),
        joules_of_perf,
        "linux",
        "install linux-perf, and sudo sysctl kernel.perf_event_paranoid=0",
        f"perf stat, {_EVENT}",
    ),
    "powermetrics": Program(
        ("powermetrics", "--samplers", "cpu_power,gpu_power", "-i", "100"),
        ("-n", "1"),
        _powermetrics,
        "darwin",
        "powermetrics reads power for root only: sudo joulecast measure -- COMMAND",
        "powermetrics, combined power",
    ),
    "typeperf": Program(
        ("typeperf", r"\Energy Meter(*)\Energy", "-si", "1"),
        ("-sc", "2"),
        _typeperf,
        "win32",
        "needs Windows 11 and a processor whose driver states energy: Get-Counter -ListSet 'Energy Meter'",
        "typeperf, energy meter interface",
    ),
}


def check_program(program: str) -> None:
    """Check whether a program of `PROGRAMS` can count the energy of the CPU.

    Raises SensorError: it is not installed, the processor has no such counter, or reading it is not permitted.
    """
    row = PROGRAMS[program]
    command = [*(PERF if program == "perf" else row.command), *row.once]
    result = subprocess.run([_path(program), *command[1:]], capture_output=True, text=True, check=False)  # noqa: S603
    printed = (result.stderr + result.stdout).strip().splitlines()
    if result.returncode or not [*row.joules(printed)]:
        raise _failed(program, printed[0] if printed else "no output")


def _path(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise SensorError(f"{program} is not installed", given="no such program", hint=PROGRAMS[program].hint)
    return path


def _failed(program: str, given: str) -> SensorError:
    return SensorError(f"{program} cannot count the CPU's energy", given=given, hint=PROGRAMS[program].hint)


def open_program(program: str = "perf") -> Reader:
    """The reader of all packages together, which adds up the joules of the lines, and waits for the next one.

    When this process ends, the pipe is closed, which ends the program.
    """
    row, last, total_j = PROGRAMS[program], "", 0.0
    # perf writes its counts to the standard error.
    process = subprocess.Popen(  # noqa: S603
        [_path(program), *row.command[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def lines() -> Iterator[str]:
        nonlocal last
        for line in process.stdout or ():
            last = line.strip() or last
            yield line

    joules = row.joules(lines())

    def read() -> Mapping[str, float]:
        nonlocal total_j
        for passed_j in joules:
            total_j += passed_j
            return {"time_s": time.monotonic(), "energy_j": total_j}
        process.communicate()
        raise _failed(program, last or f"{program} ended")

    return read
