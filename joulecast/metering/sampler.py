"""Sampler: one process that polls all devices of a machine, so that nothing disturbs what is measured.

The code of that process is in polling.py. It is a program of its own rather than a fork of the
measured one, which would share CUDA's state, or a child of multiprocessing, which would import the user's script again.
Requests and answers are lines of JSON over its standard input and output:

    {"do": "samples", "device": "gpu0", "since_s": 12.5}   -> {"samples": [[...], ...]} or {"lost": "why"}
    {"do": "totals"}                                        -> {"devices": {"gpu0": {"energy_j": ..., "power_w": ...}}}
    {"do": "windows", "windows": [["step", 12.5, 12.9]]}    no answer; they go into the recording
    {"do": "mark"}                                          no answer; all devices are read at once, and closely
    {"do": "flush"}                                         -> {} once everything that was sampled is on disk
    {"do": "end", "exit_code": 0}                           the recording is closed, the process ends

It also ends, and closes its recording, when its standard input closes: the measured program is gone.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SensorError
from .readers import ReaderSpec
from .recording import Window
from .samples import Samples

PERIOD_S = 0.01
"""Seconds between samples of a campaign: counters update every 10 to 100 ms, and reading faster finds nothing new."""

_PACKAGES = str(Path(__file__).resolve().parents[2])  # Where this very package lies.
_PATIENCE_S = 30.0


class Sampler:
    """Polls devices in a process of its own while it is entered.

    Args:
        devices: Name of a device -> its reader.
        period_s: Seconds between two samples of a device; 0 if the reader itself waits.
        recording: Path of the recording; None to keep samples in memory until they are requested.
        machine: First line of the recording.
        process: Id of the process whose share of the machine is recorded, with its children; None for no process.

    Raises:
        SensorError: A device cannot be opened; raised when the sampler is entered.
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
            "devices": {name: spec.to_dict() for name, spec in devices.items()},
            "period_s": period_s,
            "recording": None if recording is None else str(recording),
            "machine": dict(machine or {}),
            "process": process,
        }
        self._telling = threading.Lock()

    def start(self) -> None:
        """Start the process, and come back when every device was read once.

        Raises:
            SensorError: A device cannot be opened.
        """
        self._process = subprocess.Popen(
            # -P: a file of the measured program's folder must not stand for a module of the sampler.
            [sys.executable, "-P", "-m", "joulecast.metering"],
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
            self.tell({"do": "end", "exit_code": exit_code})
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def samples(self, device: str, since_s: float) -> Samples:
        """Samples of a device from a moment on, with the one before it. Earlier ones are forgotten.

        Raises:
            SensorError: The device was lost, or the sampler ended.
        """
        answer = self.ask({"do": "samples", "device": device, "since_s": since_s})
        if "lost" in answer:
            raise _lost(answer["lost"])
        rows = np.array(answer["samples"], dtype=float)  # None becomes NaN
        return Samples(*rows.T) if len(rows) else Samples.of(np.empty(0))

    def windows(self, windows: Sequence[Window]) -> None:
        """Add windows of the program to the recording."""
        self.tell({"do": "windows", "windows": windows})

    def mark(self) -> None:
        """Read all devices now, and look for the next updates of their counters."""
        self.tell({"do": "mark"})

    def totals(self) -> dict[str, dict[str, float | None]]:
        """Joules so far and last power of each device; None where it is not known."""
        found: dict[str, dict[str, float | None]] = self.ask({"do": "totals"})["devices"]
        return found

    def flush(self) -> None:
        """Wait until all samples so far are on disk."""
        self.ask({"do": "flush"})

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            SensorError: The sampler ended, or does not answer.
        """
        try:
            self.tell(request)
            output = self._process.stdout
            ready = output is not None and select.select([output], [], [], _PATIENCE_S)[0]
            line = output.readline() if output is not None and ready else ""
        except OSError:
            line = ""
        if not line:
            raise _lost("the sampler ended" if self._process.poll() is not None else "no answer in time")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, request: Mapping[str, Any]) -> None:
        """Send a request that has no answer."""
        with self._telling:  # windows may close in several threads
            self._input.write(json.dumps(request) + "\n")
            self._input.flush()

    @property
    def _input(self) -> Any:
        return self._process.stdin


def _lost(why: str) -> SensorError:
    return SensorError("the power sensor was lost", given=why, hint="check `nvidia-smi`; go on with --resume")
