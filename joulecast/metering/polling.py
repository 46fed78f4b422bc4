"""What runs in the sampler process: polls devices, answers requests and writes the recording; see sampler.py."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, JoulecastError, SensorError
from .processes import ProcessTree
from .readers import ReaderSpec
from .recording import Window, Writer, block_of
from .samples import FIELDS, Samples

BLOCK_S = 1.0
"""How often a recording is synced to disk: what a kill can lose."""

_KEPT = 200_000  # Samples of a device until they are asked for: half an hour of a campaign.
_CLOCK_JUMP_S = 1.0  # The wall clock against the monotonic one.


class _Device:
    """A device that is polled: its last samples, and why it was lost."""

    def __init__(self, name: str, spec: ReaderSpec) -> None:
        self.name, self.read = name, spec.open()
        self.samples: deque[tuple[float, ...]] = deque(maxlen=_KEPT)
        self.lost: str | None = None
        self.energy_j = 0.0
        self.written_s = -math.inf

    def poll(self) -> None:
        """Read the device once, unless it was lost."""
        if self.lost is not None:
            return
        try:
            readings = {"time_s": time.monotonic(), **self.read()}
        except SensorError as error:
            self.lost = str(error.given or error.what)
            return
        sample = tuple(readings.get(name, float("nan")) for name in FIELDS)
        self._add_up(sample)
        self.samples.append(sample)

    def _add_up(self, sample: tuple[float, ...]) -> None:
        """A running total for people to look at; results are computed from the samples."""
        if self.samples:
            now, before = dict(zip(FIELDS, sample, strict=True)), dict(zip(FIELDS, self.samples[-1], strict=True))
            counted = now["energy_j"] - before["energy_j"]
            integrated = before["power_w"] * (now["time_s"] - before["time_s"])
            self.energy_j += counted if counted >= 0 else integrated if integrated == integrated else 0.0

    def total(self) -> dict[str, float | None]:
        """Joules so far, and the last power."""
        last = dict(zip(FIELDS, self.samples[-1], strict=True)) if self.samples else {}
        power_w = last.get("power_w", float("nan"))
        return {"energy_j": self.energy_j, "power_w": None if power_w != power_w else power_w}

    def block(self) -> list[Mapping[str, Any]]:
        """A line of what was sampled since the last one; none where nothing was."""
        fresh = [sample for sample in self.samples if sample[0] > self.written_s]
        if not fresh:
            return []
        self.written_s = fresh[-1][0]
        while len(self.samples) > 1:  # the running total goes on from the last one
            self.samples.popleft()
        return [block_of(self.name, Samples(*np.array(fresh).T))]

    def since(self, since_s: float) -> dict[str, Any]:
        """The answer to a request for samples."""
        if self.lost is not None:
            return {"lost": self.lost}
        # The sample before holds until the first one of the window.
        while len(self.samples) > 1 and self.samples[1][0] <= since_s:
            self.samples.popleft()
        return {"samples": [[None if v != v else v for v in sample] for sample in self.samples]}


class _Recorder:
    """Writes what was sampled since the last block."""

    def __init__(self, writer: Writer, devices: Sequence[_Device], process: int | None) -> None:
        self.writer, self.devices = writer, devices
        self.tree = None if process is None else ProcessTree(process)
        self.windows: list[Window] = []
        self.told_lost: set[str] = set()
        self.told_full = False
        self.unwritten: list[Mapping[str, Any]] = []
        self.last_s = time.monotonic()
        self.offset_s = time.time() - time.monotonic()

    def write(self) -> None:
        """Put a block on disk: samples, windows, events and shares."""
        records = self.unwritten
        for device in self.devices:
            records += device.block()
            if device.lost is not None and device.name not in self.told_lost:
                self.told_lost.add(device.name)
                records.append(_event(f"lost: {device.lost}", device.name))
        if self.windows:
            records.append({"kind": "windows", "windows": self.windows})
            self.windows = []
        offset_s = time.time() - time.monotonic()
        if abs(offset_s - self.offset_s) > _CLOCK_JUMP_S:
            records.append(_event(f"the wall clock jumped by {offset_s - self.offset_s:+.1f} s"))
            self.offset_s = offset_s
        if self.tree is not None:
            records.append({"kind": "shares", "time_s": time.monotonic(), **self.tree.shares()})
        self.append(*records)
        self.last_s = time.monotonic()

    def append(self, *records: Mapping[str, Any]) -> None:
        """Put records on disk; where it takes no more, say so, and try again with the next block."""
        self.unwritten = []
        try:
            self.writer.write(*records)
        except InputError as error:
            self.unwritten = list(records)
            if not self.told_full:
                sys.stderr.write(f"{error}\n")
            self.told_full = True


def _event(what: str, device: str | None = None) -> dict[str, Any]:
    return {"kind": "event", "time_s": time.monotonic(), "device": device, "what": what}


def main() -> None:
    """Poll until told to stop; what runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; who measures says when to stop
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests = _Requests()
    settings = next(iter(requests.wait(None)))
    try:
        devices = [_Device(name, ReaderSpec.from_json(spec)) for name, spec in settings["devices"].items()]
        for device in devices:
            device.poll()
        start_s = time.monotonic()
        recorder = None
        if settings["recording"] is not None:
            writer = Writer(Path(settings["recording"]), {**settings["machine"], "start_s": start_s})
            recorder = _Recorder(writer, devices, settings["process"])
    except JoulecastError as error:
        _answer({"error": f"{error.what}: {error.given}", "hint": error.hint})
        return
    _answer({})
    _poll(devices, recorder, settings["period_s"], requests)


def _poll(devices: Sequence[_Device], recorder: _Recorder | None, period_s: float, requests: _Requests) -> None:
    exit_code, next_s, polled_s = None, time.monotonic() + period_s, time.monotonic()
    while True:
        wait_s = max(0.0, next_s - time.monotonic())
        for request in requests.wait(wait_s):
            if request["do"] == "end":
                exit_code = request["exit_code"]
                requests.ended = True
                break
            _serve(request, devices, recorder)
        now = time.monotonic()
        if requests.ended or now >= next_s:
            for device in devices:
                device.poll()
            polled_s = time.monotonic()
            # Late once, as when the machine slept, is no reason to hurry after it.
            next_s = max(next_s + period_s, now)
        if recorder is not None and (requests.ended or now - recorder.last_s >= BLOCK_S):
            recorder.write()
        if requests.ended:
            break
    if recorder is not None:
        recorder.append(*recorder.unwritten, {"kind": "end", "time_s": polled_s, "exit_code": exit_code})


def _serve(request: Mapping[str, Any], devices: Sequence[_Device], recorder: _Recorder | None) -> None:
    if request["do"] == "samples":
        _answer(next(device for device in devices if device.name == request["device"]).since(request["since_s"]))
    elif request["do"] == "totals":
        _answer({"devices": {device.name: device.total() for device in devices}})
    elif request["do"] == "windows" and recorder is not None:
        recorder.windows += [(name, start, end) for name, start, end in request["windows"]]
    elif request["do"] == "flush":
        for device in devices:
            device.poll()
        if recorder is not None:
            recorder.write()
        _answer({})


def _answer(value: Mapping[str, Any]) -> None:
    with suppress(OSError):  # who asked is gone
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


class _Requests:
    """Lines from standard input, without ever waiting longer than asked."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""

    def wait(self, seconds: float | None) -> Iterable[dict[str, Any]]:
        """The requests that have come; waits for the first so many seconds, None for as long as it takes."""
        if not select.select([0], [], [], seconds)[0]:
            return []
        text = os.read(0, 1 << 20)
        if not text:
            self.ended = True
            return []
        *lines, self._rest = (self._rest + text).split(b"\n")
        while not lines and seconds is None and not self.ended:
            return self.wait(None)
        return [json.loads(line) for line in lines]
