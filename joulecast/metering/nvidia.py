"""NVIDIA GPUs: through NVML (nvidia-ml-py), and by the log of `nvidia-smi` where that is missing, or as a check."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import ModuleType
from typing import Any

from ..errors import SensorError, needing
from .gpu_shares import ProcessReader
from .samples import Reader

_SLOW_EVERY = 10  # Clocks, temperature and the like change slowly and take longer to read than power.


@contextmanager
def opened(index: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Open NVML, and yield the module pynvml with the handle of a GPU; None in place of the handle without an index.

    Raises MissingDependencyError: nvidia-ml-py is not installed. Raises SensorError: there is no driver or no such GPU,
    or NVML raises an error while it is open.
    """
    with needing("reading a GPU's power needs nvidia-ml-py", "pip install nvidia-ml-py"):
        import pynvml
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
        yield nvml, None if index is None else nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        raise SensorError(
            "NVIDIA's driver does not answer" if index is None else "the power of this GPU cannot be read",
            given=str(error) if index is None else f"GPU {index}: {error}",
            hint="check `nvidia-smi`, or measure times only with --no-power",
        ) from error


def nvml_facts(index: int) -> dict[str, Any]:
    """Facts about a GPU (device, driver, highest clock, power limit). Raises the errors of `opened`."""
    with opened(index) as (nvml, handle):
        facts = {
            "device": nvml.nvmlDeviceGetName(handle),
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "max_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        }
        try:
            return {**facts, "power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3}
        except nvml.NVMLError_NotSupported:  # Boards of laptops and virtual GPUs have no limit.
            return facts


def gpu_count() -> int:
    """Number of GPUs that NVML finds. Raises the errors of `opened`."""
    with opened() as (nvml, _):
        return int(nvml.nvmlDeviceGetCount())


def is_partitioned(index: int) -> bool:
    """Whether a GPU is divided into MIG instances, whose power cannot be read separately."""
    with opened(index) as (nvml, handle):
        try:
            return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE)
        except nvml.NVMLError:
            return False


def open_nvml_processes(index: int) -> ProcessReader:
    """The reader of each process's use of a GPU: time of kernels since the last reading, and memory.

    Consumer boards and old drivers report only the memory, or nothing. Raises the errors of `opened`.
    """
    with opened(index) as (nvml, handle):
        errors = nvml.NVMLError, nvml.NVMLLibraryMismatchError
    seen_us = 0

    def read() -> Mapping[int, tuple[float | None, int | None]]:
        nonlocal seen_us
        busy: dict[int, float] = {}
        try:
            holders = {each.pid: each.usedGpuMemory for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        except errors:
            return {}
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, seen_us)
            seen_us = max((sample.timeStamp for sample in samples), default=seen_us)
            # Processes without recent kernels have no sample. Entries of process 0 are unused.
            busy = {**dict.fromkeys(holders, 0.0), **{each.pid: each.smUtil / 100 for each in samples if each.pid}}
        except nvml.NVMLError_NotFound:  # No kernel ran since the last reading.
            busy = dict.fromkeys(holders, 0.0)
        except errors:
            pass
        return {process: (busy.get(process), holders.get(process)) for process in {**holders, **busy}}

    return read


def open_nvml(index: int) -> Reader:
    """The reader of a GPU: power and energy each time, slowly changing values only every tenth time.

    Raises the errors of `opened`; reading raises SensorError if the GPU is lost.
    """
    with opened(index) as (nvml, handle):
        absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_UNKNOWN)

    def instant_w() -> float:
        value = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
        return float(value.value.uiVal) / 1e3

    fast: Mapping[str, Callable[[], float]] = {
        "energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "instant_w": instant_w,
    }
    slow: Mapping[str, Callable[[], float]] = {
        "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }

    def supported(readings: Mapping[str, Callable[[], float]]) -> dict[str, float]:
        """Name -> value of the readings that this GPU has."""
        found = {}
        for name, reading in readings.items():
            try:
                found[name] = float(reading())
            except (nvml.NVMLError_FunctionNotFound, nvml.NVMLLibraryMismatchError):  # The driver is too old for this.
                continue
            except nvml.NVMLError as error:
                if error.value not in absent:
                    hint = "see whether `nvidia-smi` still reads it"
                    raise SensorError("the GPU cannot be read any more", given=str(error), hint=hint) from error
        return found

    held: dict[str, float] = {}
    count = itertools.count()

    def read() -> Mapping[str, float]:
        nonlocal held
        if next(count) % _SLOW_EVERY == 0:
            held = supported(slow)
        time_s = time.monotonic()  # The counter is the first reading after this, so the time belongs to it.
        return {"time_s": time_s, **held, **supported(fast)}

    return read


LOG_PERIOD_S = 0.02  # Time between two lines of the log of nvidia-smi.
TABLE = "--format=csv,noheader,nounits"
"""Argument of `nvidia-smi` for values alone, separated by a comma and a space."""

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
    asked = nvidia_smi(f"--id={index}", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", TABLE)
    name, driver, clock, limit = (part.strip() for part in asked.splitlines()[-1].split(","))
    return {"device": name, "driver": driver, "max_clock_mhz": _number(clock), "power_limit_w": _number(limit)}


def open_nvidia_smi(index: int) -> Reader:
    """The reader of a GPU: each reading is the next line of nvidia-smi's log, which it waits for.

    When this process ends, the pipe is closed, which ends nvidia-smi.
    """
    offset_s, last_s = time.time() - time.monotonic(), 0.0  # Its time stamps are those of the wall clock.
    columns = ",".join(["timestamp", *(name for name, _ in _COLUMNS.values())])
    process = subprocess.Popen(  # noqa: S603
        [_program(), f"--id={index}", f"--query-gpu={columns}", TABLE, f"--loop-ms={1e3 * LOG_PERIOD_S:.0f}"],
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
