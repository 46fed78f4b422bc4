"""The interface of power sensors that campaigns use, and the sensor that the sampler process polls.

A sensor samples power while it is entered as a context manager; `window` returns the samples of a loop. To add a
sensor, write a reader and add it to the table in sampler.py, or implement the Protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from . import nvidia_smi, nvml, powercap
from .sampler import PERIOD_S, ReaderSpec, Sampler
from .samples import Samples

_DEVICE = "device"  # Name of the only device that the sampler polls for a sensor.


class Sensor(Protocol):
    """Samples power while it is entered."""

    def __enter__(self) -> Self:
        """Start sampling."""

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""

    def facts(self) -> Mapping[str, Any]:
        """Facts for the card of a dataset: sensor, device, driver, power limit, period."""

    def window(self, start_s: float, end_s: float) -> Samples:
        """The samples between two moments in the past, in seconds of `time.monotonic`."""


class NoSensor:
    """Takes the place of a sensor if there is none: times are measured, and power is missing."""

    def __init__(self, reason: str = "") -> None:
        self._reason = reason

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def facts(self) -> Mapping[str, Any]:
        """The fact that there is no sensor, with the reason."""
        return {"sensor": "none" + (f" ({self._reason})" if self._reason else "")}

    def window(self, start_s: float, end_s: float) -> Samples:
        """No samples."""
        return Samples.of(np.empty(0))


class PolledSensor:
    """A sensor that the sampler process polls, so that reading it hardly disturbs the measured loop."""

    def __init__(self, reader: ReaderSpec, facts: Mapping[str, Any], period_s: float = PERIOD_S) -> None:
        self._facts = dict(facts)
        self._sampler = Sampler({_DEVICE: reader}, period_s)

    def facts(self) -> Mapping[str, Any]:
        """The facts that were given to the constructor."""
        return dict(self._facts)

    def __enter__(self) -> Self:
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.stop()

    def window(self, start_s: float, end_s: float) -> Samples:
        """The samples of a window in the past. Earlier samples are deleted.

        Raises:
            SensorError: The device was lost, or the sampler process ended.
        """
        return self._sampler.samples(_DEVICE, start_s).between(start_s, end_s)


def nvml_sensor(index: int = 0, period_s: float = PERIOD_S) -> PolledSensor:
    """The power sensor of an NVIDIA GPU.

    Raises MissingDependencyError: nvidia-ml-py is not installed. Raises SensorError: there is no driver or no such GPU,
    or the GPU has no power readings.
    """
    about = f"NVML: total-energy counter and power readings, polled every {1e3 * period_s:g} ms in a process of its own"
    facts = {"sensor": about, **nvml.nvml_facts(index)}
    return PolledSensor(ReaderSpec("nvml", {"index": index}), facts, period_s)


def nvidia_smi_sensor(index: int = 0) -> PolledSensor:
    """The power sensor of an NVIDIA GPU through `nvidia-smi`, without energy counter and instantaneous readings.

    Raises SensorError: nvidia-smi is not installed, or does not know this GPU.
    """
    about = f"nvidia-smi: power readings, logged every {1e3 * nvidia_smi.PERIOD_S:g} ms"
    facts = {"sensor": about, **nvidia_smi.nvidia_smi_facts(index)}
    # The period is 0 because each reading waits for the next line of nvidia-smi.
    return PolledSensor(ReaderSpec("nvidia-smi", {"index": index}), facts, period_s=0.0)


def powercap_sensor(folder: Path | None = None) -> PolledSensor:
    """The sum of the energy counters of all CPU packages and of their memory.

    Args:
        folder: The folder in which Linux shows the zones; None for the one that JOULECAST_POWERCAP names, or Linux's.

    Raises:
        SensorError: There is no counter, or this user may not read it.
    """
    folders = powercap.counted_zones(powercap.zones_folder() if folder is None else folder)
    facts = {"sensor": f"powercap: energy counters of {len(folders)} zones"}
    return PolledSensor(ReaderSpec("powercap", {"folders": [str(each) for each in folders]}), facts)
