"""Estimates of power from utilization and data sheets, for machines on which no sensor can be read.

Virtual machines hide the counters of their host, and many laptops let only root read them. Then a CPU is taken to draw
a power between that of an idle server and of a busy one, in proportion to the share of time in which its threads are
busy; a GPU between its idle power and its cap in the catalogue. Devices of this kind are marked as modelled, have names
that no sensor has, and are never added to measured ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import SensorError
from . import nvml
from .gpu_shares import busy_s
from .samples import Reader

_CPUINFO, _STAT = Path("/proc/cpuinfo"), Path("/proc/stat")


class ThreadPower(NamedTuple):
    """Power of a server by hardware thread."""

    generation: str
    idle_w: float
    busy_w: float


# Means of the results of SPECpower_ssj2008 by generation of the processor, each divided by the server's threads, as
# Cloud Carbon Footprint publishes them (Apache-2.0; the table of kepler, data/power_data.csv, commit 5102e4d). They are
# those of whole servers, so they include memory, fans and power supplies. Keys are vendor, family and model of CPUID.
_SERVERS = {
    ("GenuineIntel", 6, (42, 45)): ThreadPower("Sandy Bridge", 2.17, 8.58),
    ("GenuineIntel", 6, (58, 62)): ThreadPower("Ivy Bridge", 3.04, 8.25),
    ("GenuineIntel", 6, (60, 63, 69, 70)): ThreadPower("Haswell", 1.90, 6.01),
    ("GenuineIntel", 6, (61, 71, 79, 86)): ThreadPower("Broadwell", 0.71, 3.69),
    ("GenuineIntel", 6, (78, 85, 94)): ThreadPower("Skylake and Cascade Lake", 0.64, 4.08),
    ("GenuineIntel", 6, (142, 158)): ThreadPower("Coffee Lake", 1.14, 5.42),
    ("AuthenticAMD", 23, (1, 8, 17, 24)): ThreadPower("EPYC, 1st generation", 0.82, 2.55),
    ("AuthenticAMD", 23, (49, 96, 104, 113)): ThreadPower("EPYC, 2nd generation", 0.47, 1.69),
}
_OTHERS = ThreadPower("servers of 2017 to 2019", 0.64, 3.10)
"""Mean of Skylake, Cascade Lake and both generations of EPYC, for processors that are not listed."""


def thread_power(cpuinfo: Path = _CPUINFO) -> ThreadPower:
    """Power of the servers whose processor is this machine's, or the mean of several if it is not known."""
    try:
        listed = cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        facts = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in listed.splitlines())}
        vendor, family, model = facts["vendor_id"], int(facts["cpu family"]), int(facts["model"])
    except (OSError, KeyError, ValueError):
        return _OTHERS
    found = (power for (v, f, models), power in _SERVERS.items() if (v, f) == (vendor, family) and model in models)
    return next(found, _OTHERS)


def open_cpu_reader(idle_w: float, busy_w: float, stat: str = str(_STAT)) -> Reader:
    """A counter of the joules that a CPU is estimated to have used.

    Raises SensorError: the system does not say how long threads were busy.
    """
    path, threads, begun_s = Path(stat), os.cpu_count() or 1, time.monotonic()
    first_s = _busy_s(path)

    def read() -> Mapping[str, float]:
        now_s = time.monotonic()
        share = (_busy_s(path) - first_s) / threads
        return {"time_s": now_s, "energy_j": idle_w * (now_s - begun_s) + (busy_w - idle_w) * max(0.0, share)}

    return read


def open_gpu_reader(index: int, idle_w: float, busy_w: float) -> Reader:
    """The power that a GPU is estimated to draw, from the share of the time in which a kernel runs.

    Args:
        busy_w: Power in watts while kernels run all the time: the power cap.

    Raises:
        MissingDependencyError, SensorError: The GPU cannot be read.
    """
    inner = nvml.open_reader(index)

    def read() -> Mapping[str, float]:
        readings = inner()
        if "utilization" not in readings:
            raise SensorError(
                "the utilization of this GPU cannot be read",
                given=f"GPU {index}",
                allowed="a GPU whose driver states it",
                hint="check `nvidia-smi`",
            )
        return {**readings, "power_w": idle_w + (busy_w - idle_w) * readings["utilization"]}

    return read


def _busy_s(stat: Path) -> float:
    try:
        return busy_s(stat)
    except (OSError, ValueError) as error:
        raise SensorError(
            "the time that processors were busy cannot be read",
            given=str(error),
            allowed="a file as Linux writes /proc/stat",
        ) from error
