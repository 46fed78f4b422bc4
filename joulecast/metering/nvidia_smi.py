"""NVIDIA GPUs, read through the log of `nvidia-smi`: if nvidia-ml-py is missing, and to check NVML's readings."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..errors import SensorError
from .samples import Reader

PERIOD_S = 0.02  # Time between two lines of its log.
_FORMAT = "--format=csv,noheader,nounits"
# Reading -> its name in nvidia-smi, and the factor that converts it to SI units.
_COLUMNS = {
    "power_w": ("power.draw", 1.0),
    "clock_mhz": ("clocks.sm", 1.0),
    "memory_clock_mhz": ("clocks.mem", 1.0),
    "temperature_c": ("temperature.gpu", 1.0),
    "throttle_reasons": ("clocks_throttle_reasons.active", 1.0),
    "utilization": ("utilization.gpu", 0.01),
}


def nvidia_smi(*arguments: str) -> str:
    """Run `nvidia-smi` and return its output.

    Raises SensorError: it is not installed, or fails; the error has its message.
    """
    result = subprocess.run([_program(), *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        said = (result.stdout + result.stderr).strip()
        raise SensorError(
            "nvidia-smi failed",
            given=said or f"exit code {result.returncode}",
            hint="run `nvidia-smi` by itself, and mend what it reports",
        )
    return result.stdout.strip()


def _program() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise SensorError("nvidia-smi is not installed", given="no such program", hint="install the NVIDIA driver")
    return program


def nvidia_smi_facts(index: int) -> dict[str, Any]:
    """Facts about a GPU from `nvidia-smi`: device, driver, highest clock, power limit.

    Raises SensorError: nvidia-smi is not installed, or does not know this GPU.
    """
    asked = nvidia_smi(f"--id={index}", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", _FORMAT)
    name, driver, clock, limit = (part.strip() for part in asked.splitlines()[-1].split(","))
    return {"device": name, "driver": driver, "max_clock_mhz": _number(clock), "power_limit_w": _number(limit)}


def open_reader(index: int) -> Reader:
    """The reader of a GPU: each reading is the next line of nvidia-smi's log, which it waits for.

    When this process ends, the pipe is closed, which ends nvidia-smi.
    """
    offset_s, last_s = time.time() - time.monotonic(), 0.0  # Its time stamps are those of the wall clock.
    columns = ",".join(["timestamp", *(name for name, _ in _COLUMNS.values())])
    process = subprocess.Popen(  # noqa: S603
        [_program(), f"--id={index}", f"--query-gpu={columns}", _FORMAT, f"--loop-ms={1e3 * PERIOD_S:.0f}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def read() -> Mapping[str, float]:
        nonlocal last_s
        line = process.stdout.readline() if process.stdout else ""
        stamp, *values = (part.strip() for part in line.split(","))
        try:
            moment = datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f")  # local
            readings = dict(zip(_COLUMNS, values, strict=True))
        except ValueError as error:
            raise SensorError(
                "nvidia-smi cannot read the GPU",
                given=line.strip() or "nvidia-smi ended",
                hint="see whether `nvidia-smi` still reads it",
            ) from error
        last_s = max(last_s, moment.timestamp() - offset_s)  # The wall clock may be set back.
        return {"time_s": last_s, **{name: _number(text) * _COLUMNS[name][1] for name, text in readings.items()}}

    return read


def _number(text: str) -> float:
    """A reading; NaN for `[N/A]`, `[Not Supported]` and the like."""
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return float("nan")
