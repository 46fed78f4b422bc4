"""NVIDIA GPUs, read through NVML (nvidia-ml-py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ..errors import SensorError, needing
from .gpu_shares import ProcessReader, ProcessUse
from .samples import Reader

_SLOW_EVERY = 10  # Clocks, temperature and the like change slowly and take longer to read than power.


def pynvml() -> ModuleType:
    """Import the module pynvml of nvidia-ml-py. Raises MissingDependencyError: it is not installed."""
    with needing("reading a GPU's power needs nvidia-ml-py", "pip install nvidia-ml-py"):
        import pynvml
    module: ModuleType = pynvml
    return module


@contextmanager
def opened(index: int) -> Iterator[tuple[ModuleType, Any]]:
    """Open NVML, and yield it with the handle of a GPU.

    Raises MissingDependencyError: nvidia-ml-py is not installed. Raises SensorError: there is no driver or no such GPU,
    or NVML raises an error while it is open.
    """
    nvml = pynvml()
    try:
        nvml.nvmlInit()
        yield nvml, nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        raise SensorError(
            "the power of this GPU cannot be read",
            given=f"GPU {index}: {error}",
            hint="check `nvidia-smi`, or measure times only with --no-power",
        ) from error


def nvml_facts(index: int) -> dict[str, Any]:
    """Facts about a GPU (device, driver, highest clock, power limit), after checking that it can be read.

    Raises MissingDependencyError: nvidia-ml-py is not installed. Raises SensorError: there is no driver or no such GPU.
    """
    with opened(index) as (nvml, handle):
        facts = {
            "device": _text(nvml.nvmlDeviceGetName(handle)),
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
            "max_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        }
        try:
            return {**facts, "power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3}
        except nvml.NVMLError_NotSupported:  # Boards of laptops and virtual GPUs have no limit.
            return facts


def gpu_count() -> int:
    """Number of GPUs that NVML finds.

    Raises MissingDependencyError: nvidia-ml-py is not installed. Raises SensorError: there is no driver.
    """
    nvml = pynvml()
    try:
        nvml.nvmlInit()
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise SensorError("NVIDIA's driver does not answer", given=str(error), hint="check `nvidia-smi`") from error


def is_partitioned(index: int) -> bool:
    """Whether a GPU is divided into MIG instances, whose power cannot be read separately."""
    with opened(index) as (nvml, handle):
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(handle)
        except nvml.NVMLError:
            return False
        return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def open_reader(index: int) -> Reader:
    """The reader of a GPU, by NVML's index. Raises MissingDependencyError, SensorError: it cannot be read."""
    with opened(index) as (nvml, handle):
        return _Reader(nvml, handle)


def open_process_reader(index: int) -> ProcessReader:
    """The reader of each process's use of a GPU, by NVML's index: time of kernels since the last reading, and memory.

    Raises MissingDependencyError, SensorError: it cannot be read.
    """
    with opened(index) as (nvml, handle):
        return _ProcessReader(nvml, handle)


class _ProcessReader:
    """Reads the use of a GPU by each process. Consumer boards and old drivers report only their memory, or nothing."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._seen_us = 0

    def __call__(self) -> Mapping[int, ProcessUse]:
        nvml = self._nvml
        try:
            holders = {each.pid: each.usedGpuMemory for each in nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)}
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
            return {}
        busy: dict[int, float] = {}
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_us)
            self._seen_us = max((sample.timeStamp for sample in samples), default=self._seen_us)
            # Processes without recent kernels have no sample. Entries of process 0 are unused.
            busy = {**dict.fromkeys(holders, 0.0), **{each.pid: each.smUtil / 100 for each in samples if each.pid}}
        except nvml.NVMLError_NotFound:  # No kernel ran since the last reading.
            busy = dict.fromkeys(holders, 0.0)
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
            busy = {}
        return {process: ProcessUse(busy.get(process), holders.get(process)) for process in {**holders, **busy}}


class _Reader:
    """Reads a GPU: power and energy each time, slowly changing values only every tenth time."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._fast: Mapping[str, Callable[[], float]] = {
            "energy_j": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "instant_w": lambda: _field(nvml, handle, nvml.NVML_FI_DEV_POWER_INSTANT) / 1e3,
        }
        self._slow: Mapping[str, Callable[[], float]] = {
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
        self._held: dict[str, float] = {}
        self._count = 0

    def __call__(self) -> Mapping[str, float]:
        if self._count % _SLOW_EVERY == 0:
            self._held = self._read(self._slow)
        self._count += 1
        time_s = time.monotonic()  # The counter is the first reading after this, so the time belongs to it.
        return {"time_s": time_s, **self._held, **self._read(self._fast)}

    def _read(self, readings: Mapping[str, Callable[[], float]]) -> dict[str, float]:
        """Read what this GPU supports.

        Returns name -> value; without the readings that the GPU does not have. Raises SensorError: the GPU is lost.
        """
        nvml, found = self._nvml, {}
        absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_UNKNOWN)
        for name, read in readings.items():
            try:
                found[name] = float(read())
            except (nvml.NVMLError_FunctionNotFound, nvml.NVMLLibraryMismatchError):  # The driver is too old for this.
                continue
            except nvml.NVMLError as error:
                if error.value not in absent:
                    raise SensorError(
                        "the GPU cannot be read any more",
                        given=str(error),
                        hint="see whether `nvidia-smi` still reads it",
                    ) from error
        return found


def _field(nvml: ModuleType, handle: Any, identifier: int) -> float:
    value = nvml.nvmlDeviceGetFieldValues(handle, [identifier])[0]
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(value.nvmlReturn)
    return float(value.value.uiVal)
