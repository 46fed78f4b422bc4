"""Estimates of power from utilization and data sheets, for machines on which no sensor can be read.

Virtual machines hide the counters of their host, and many laptops let only root read them. Then a CPU is taken to draw
a power between that of an idle server and of a busy one, in proportion to the share of time in which its threads are
busy; a GPU between its idle power and its cap in the catalogue; memory by its capacity and use. Devices of this kind
are marked as modelled, have names that no sensor has, and are never added to measured ones.
"""

from __future__ import annotations

import math
import os
import time
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import SensorError
from ..system.regular_files import refusing_damage
from .gpu_shares import busy_s
from .nvidia import open_nvml
from .samples import Reader

_CPUINFO, _STAT = Path("/proc/cpuinfo"), Path("/proc/stat")


def thread_power(cpuinfo: Path = _CPUINFO) -> Mapping[str, Any]:
    """Watts of a hardware thread, "idle_w" and "busy_w", and the "generation" of servers whose power it is.

    They are those of this machine's processor, or the mean of several if it is not known.
    """
    try:
        listed = cpuinfo.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        facts = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in listed.splitlines())}
        vendor, family, model = facts["vendor_id"], int(facts["cpu family"]), int(facts["model"])
    except (OSError, KeyError, ValueError):
        vendor, family, model = "", 0, 0
    published = tomllib.loads(files(__package__).joinpath("published_power.toml").read_text(encoding="utf-8"))
    alike = (row for row in published["server"] if (row["vendor"], row["family"]) == (vendor, family))
    known: Mapping[str, Any] = next((row for row in alike if model in row["models"]), published["other_servers"])
    return known


def open_cpu_reader(idle_w: float, busy_w: float, stat: str = str(_STAT)) -> Reader:
    """A counter of the joules that a CPU is estimated to have used.

    Raises SensorError: the system does not say how long threads were busy.
    """
    path, threads, begun_s = Path(stat), os.cpu_count() or 1, time.monotonic()
    first_s = busy_s(path)

    def read() -> Mapping[str, float]:
        now_s = time.monotonic()
        share = (busy_s(path) - first_s) / threads
        return {"time_s": now_s, "energy_j": idle_w * (now_s - begun_s) + (busy_w - idle_w) * max(0.0, share)}

    return read


def open_gpu_reader(index: int, idle_w: float, busy_w: float) -> Reader:
    """The power that a GPU is estimated to draw, from the share of the time in which a kernel runs.

    While kernels run all the time it is the power cap, `busy_w`. Raises MissingDependencyError, SensorError: the GPU
    cannot be read.
    """
    inner = open_nvml(index)

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


# The power of a memory module in full use depends on its capacity. Of this, the modules take a share that rises in
# steps with the memory in use: they are refreshed whether they are used or not. Watts and steps are those of EA2P for
# DDR4 and DDR5 (github.com/HPC-CRI/EA2P at commit 2bceae1f, ea2p/src/ram.py). Its first version multiplied by the share
# in use, which gave 1 to 2 W where a counter read 25 W.
_WATTS_BY_GB = ((16, 4.0), (32, 5.0), (64, 6.0), (128, 8.0))
_LARGEST_W = 10.0
_SHARES = ((0.05, 0.35), (0.1, 0.65), (0.25, 0.7), (0.5, 0.75), (0.7, 0.8), (1.0, 0.85))  # In use -> of full power.
_ASSUMED_GB = 32  # Capacity of a module, on machines that do not list their modules.
_EDAC = Path("/sys/devices/system/edac/mc")
_MEMINFO = Path("/proc/meminfo")


def module_w(capacity_gb: float) -> float:
    """Power of a memory module in full use in watts, from its capacity in GB."""
    return next((watts for most, watts in _WATTS_BY_GB if capacity_gb <= most), _LARGEST_W)


def modules_gb(edac: Path = _EDAC, meminfo: Path = _MEMINFO) -> list[float]:
    """Capacities in GB of the modules of this machine. If they are not listed, modules of 32 GB are assumed."""
    sizes = []
    for path in sorted(edac.glob("mc*/dimm*/size")):
        try:
            sizes.append(float(path.read_text()) / 1024)
        except (OSError, ValueError):
            continue
    if known := [size for size in sizes if size > 0]:
        return known
    total_gb = _bytes(meminfo)[0] / 1e9
    return [float(_ASSUMED_GB)] * max(1, math.ceil(total_gb / _ASSUMED_GB))


def open_memory_reader(capacities_gb: Sequence[float], meminfo: str = str(_MEMINFO)) -> Reader:
    """The model of the power of memory as a reader."""
    full_w = sum(map(module_w, capacities_gb))

    def read() -> Mapping[str, float]:
        total, available = _bytes(Path(meminfo))
        used = round(1 - available / total, 3)
        return {"power_w": full_w * next(share for most, share in _SHARES if used <= most)}

    return read


def _bytes(meminfo: Path) -> tuple[float, float]:
    """Total and available memory in bytes."""
    with refusing_damage("the share of memory in use cannot be read", meminfo, SensorError):
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total, available = (float(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, available
