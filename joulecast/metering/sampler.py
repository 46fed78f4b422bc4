"""Sampler: a separate process that polls all devices of a machine, so that it hardly disturbs the measured program.

The code of that process is in polling.py. It is started as a program of its own. A fork of the measured program would
share CUDA's state, and a child of multiprocessing would import the user's script again. Requests and answers are lines
of JSON over its standard input and output:

    {"do": "samples", "device": "gpu0", "since_s": 12.5}   -> {"samples": [[...], ...]} or {"lost": "why"}
    {"do": "totals"}                                        -> {"devices": {"gpu0": {"energy_j": ..., "power_w": ...}}}
    {"do": "windows", "windows": [["step", 12.5, 12.9]]}    no answer; they go into the recording
    {"do": "mark"}                                          no answer; all devices are read at once, and closely
    {"do": "flush"}                                         -> {} once everything that was sampled is on disk
    {"do": "end", "exit_code": 0}                           the recording is closed, the process ends

When the measured program ends for any reason, the sampler's standard input closes; then it closes the recording and
ends, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import SensorError
from . import amd, cpu, estimated_power, nvidia
from .gpu_shares import ProcessReader
from .samples import Reader, Samples

READERS: Mapping[str, Callable[..., Reader]] = {
    "nvml": nvidia.open_nvml,
    "nvidia-smi": nvidia.open_nvidia_smi,
    "amdsmi": amd.open_reader,
    "amd-sysfs": amd.open_driver_reader,
    "powercap": cpu.open_zones,
    "counting-program": cpu.open_program,
    "memory-model": estimated_power.open_memory_reader,
    "cpu-estimate": estimated_power.open_cpu_reader,
    "gpu-estimate": estimated_power.open_gpu_reader,
}
"""Name -> function that makes the reader of one device from its settings. Called in the sampler process."""

PROCESS_READERS: Mapping[str, Callable[..., ProcessReader]] = {"nvml": nvidia.open_nvml_processes}
"""Name of a reader -> function that makes a reader of each process's use of the device. Other devices have none."""

_WAITING = frozenset({"nvidia-smi", "counting-program"})  # Readings wait for the next line of output of a program.


@dataclass(frozen=True)
class ReaderSpec:
    """A reader before it is opened: plain values, so that it can be sent to another process."""

    reader: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Reader:
        """Make the reader.

        Raises SensorError: the device cannot be read. Raises MissingDependencyError: a library that it needs is not
        installed.
        """
        return READERS[self.reader](**self.settings)

    @property
    def waits(self) -> bool:
        """Whether a reading waits for the sensor, so that we cannot choose the moment of a reading."""
        return self.reader in _WAITING


PERIOD_S = 0.01
"""Seconds between samples of a campaign: counters update every 10 to 100 ms, and reading faster finds nothing new."""

_PACKAGES = str(Path(__file__).resolve().parents[2])  # The folder that contains this package.
_TIMEOUT_S = 30.0  # Longest wait for an answer, and for the end of the process.


class Sampler:
    """Polls devices in a process of its own while it is entered.

    Raises SensorError: a device cannot be opened; raised when the sampler is entered.

    Args:
        period_s: Seconds between two samples of a device; 0 if the reader itself waits.
        recording: Path of the recording; None to keep samples in memory until they are requested.
        process: Id of the process whose share of the machine is recorded, with its children; None for no process.
    """

    def __init__(
        self,
        devices: Mapping[str, ReaderSpec],
        period_s: float = PERIOD_S,
        recording: Path | None = None,
        machine: Mapping[str, Any] | None = None,
        process: int | None = None,
    ) -> None:
        self._settings = {
            "devices": {name: vars(spec) for name, spec in devices.items()},
            "period_s": period_s,
            "recording": None if recording is None else str(recording),
            "machine": dict(machine or {}),
            "process": process,
        }
        self._writing, self._asking = threading.Lock(), threading.Lock()

    def start(self) -> None:
        """Start the process, and return when every device has been read once.

        Raises SensorError: a device cannot be opened.
        """
        self._process = subprocess.Popen(
            # With -P, a file in the working folder cannot be imported in place of a module that the sampler needs.
            [sys.executable, "-P", "-m", "joulecast.metering.polling"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))},
        )
        answer = self.ask(self._settings)
        if "error" in answer:
            self.stop()
            raise SensorError("a device cannot be read", given=answer["error"], hint=answer.get("hint"))

    def stop(self, exit_code: int | None = None) -> None:
        """End the process, after it has written all samples to the recording."""
        with suppress(OSError, ValueError):
            self.send({"do": "end", "exit_code": exit_code})
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(timeout=_TIMEOUT_S)  # Writing the last block to a busy disk may take seconds.
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises SensorError: the sampler ended, or does not answer."""
        lines: list[str] = []
        output: Any = self._process.stdout
        # A thread, because Windows cannot wait for a pipe until a moment.
        reading = threading.Thread(target=lambda: lines.append(output.readline()), daemon=True)
        with self._asking, suppress(OSError):  # Each thread reads its own answer.
            self.send(request)
            reading.start()
            reading.join(_TIMEOUT_S)
        if not any(lines):
            raise _lost("the sampler ended" if self._process.poll() is not None else "no answer in time")
        answer: dict[str, Any] = json.loads(lines[0])
        return answer

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting for an answer."""
        with self._writing:  # Several threads may close windows at the same time.
            pipe: Any = self._process.stdin
            pipe.write(json.dumps(request) + "\n")
            pipe.flush()


def _lost(reason: str) -> SensorError:
    hint = "check `nvidia-smi`; then continue an interrupted campaign with --resume"
    return SensorError("the power sensor was lost", given=reason, hint=hint)


_DEVICE = "device"  # Name of the only device that the sampler polls for a sensor.


@dataclass
class Sensor:
    """Reads the power of a campaign's device while it is entered, in a process that hardly disturbs the measured loop.

    Args:
        reader: Reader of the device; None where there is no sensor, so that times are measured and power is missing.
        facts: What the card of a dataset says of it.
        period_s: Seconds between two samples; 0 if the reader itself waits.
    """

    reader: ReaderSpec | None = None
    facts: Mapping[str, Any] = field(default_factory=lambda: {"sensor": "none"})
    period_s: float = PERIOD_S

    def __enter__(self) -> Self:
        if self.reader is not None:
            self._sampler = Sampler({_DEVICE: self.reader}, self.period_s)
            self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.reader is not None:
            self._sampler.stop()

    def window(self, start_s: float, end_s: float) -> Samples:
        """The samples of a window in the past, none without a reader. Earlier samples are deleted.

        Raises SensorError: the device was lost, or the sampler process ended.
        """
        if self.reader is None:
            return Samples.of(np.empty(0))
        answer = self._sampler.ask({"do": "samples", "device": _DEVICE, "since_s": start_s})
        if "lost" in answer:
            raise _lost(answer["lost"])
        rows = np.array(answer["samples"], dtype=float)  # None becomes NaN
        return Samples(*rows.T).between(start_s, end_s) if len(rows) else Samples.of(np.empty(0))


def nvml_sensor(index: int = 0, period_s: float = PERIOD_S) -> Sensor:
    """The power sensor of an NVIDIA GPU.

    Raises MissingDependencyError: nvidia-ml-py is not installed. Raises SensorError: there is no driver or no such GPU,
    or the GPU has no power readings.
    """
    about = f"NVML: total-energy counter and power readings, polled every {1e3 * period_s:g} ms in a process of its own"
    facts = {"sensor": about, **nvidia.nvml_facts(index)}
    return Sensor(ReaderSpec("nvml", {"index": index}), facts, period_s)


def nvidia_smi_sensor(index: int = 0) -> Sensor:
    """The power sensor of an NVIDIA GPU through `nvidia-smi`, without energy counter and instantaneous readings.

    Raises SensorError: nvidia-smi is not installed, or does not know this GPU.
    """
    about = f"nvidia-smi: power readings, logged every {1e3 * nvidia.LOG_PERIOD_S:g} ms"
    facts = {"sensor": about, **nvidia.nvidia_smi_facts(index)}
    # The period is 0 because each reading waits for the next line of nvidia-smi.
    return Sensor(ReaderSpec("nvidia-smi", {"index": index}), facts, period_s=0.0)


def powercap_sensor(folder: Path | None = None) -> Sensor:
    """The sum of the energy counters of all CPU packages and of their memory.

    Raises SensorError: there is no counter, or this user may not read it.

    Args:
        folder: The folder in which Linux shows the zones; None for the one that JOULECAST_POWERCAP names, or Linux's.
    """
    folder = cpu.zones_folder() if folder is None else folder
    folders = [str(zone.folder) for zone in cpu.zones(folder) if zone.counted]
    if not folders:
        raise SensorError(
            "this machine shows no energy counter of the CPU",
            given=str(folder),
            allowed="a folder with zones of RAPL",
            hint="virtual machines and containers often hide them: measure on the host",
        )
    spec = ReaderSpec("powercap", {"folders": folders})
    spec.open()
    return Sensor(spec, {"sensor": f"powercap: energy counters of {len(folders)} zones"})
