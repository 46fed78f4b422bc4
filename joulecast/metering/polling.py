"""The sampler process: polls devices, answers requests and writes the recording; `sampler.Sampler` starts it."""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, JoulecastError, SensorError
from .gpu_shares import GpuShare, ProcessReader, ProcessTree
from .recording import Window, Writer, block_of
from .sampler import PROCESS_READERS, ReaderSpec
from .samples import RANGES, Reader, Samples, is_possible_next

# PolledDevice: one device in the sampler process, with its recent samples, and the reason if it was lost.

_MOST_SAMPLES = 200_000  # Held in memory until they are requested: half an hour of a campaign.


class PolledDevice:
    """A device that is polled.

    Args:
        waits: Whether a reading waits for the sensor, so that the moment of a reading cannot be chosen.
    """

    def __init__(
        self, name: str, read: Reader, *, waits: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.waits = name, waits
        self._read, self._clock = read, clock
        self.samples: deque[tuple[float, ...]] = deque(maxlen=_MOST_SAMPLES)
        self.lost: str | None = None
        self.energy_j = 0.0
        self._written_s = -math.inf
        self._last: dict[str, float] = {}  # the last sample, by name
        self._counter_j = 0.0  # the last value that was possible

    def poll(self) -> bool:
        """Read the device once, unless it was lost. Returns whether its energy counter has changed."""
        if self.lost is not None:
            return False
        try:
            readings = {"time_s": self._clock(), **self._read()}
        except SensorError as error:
            self.lost = str(error.given or error.what)
            return False
        before, now = self._last, {}
        for name, (low, high) in RANGES.items():
            # A reading that no sensor can have is missing, and must not spoil the others.
            value = readings.get(name, math.nan)
            now[name] = value if low <= value <= high else math.nan
        if now["energy_j"] >= 0:
            if is_possible_next(now["energy_j"], self._counter_j):
                self._counter_j = now["energy_j"]
            else:
                now["energy_j"] = math.nan
        self.samples.append(tuple(now.values()))
        self._last = now
        if not before:
            return False
        # The running total for the live display; results are computed from the samples.
        counted_j = now["energy_j"] - before["energy_j"]
        integrated_j = before["power_w"] * (now["time_s"] - before["time_s"])
        self.energy_j += counted_j if counted_j >= 0 else integrated_j if integrated_j == integrated_j else 0.0
        return now["energy_j"] != before["energy_j"]

    @property
    def has_counter(self) -> bool:
        """Whether it can still be read and its last reading included an energy counter."""
        return self.lost is None and not math.isnan(self._last.get("energy_j", math.nan))

    def total(self) -> dict[str, float | None]:
        """Joules used so far, and the last power in watts."""
        power_w = self._last.get("power_w", math.nan)
        return {"energy_j": self.energy_j, "power_w": None if power_w != power_w else power_w}

    def block(self) -> list[Mapping[str, Any]]:
        """A line with the samples since the last such line; an empty list if there are none."""
        fresh = [sample for sample in self.samples if sample[0] > self._written_s]
        if not fresh:
            return []
        self._written_s = fresh[-1][0]
        while len(self.samples) > 1:  # the last one is needed for the running total
            self.samples.popleft()
        return [block_of(self.name, Samples(*np.array(fresh).T))]

    def since(self, since_s: float) -> dict[str, Any]:
        """Answer a request: all samples since a moment, and the last one before it, which is valid until the next."""
        if self.lost is not None:
            return {"lost": self.lost}
        while len(self.samples) > 1 and self.samples[1][0] <= since_s:
            self.samples.popleft()
        return {"samples": [[None if v != v else v for v in sample] for sample in self.samples]}


BLOCK_S = 1.0
"""Seconds between two syncs of a recording to disk, which is the most that a kill can lose."""

_CLOCK_JUMP_S = 1.0  # Change of the wall clock relative to the monotonic clock.
_LOOK_S = 0.004  # Time between two readings of a close look.
_UPDATES = 2  # Number of updates that are needed to find the moment and the period of a counter's updates.
_LONGEST_LOOK_S = 0.25  # Time for two updates of the slowest counters; a counter may also not update at all.
_WINDOWS_IN_LINE = 2000  # Lines of a recording are short, so that whoever reads one needs little memory.
_LOOK_EVERY_S = 0.9  # More frequent looks would disturb the measured program.

Clock = Callable[[], float]


class CloseLook:
    """Polls energy counters every few milliseconds until each has been updated a few times.

    A counter may update only every 100 ms, so the value of a regular reading may be that old. When a window opens or
    closes, a close look finds the moments of the updates, and with them the energy up to the end of the window.
    """

    def __init__(self, devices: Sequence[PolledDevice], clock: Clock) -> None:
        self._devices, self._clock = devices, clock
        self._updates_left: dict[str, int] = {}
        self._until_s = self._again_s = -math.inf
        self.next_s = math.inf

    def begin(self, *, at_once: bool = False) -> None:
        """Begin a look, unless the last one was only a moment ago.

        Args:
            at_once: Whether to begin in any case, and without delaying the next look. For the first and the last look
                of a recording.
        """
        now_s = self._clock()
        if now_s < self._again_s and not at_once:
            return
        counters = [device.name for device in self._devices if device.has_counter and not device.waits]
        self._updates_left = dict.fromkeys(counters, _UPDATES)
        self._until_s = now_s + _LONGEST_LOOK_S
        if not at_once:
            self._again_s = now_s + _LOOK_EVERY_S
        self.next_s = now_s + _LOOK_S if self._updates_left else math.inf

    def poll(self) -> None:
        """Read the counters that have not been updated often enough yet."""
        for device in self._devices:
            if device.name in self._updates_left and device.poll():
                self._updates_left[device.name] -= 1
        self._updates_left = {name: left for name, left in self._updates_left.items() if left > 0}
        now_s = self._clock()
        self.next_s = now_s + _LOOK_S if self._updates_left and now_s < self._until_s else math.inf


@dataclass
class Recorder:
    """Writes the samples since the last block to the recording."""

    writer: Writer
    devices: Sequence[PolledDevice]
    tree: ProcessTree | None
    clock: Clock = time.monotonic
    gpu_processes: Mapping[str, ProcessReader] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    told_lost: set[str] = field(default_factory=set)
    told_full: bool = False
    unwritten: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last_s = self.clock()
        self.offset_s = time.time() - time.monotonic()

    def write(self) -> None:
        """Write a block to disk: samples, windows, events and shares."""
        records: list[Mapping[str, Any]] = []
        event = {"kind": "event", "time_s": self.clock()}
        for device in self.devices:
            records += device.block()
            if device.lost is not None and device.name not in self.told_lost:
                self.told_lost.add(device.name)
                records.append({**event, "device": device.name, "what": f"lost: {device.lost}"})
        for first in range(0, len(self.windows), _WINDOWS_IN_LINE):
            records.append({"kind": "windows", "windows": self.windows[first : first + _WINDOWS_IN_LINE]})
        self.windows = []
        offset_s = time.time() - time.monotonic()
        if abs(offset_s - self.offset_s) > _CLOCK_JUMP_S:
            jump = f"the wall clock jumped by {offset_s - self.offset_s:+.1f} s"
            records.append({**event, "device": None, "what": jump})
            self.offset_s = offset_s
        if self.tree is not None:
            shares = self.tree.shares()
            gpus = {
                name: asdict(GpuShare.of(read(), self.tree.members, self.tree.visible))
                for name, read in self.gpu_processes.items()
            }
            records.append({"kind": "shares", "time_s": self.clock(), **shares, **({"gpus": gpus} if gpus else {})})
        self.append(*records)
        self.last_s = self.clock()

    def append(self, *records: Mapping[str, Any]) -> None:
        """Write records to disk. If the disk is full, report it once, and try again with the next block."""
        self.unwritten += records
        try:
            self.writer.write(*self.unwritten)
            self.unwritten = []
        except InputError as error:
            if not self.told_full:
                sys.stderr.write(f"{error}\n")
            self.told_full = True


def main() -> None:
    """Main function of the process: poll until a request says to stop."""
    # Ctrl-C and SIGTERM may reach every process of a group, but the measured program decides when sampling stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests = Requests()
    settings = next(requests.wait(None))
    try:
        specs = {name: ReaderSpec(**spec) for name, spec in settings["devices"].items()}
        devices = [PolledDevice(name, spec.open(), waits=spec.waits) for name, spec in specs.items()]
        for device in devices:
            device.poll()
        start_s = time.monotonic()
        recorder = None
        if settings["recording"] is not None:
            writer = Writer(Path(settings["recording"]), {**settings["machine"], "start_s": start_s})
            tree = None if settings["process"] is None else ProcessTree(settings["process"])
            asked = {name: spec for name, spec in specs.items() if spec.reader in PROCESS_READERS}
            processes = {name: PROCESS_READERS[spec.reader](**spec.settings) for name, spec in asked.items()}
            recorder = Recorder(writer, devices, tree, gpu_processes=processes)
    except JoulecastError as error:
        _answer({"error": f"{error.what}: {error.given}", "hint": error.hint})
        return
    _answer({})
    poll(devices, recorder, settings["period_s"], requests)


def poll(
    devices: Sequence[PolledDevice],
    recorder: Recorder | None,
    period_s: float,
    requests: Requests,
    clock: Clock = time.monotonic,
) -> None:
    """Poll until a request or the end of all requests says to stop.

    Args:
        recorder: Writes the samples; None to keep them in memory until they are requested.
    """
    exit_code, next_s, look = None, clock() + period_s, CloseLook(devices, clock)
    if recorder is not None:
        look.begin(at_once=True)
    while not requests.ended:
        for request in requests.wait(max(0.0, min(next_s, look.next_s) - clock())):
            do = request["do"]
            if do == "end":
                exit_code = request["exit_code"]
                requests.ended = True
                break
            if do == "mark":
                _poll_now(devices, look)
            elif do == "samples":
                asked = next(device for device in devices if device.name == request["device"])
                _answer(asked.since(request["since_s"]))
            elif do == "totals":
                _answer({"devices": {device.name: device.total() for device in devices}})
            elif do == "windows" and recorder is not None:
                recorder.windows += [(name, start, end) for name, start, end in request["windows"]]
            elif do == "flush":
                for device in devices:
                    device.poll()
                if recorder is not None:
                    recorder.write()
                _answer({})
        now_s = clock()
        if now_s >= next_s:
            for device in devices:
                device.poll()
            # After a delay, such as a suspended machine, the samples that were missed are skipped.
            next_s = max(next_s + period_s, now_s)
        elif now_s >= look.next_s:
            look.poll()
        if recorder is not None and not requests.ended and now_s - recorder.last_s >= BLOCK_S:
            recorder.write()
    if recorder is not None:
        end_s = clock()
        _poll_now(devices, look, at_once=True)
        for device in devices:
            if device.waits:
                device.poll()
        while look.next_s < math.inf:
            requests.rest(look.next_s - clock())
            look.poll()
        recorder.write()
        recorder.append({"kind": "end", "time_s": end_s, "exit_code": exit_code})


def _poll_now(devices: Sequence[PolledDevice], look: CloseLook, *, at_once: bool = False) -> None:
    """Read all devices that can be read at any moment, and begin a close look at their counters."""
    for device in devices:
        if not device.waits:
            device.poll()
    look.begin(at_once=at_once)


def _answer(value: Mapping[str, Any]) -> None:
    with suppress(OSError):  # Writing fails if the process that asked has ended.
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


class Requests:
    """Requests to the loop, as lines of standard input. `ended` says that no more will come; the loop may set it.

    A thread reads them, because Windows cannot wait for a pipe until a moment.
    """

    def __init__(self) -> None:
        self.ended = False
        self._arrived: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while text := os.read(0, 1 << 20):  # sys.stdin could not be closed while a thread waits for it.
            *lines, rest = (rest + text).split(b"\n")
            for line in lines:
                self._arrived.put(json.loads(line))
        self._arrived.put(None)

    def wait(self, seconds: float | None) -> Iterator[dict[str, Any]]:
        """Wait for requests, and yield those that have arrived."""
        with suppress(queue.Empty):
            request = self._arrived.get(timeout=seconds)
            while request is not None:
                yield request
                request = self._arrived.get_nowait()
            self.ended = True

    def rest(self, seconds: float) -> None:
        """Sleep without reading requests."""
        time.sleep(max(0.0, seconds))


if __name__ == "__main__":
    main()
