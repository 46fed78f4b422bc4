"""AMD GPUs by the files of the kernel's driver (amdgpu), for machines without ROCm's library."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import SensorError
from .samples import Reader

CARDS = Path("/sys/class/drm")
_AMD = "0x1002"  # Vendor id of PCI.


def gpus(folder: Path = CARDS) -> list[Path]:
    """Folders with the sensors of the AMD GPUs that state their power."""
    found = []
    for card in sorted(folder.glob("card[0-9]*/device")):
        with contextlib.suppress(OSError):
            if (card / "vendor").read_text().strip() == _AMD:
                found += [sensors for sensors in sorted(card.glob("hwmon/hwmon*")) if _power_file(sensors)]
    return found


def facts(sensors: Path) -> dict[str, Any]:
    """Name and power limit of a GPU, as far as the driver states them."""
    known: dict[str, Any] = {"device": "AMD GPU", "driver": "amdgpu"}
    with contextlib.suppress(OSError):
        known["device"] = (sensors.parents[1] / "product_name").read_text().strip() or known["device"]
    with contextlib.suppress(OSError, ValueError):
        known["power_limit_w"] = int((sensors / "power1_cap").read_text()) / 1e6
    return known


def open_reader(sensors: str) -> Reader:
    """The reader of a GPU's power; the driver has no energy counter here. Raises SensorError: it states no power."""
    file = _power_file(Path(sensors))

    def read() -> Mapping[str, float]:
        try:
            return {"power_w": int((file or Path(sensors)).read_text()) / 1e6}
        except (OSError, ValueError) as error:
            raise SensorError(
                "the power of this AMD GPU cannot be read",
                given=str(error),
                hint="see whether `cat` shows the file, and the kernel's messages (dmesg)",
            ) from error

    read()
    return read


def _power_file(sensors: Path) -> Path | None:
    """The file with microwatts: the mean of the last milliseconds on most boards, the present power on newer ones."""
    files = (sensors / name for name in ("power1_average", "power1_input"))
    return next((file for file in files if file.exists()), None)
