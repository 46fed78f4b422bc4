"""CPU energy by programs that print it: `perf` on Linux, `powermetrics` on macOS, and `typeperf` on Windows.

They are asked where powercap has no counters. All have been tried on recorded output only. typeperf reads the energy
meter interface (EMI) through Windows' performance counters.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..errors import SensorError
from .samples import Reader

_PICOWATT_HOUR_J = 3.6e-9
_EVENT = "power/energy-pkg/"
JoulesOf = Callable[[str], float | None]
"""Joules of the line since the one before; None for a line that states none."""


def joules_of_perf(line: str) -> float | None:
    """The joules of a line such as "0.100,1.53,Joules,power/energy-pkg/,..."."""
    parts = line.split(",")
    try:
        return float(parts[parts.index("Joules") - 1])
    except ValueError:
        return None


def _powermetrics() -> JoulesOf:
    """Samples state the time since the one before, and the mean power: of an Apple chip, or of an Intel package."""
    elapsed_s = 0.0

    def joules_of(line: str) -> float | None:
        nonlocal elapsed_s
        if found := re.search(r"\(([\d.]+)\s*ms elapsed\)", line):
            elapsed_s = float(found[1]) / 1e3
        found = re.match(r"(?:Combined Power .*|Intel energy model derived package power .*): ([\d.]+) ?(m?)W", line)
        return float(found[1]) * (1e-3 if found[2] else 1.0) * elapsed_s if found else None

    return joules_of


def _typeperf() -> JoulesOf:
    """Its first line names the columns. Those of packages have names such as RAPL_Package0_PKG, and count up."""
    packages: list[int] = []
    before: float | None = None

    def joules_of(line: str) -> float | None:
        nonlocal before
        cells = next(csv.reader([line]), [])
        if not packages:
            packages.extend(place for place, name in enumerate(cells) if re.search(r"\(.*_PKG\)", name, re.IGNORECASE))
            return None
        try:
            now = sum(float(cells[place]) for place in packages) * _PICOWATT_HOUR_J
        except (ValueError, IndexError):
            return None
        before, passed = now, 0.0 if before is None else now - before
        return passed

    return joules_of


class Program(NamedTuple):
    """A program that prints joules of the CPU.

    Args:
        once: Arguments that make it end after the first line, to see whether it can be read.
    """

    command: tuple[str, ...]
    once: tuple[str, ...]
    joules_of: Callable[[], JoulesOf]
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
        lambda: joules_of_perf,
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


def check(program: str) -> None:
    """Check whether a program of `PROGRAMS` can count the energy of the CPU.

    Raises SensorError: it is not installed, the processor has no such counter, or reading it is not permitted.
    """
    row = PROGRAMS[program]
    command = [*(PERF if program == "perf" else row.command), *row.once]
    result = subprocess.run([_path(program), *command[1:]], capture_output=True, text=True, check=False)  # noqa: S603
    joules_of, printed = row.joules_of(), (result.stderr + result.stdout).strip().splitlines()
    if result.returncode or not [line for line in printed if joules_of(line) is not None]:
        given = printed[0] if printed else "no output"
        raise SensorError(f"{program} cannot count the CPU's energy", given=given, hint=row.hint)


def open_reader(program: str = "perf") -> Reader:
    """The reader of all packages together; each reading waits for the next line of the program."""
    return _Reader(program)


def _path(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise SensorError(f"{program} is not installed", given="no such program", hint=PROGRAMS[program].hint)
    return path


class _Reader:
    """Sums the joules of the lines. When this process ends, its pipe is closed, which ends the program."""

    def __init__(self, program: str) -> None:
        self._program, row = program, PROGRAMS[program]
        # perf writes its counts to the standard error.
        self._process = subprocess.Popen(  # noqa: S603
            [_path(program), *row.command[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._joules_of, self._energy_j = row.joules_of(), 0.0

    def __call__(self) -> Mapping[str, float]:
        last = ""
        for line in self._process.stdout or ():
            last = line.strip() or last
            joules = self._joules_of(line)
            if joules is not None:
                self._energy_j += joules
                return {"time_s": time.monotonic(), "energy_j": self._energy_j}
        self._process.communicate()
        raise SensorError(
            f"{self._program} cannot count the CPU's energy",
            given=last or f"{self._program} ended",
            hint=PROGRAMS[self._program].hint,
        )
