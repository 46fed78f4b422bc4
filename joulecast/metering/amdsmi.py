"""AMD GPUs, read through amdsmi, the Python wrapper of ROCm's library."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..errors import MissingDependencyError, SensorError
from .samples import Reader

_UNSUPPORTED = 0xFFFF  # Value of a reading that a board does not have; newer releases of amdsmi return "N/A".


def handles() -> list[Any]:
    """Handles of the AMD GPUs, in amdsmi's order.

    Raises MissingDependencyError: amdsmi, or ROCm's library behind it, is not installed. Raises SensorError: the driver
    does not answer.
    """
    amdsmi = _library()
    try:
        amdsmi.amdsmi_init()
        return list(amdsmi.amdsmi_get_processor_handles())
    except amdsmi.AmdSmiException as error:
        raise SensorError("AMD's driver does not answer", given=str(error), hint="check `amd-smi list`") from error


def facts(index: int) -> dict[str, Any]:
    """Name and driver of a GPU, as far as amdsmi reports them."""
    amdsmi, handle = _library(), handles()[index]
    try:
        name = str(amdsmi.amdsmi_get_gpu_asic_info(handle)["market_name"])
        driver = str(amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"])
    except (amdsmi.AmdSmiException, KeyError):
        return {"device": "AMD GPU", "driver": "unknown"}
    return {"device": name, "driver": driver}


def open_reader(index: int) -> Reader:
    """The reader of a GPU: power, and the energy counter where the board has one.

    Raises MissingDependencyError, SensorError: it cannot be read.
    """
    amdsmi, handle = _library(), handles()[index]

    def read() -> Mapping[str, float]:
        readings = {}
        try:
            power = amdsmi.amdsmi_get_power_info(handle)
            # Boards since the MI300 report the present power, older ones an average.
            for name in ("current_socket_power", "average_socket_power", "socket_power"):
                if (watts := _number(power.get(name))) is not None:
                    readings["power_w"] = watts
                    break
            count = amdsmi.amdsmi_get_energy_count(handle)
            ticks = _number(count.get("energy_accumulator", count.get("power")))
            microjoules_per_tick = _number(count.get("counter_resolution"))
            if ticks is not None and microjoules_per_tick is not None:
                readings["energy_j"] = ticks * microjoules_per_tick / 1e6
        except amdsmi.AmdSmiException as error:
            if not readings:
                raise SensorError(
                    "the GPU cannot be read any more",
                    given=str(error),
                    hint="see whether `amd-smi monitor` still reads it",
                ) from error
        return readings

    return read


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if value >= _UNSUPPORTED and value in (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else float(value)


def _library() -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # amdsmi prints a message if ROCm's library is missing
            return import_module("amdsmi")
    except (ImportError, OSError, KeyError) as error:  # the wrapper raises what loading ROCm's library raises
        raise MissingDependencyError(
            "reading an AMD GPU's power needs amdsmi and ROCm's library", hint="pip install amdsmi, and install ROCm"
        ) from error
