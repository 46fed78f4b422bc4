"""Power sensors: NVML in a process of its own, or none, said so.

A sensor samples from the moment it is entered until it is left; `window` gives the samples of a loop. To add one (AMD,
powercap), implement the Protocol; the campaign needs no more.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

import numpy as np

from ..errors import JoulecastError, MissingDependencyError
from .power import FIELDS, Samples

_PERIOD_S = 0.01  # Counters update every 10 to 100 ms; reading faster finds nothing new.
_KEPT = 200_000  # Samples until they are asked for: half an hour.
_PATIENCE_S = 30.0
# Reasons for which NVML holds the clock back that concern power or temperature: power cap, hardware slowdown,
# software and hardware thermal slowdown, hardware power brake (nvml.h, nvmlClocksThrottleReasons).
_THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


class SensorError(JoulecastError):
    """A power sensor cannot be opened, or was lost."""

    exit_code = 10


class Sensor(Protocol):
    """Samples power while it is entered."""

    def __enter__(self) -> Self:
        """Start sampling."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sampling."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What it reads, for the card of a dataset: sensor, device, driver, power limit, period."""
        ...

    def window(self, start_s: float, end_s: float) -> Samples:
        """The samples between two moments of `time.monotonic` that have passed."""
        ...


class NoSensor:
    """A device without a power sensor: times are measured, power is missing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def facts(self) -> Mapping[str, Any]:
        """That there is none."""
        return {"sensor": "none"}

    def window(self, start_s: float, end_s: float) -> Samples:
        """No samples."""
        return Samples(*(np.empty(0) for _ in FIELDS))


def _pynvml() -> ModuleType:
    try:
        import pynvml
    except ImportError as error:
        raise MissingDependencyError(
            "reading a GPU's power needs nvidia-ml-py", hint="pip install nvidia-ml-py"
        ) from error
    module: ModuleType = pynvml
    return module


class NvmlSensor:
    """The power sensor of an NVIDIA GPU.

    Args:
        index: Which GPU, as NVML counts them.

    Raises:
        MissingDependencyError: nvidia-ml-py is not installed.
        SensorError: No driver, no such GPU, or a GPU without power readings.
    """

    def __init__(self, index: int = 0) -> None:
        nvml = _pynvml()
        self._index = index
        try:
            nvml.nvmlInit()
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self._facts = {
                "sensor": "NVML: total-energy counter and power readings, polled every "
                f"{1e3 * _PERIOD_S:g} ms in a process of its own",
                "device": _text(nvml.nvmlDeviceGetName(handle)),
                "driver": _text(nvml.nvmlSystemGetDriverVersion()),
                "power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            }
        except nvml.NVMLError as error:
            raise SensorError(
                "the power of this GPU cannot be read",
                given=f"GPU {index}: {error}",
                hint="check `nvidia-smi`, or measure times only with --no-power",
            ) from error

    def facts(self) -> Mapping[str, Any]:
        """Name, driver and power limit of the GPU."""
        return dict(self._facts)

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")  # a fork would share CUDA's state with the sampler
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_sample, args=(self._index, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._ask(time.monotonic())  # comes back once the sampler runs
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
        self._connection.close()

    def window(self, start_s: float, end_s: float) -> Samples:
        """Samples of a window that has passed; those before it are forgotten.

        Raises:
            SensorError: The sampler ended, as when the GPU falls off the bus.
        """
        return self._ask(start_s).between(start_s, end_s)

    def _ask(self, since_s: float) -> Samples:
        try:
            self._connection.send(since_s)
            ready = self._connection.poll(_PATIENCE_S)
            answer = self._connection.recv() if ready else "no answer in time"
        except (EOFError, OSError):
            answer = "the sampler ended"
        if isinstance(answer, str):
            raise SensorError("the power sensor was lost", given=answer, hint="check `nvidia-smi`; go on with --resume")
        return Samples(*np.array(answer).T)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _sample(index: int, connection: Any) -> None:
    """Poll a GPU, and answer how it was since a moment, until told to stop; runs in a process of its own.

    Samples are kept here until they are asked for: nothing goes to the measuring process while its loop runs.
    """
    nvml = _pynvml()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    samples: deque[tuple[float, ...]] = deque(maxlen=_KEPT)
    lost: str | None = None
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the campaign ended, and says so itself
        while True:
            try:
                samples.append(_reading(nvml, handle))
            except nvml.NVMLError as error:
                lost = str(error)
            if connection.poll():
                since_s = connection.recv()
                if since_s is None:
                    return
                # The sample before holds until the first one of the window.
                while len(samples) > 1 and samples[1][0] <= since_s:
                    samples.popleft()
                connection.send(lost or list(samples))
            time.sleep(_PERIOD_S)


def _reading(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    """One sample in the order of FIELDS. A reading that the GPU does not have is NaN; a lost GPU raises."""

    def optional(read: Any) -> float:
        try:
            return float(read())
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_UNKNOWN):
                return float("nan")
            raise

    reasons = optional(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return (
        time.monotonic(),
        optional(lambda: nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3,
        optional(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3,
        optional(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        optional(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        reasons if np.isnan(reasons) else float(bool(int(reasons) & _THROTTLING)),
    )
