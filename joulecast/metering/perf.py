"""CPU energy through `perf stat`, for machines without powercap counters, such as some with AMD processors."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping

from ..errors import SensorError
from .samples import Reader

_EVENT = "power/energy-pkg/"
_PERIOD_S = 0.1  # The shortest interval that perf prints without a warning about its own overhead.
_ALLOWING = "sudo sysctl kernel.perf_event_paranoid=0"


def check() -> None:
    """Check whether `perf` can count the energy of the CPU packages.

    Raises:
        SensorError: perf is not installed, the processor has no such counter, or reading it is not permitted.
    """
    result = subprocess.run([*command(), "--", "true"], capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode or joules_of(result.stderr.strip().splitlines()[-1:]) is None:
        said = result.stderr.strip().splitlines()
        raise SensorError("perf cannot count the CPU's energy", given=said[0] if said else "no output", hint=_ALLOWING)


def open_reader() -> Reader:
    """The reader of all packages together; each reading waits for the next line of perf."""
    return _Reader()


def command() -> list[str]:
    """The command that counts the joules of all packages, and prints them to the standard error when it ends.

    Raises:
        SensorError: perf is not installed.
    """
    program = shutil.which("perf")
    if program is None:
        raise SensorError("perf is not installed", given="no such program", hint="install linux-perf")
    return [program, "stat", "-a", "-x", ",", "-e", _EVENT]


def joules_of(lines: list[str]) -> float | None:
    """The joules of the first line such as "0.100,1.53,Joules,power/energy-pkg/,..."; None for any other line."""
    for line in lines:
        parts = line.split(",")
        if "Joules" in parts:
            try:
                return float(parts[parts.index("Joules") - 1])
            except ValueError:
                return None
    return None


class _Reader:
    """Sums the joules of perf's intervals. When this process ends, its pipe is closed, which ends perf."""

    def __init__(self) -> None:
        asked = [*command(), "-I", f"{1e3 * _PERIOD_S:.0f}"]
        self._process = subprocess.Popen(asked, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)  # noqa: S603
        self._energy_j = 0.0

    def __call__(self) -> Mapping[str, float]:
        line = self._process.stderr.readline() if self._process.stderr else ""
        joules = joules_of([line])
        if joules is None:
            raise SensorError("perf cannot count the CPU's energy", given=line.strip() or "perf ended", hint=_ALLOWING)
        self._energy_j += joules
        return {"time_s": time.monotonic(), "energy_j": self._energy_j}
