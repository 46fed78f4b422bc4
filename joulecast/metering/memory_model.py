"""A model of the power of memory, for machines without an energy counter for memory. Results are marked as modelled.

The power of a module in full use depends on its capacity. Of this, the modules take a share that rises in steps with
the memory in use: they are refreshed whether they are used or not. Watts and steps are those of EA2P for DDR4 and DDR5
(github.com/HPC-CRI/EA2P at commit 2bceae1f, ea2p/src/ram.py). Its first version multiplied by the share in use, which
gave 1 to 2 W where a counter read 25 W.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import SensorError
from .samples import Reader

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


def open_reader(capacities_gb: Sequence[float], meminfo: str = str(_MEMINFO)) -> Reader:
    """The model as a reader."""
    full_w = sum(map(module_w, capacities_gb))

    def read() -> Mapping[str, float]:
        total, available = _bytes(Path(meminfo))
        used = round(1 - available / total, 3)
        return {"power_w": full_w * next(share for most, share in _SHARES if used <= most)}

    return read


def _bytes(meminfo: Path) -> tuple[float, float]:
    """Total and available memory in bytes."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total, available = (float(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError) as error:
        raise SensorError(
            "the share of memory in use cannot be read",
            given=str(error),
            allowed="a file with MemTotal and MemAvailable in kB, as Linux writes /proc/meminfo",
        ) from error
    return total, available
