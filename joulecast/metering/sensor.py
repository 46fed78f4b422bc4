"""What a campaign needs of a power sensor, and the sensor that the sampler process polls.

A sensor samples from the moment it is entered until it is left; `window` gives the samples of a loop. To add one (AMD,
say), write a reader and name it in readers.py, or implement the Protocol; the campaign needs no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from . import nvidia_smi, nvml, powercap
from .readers import ReaderSpec
from .sampler import PERIOD_S, Sampler
from .samples import Samples

_DEVICE = "device"  # The one that is polled.


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
    """A device without a power sensor: times are measured, power is missing.

    Args:
        reason: Why there is none.
    """

    def __init__(self, reason: str = "") -> None:
        self._reason = reason

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def facts(self) -> Mapping[str, Any]:
        """That there is none, and why."""
        return {"sensor": "none" + (f" ({self._reason})" if self._reason else "")}

    def window(self, start_s: float, end_s: float) -> Samples:
        """No samples."""
        return Samples.of(np.empty(0))


class PolledSensor:
    """A sensor that the sampler process polls, so that nothing disturbs the loop that is measured.

    Args:
        reader: What reads the device.
        facts: What the sensor is.
        period_s: Between two samples.
    """

    def __init__(self, reader: ReaderSpec, facts: Mapping[str, Any], period_s: float = PERIOD_S) -> None:
        self._facts = dict(facts)
        self._sampler = Sampler({_DEVICE: reader}, period_s)

    def facts(self) -> Mapping[str, Any]:
        """What was given when it was made."""
        return dict(self._facts)

    def __enter__(self) -> Self:
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sampler.stop()

    def window(self, start_s: float, end_s: float) -> Samples:
        """Samples of a window that has passed; those before it are forgotten.

        Raises:
            SensorError: The sampler ended, as when the GPU falls off the bus.
        """
        return self._sampler.samples(_DEVICE, start_s).between(start_s, end_s)


def nvml_sensor(index: int = 0, period_s: float = PERIOD_S) -> PolledSensor:
    """The power sensor of an NVIDIA GPU.

    Args:
        index: Which GPU, as NVML counts them.
        period_s: Between two samples.

    Raises:
        MissingDependencyError: nvidia-ml-py is not installed.
        SensorError: No driver, no such GPU, or a GPU without power readings.
    """
    what = f"NVML: total-energy counter and power readings, polled every {1e3 * period_s:g} ms in a process of its own"
    facts = {"sensor": what, **nvml.nvml_facts(index)}
    return PolledSensor(ReaderSpec("nvml", {"index": index}), facts, period_s)


def nvidia_smi_sensor(index: int = 0) -> PolledSensor:
    """The power sensor of an NVIDIA GPU through `nvidia-smi`; it has no energy counter and no instant reading.

    Args:
        index: Which GPU, as nvidia-smi counts them.

    Raises:
        SensorError: nvidia-smi is not there, or does not know this GPU.
    """
    what = f"nvidia-smi: power readings, logged every {1e3 * nvidia_smi.PERIOD_S:g} ms"
    facts = {"sensor": what, **nvidia_smi.nvidia_smi_facts(index)}
    return PolledSensor(ReaderSpec("nvidia-smi", {"index": index}), facts, period_s=0.0)  # a line makes it wait


def powercap_sensor(folder: Path = powercap.ZONES) -> PolledSensor:
    """The sum of the energy counters of all CPU packages and of their memory.

    Raises:
        SensorError: There are none, or they may not be read.
    """
    folders = powercap.counted_zones(folder)
    facts = {"sensor": f"powercap: energy counters of {len(folders)} zones"}
    return PolledSensor(ReaderSpec("powercap", {"folders": [str(each) for each in folders]}), facts)
