"""AMD GPUs: through amdsmi, the wrapper of ROCm's library, or by the files of the kernel's driver (amdgpu)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import JoulecastError, MissingDependencyError, SensorError
from ..system.regular_files import refusing_damage
from .samples import Reader

CARDS = Path("/sys/class/drm")
_AMD = "0x1002"  # Vendor id of PCI.
_UNSUPPORTED = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # What a board does not have; newer releases return "N/A".


def gpus(cards: Path = CARDS) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Facts of each GPU of this machine, the name of its reader, and the settings of that."""
    try:
        amdsmi, handles = _opened()
    except JoulecastError:  # Most machines have no AMD GPU, so there is no note about it.
        for card in sorted(cards.glob("card[0-9]*/device")):
            with contextlib.suppress(OSError):
                if (card / "vendor").read_text().strip() == _AMD:
                    for sensors in filter(_power_file, sorted(card.glob("hwmon/hwmon*"))):
                        yield _facts_of_driver(sensors), "amd-sysfs", {"sensors": str(sensors)}
        return
    for index, handle in enumerate(handles):
        facts = {"device": "AMD GPU", "driver": "unknown"}
        with contextlib.suppress(amdsmi.AmdSmiException, KeyError):
            name = str(amdsmi.amdsmi_get_gpu_asic_info(handle)["market_name"])
            facts = {"device": name, "driver": str(amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"])}
        yield {**facts, "sensor": "amdsmi"}, "amdsmi", {"index": index}


def open_reader(index: int) -> Reader:
    """The reader of a GPU through amdsmi: power, and the energy counter where the board has one.

    Raises MissingDependencyError, SensorError: it cannot be read.
    """
    amdsmi, handles = _opened()

    def read() -> Mapping[str, float]:
        readings = {}
        try:
            power = amdsmi.amdsmi_get_power_info(handles[index])
            # Boards since the MI300 report the present power, older ones an average.
            for name in ("current_socket_power", "average_socket_power", "socket_power"):
                if (watts := _number(power.get(name))) is not None:
                    readings["power_w"] = watts
                    break
            count = amdsmi.amdsmi_get_energy_count(handles[index])
            ticks = _number(count.get("energy_accumulator", count.get("power")))
            microjoules_per_tick = _number(count.get("counter_resolution"))
            if ticks is not None and microjoules_per_tick is not None:
                readings["energy_j"] = ticks * microjoules_per_tick / 1e6
        except amdsmi.AmdSmiException as error:
            if not readings:
                hint = "see whether `amd-smi monitor` still reads it"
                raise SensorError("the GPU cannot be read any more", given=str(error), hint=hint) from error
        return readings

    return read


def open_driver_reader(sensors: str) -> Reader:
    """The reader of a GPU's power by the driver's file in the folder of its sensors, which have no counter.

    Raises SensorError: they state no power.
    """
    file = _power_file(Path(sensors)) or Path(sensors)

    def read() -> Mapping[str, float]:
        with refusing_damage("the power of this AMD GPU cannot be read", file, SensorError):
            return {"power_w": int(file.read_text()) / 1e6}

    read()
    return read


def _power_file(sensors: Path) -> Path | None:
    """The file with microwatts: the mean of the last milliseconds on most boards, the present power on newer ones."""
    files = (sensors / name for name in ("power1_average", "power1_input"))
    return next((file for file in files if file.exists()), None)


def _facts_of_driver(sensors: Path) -> dict[str, Any]:
    """Name and power limit of a GPU, as far as the driver states them."""
    known: dict[str, Any] = {"device": "AMD GPU", "driver": "amdgpu", "sensor": f"amdgpu, {sensors.name}"}
    with contextlib.suppress(OSError):
        known["device"] = (sensors.parents[1] / "product_name").read_text().strip() or known["device"]
    with contextlib.suppress(OSError, ValueError):
        known["power_limit_w"] = int((sensors / "power1_cap").read_text()) / 1e6
    return known


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and value not in _UNSUPPORTED
    return float(value) if known else None  # type: ignore[arg-type]


def _opened() -> tuple[Any, list[Any]]:
    """amdsmi, and the handles of all GPUs. Raises MissingDependencyError, SensorError: ROCm's library does not work."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # amdsmi prints a message if ROCm's library is missing
            amdsmi: Any = import_module("amdsmi")
    except (ImportError, OSError, KeyError) as error:  # the wrapper raises what loading ROCm's library raises
        raise MissingDependencyError(
            "reading an AMD GPU's power needs amdsmi and ROCm's library", hint="pip install amdsmi, and install ROCm"
        ) from error
    try:
        amdsmi.amdsmi_init()
        return amdsmi, list(amdsmi.amdsmi_get_processor_handles())
    except amdsmi.AmdSmiException as error:
        raise SensorError("AMD's driver does not answer", given=str(error), hint="check `amd-smi list`") from error
