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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from ..errors import SensorError
from .samples import Reader

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


def check(program: str) -> None:
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


def open_reader(program: str = "perf") -> Reader:
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
