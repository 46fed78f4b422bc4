"""One pass and two: from a trace and the readings of sensors to an Accounting."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from ..metering.meter import INTERVAL_S, Meter
from ..metering.recording import Recording, read_recording
from .attribution import attributed, module_share
from .events import Events
from .resolution import resolution
from .result import Accounting
from .shares import Counter, Shares, Used, counters_of, spread, swept

if TYPE_CHECKING:
    from .steps import Steps

_WARM_UP = 2
_LEAST_LOOPS = 3
_NO_COUNTER = "no energy counter could be read, so that there are seconds and no joules"


def one_pass(title: str, events: Events, recording: Recording | None, clock_offset_s: float = 0.0) -> Accounting:
    """Account what sensors saw while the events ran.

    Args:
        title: What ran, for people.
        events: What ran when.
        recording: What the sensors saw; None to account seconds alone.
        clock_offset_s: Seconds by which the clock of the events is ahead of that of the recording.

    Raises:
        InputError: Recording and events do not overlap in time.
    """
    counters = () if recording is None else counters_of(recording, events.origin_ns, clock_offset_s)
    start_s, end_s = events.window_s
    found = swept(events, counters, (start_s, end_s))
    iteration_s = (end_s - start_s) / events.iterations
    return _accounting(title, found, events, recording, counters, end_s - start_s, 1, iteration_s, None)


def two_passes(steps: Steps, sensors: Collection[str] | None, loop_s: float, profiled_iterations: int) -> Accounting:
    """Run a model in an undisturbed loop for its joules, and under the profiler for the shares of its modules.

    Args:
        steps: Iterations of the model.
        sensors: What is measured; None for all that have a counter.
        loop_s: Least seconds of the loop.
        profiled_iterations: How many iterations are profiled.

    Raises:
        ExtractionError: The model raises an error.
    """
    from .module_ranges import iteration
    from .profiling import profiled

    on_gpu = any(p.is_cuda for p in steps.module.parameters())
    for _ in range(_WARM_UP):
        steps.run()
    recorder = Recorder(sensors, INTERVAL_S)
    with recorder:
        _wait(on_gpu)
        start_s, count = time.monotonic(), 0
        while count < _LEAST_LOOPS or time.monotonic() - start_s < loop_s:
            steps.run()
            _wait(on_gpu)
            count += 1
        end_s = time.monotonic()
        with profiled(steps.module, on_gpu=on_gpu) as profile:
            for _ in range(profiled_iterations):
                with iteration():
                    steps.run()
                    _wait(on_gpu)
    events = attributed(profile.trace)
    recording = recorder.recording
    iteration_s = (end_s - start_s) / count
    counters = () if recording is None else counters_of(recording, events.origin_ns)
    used = [] if recording is None else _used(recording, counters, start_s, end_s, count, events.origin_ns)
    profiled_s = float(sum(end - start for start, end in events.windows)) / events.iterations
    found = spread(events, iteration_s, used)
    overhead = profiled_s / iteration_s - 1
    return _accounting(steps.title, found, events, recording, counters, iteration_s, 2, iteration_s, overhead)


def _used(
    recording: Recording, counters: tuple[Counter, ...], start_s: float, end_s: float, count: int, origin_ns: int
) -> list[Used]:
    """What an iteration of a loop used, by counter."""
    shift_s = recording.wall_offset_s - 1e-9 * origin_ns
    found = []
    for counter in counters:
        joules, known = counter.curve.between(start_s + shift_s, end_s + shift_s)
        found.append(Used(counter.device, float(joules) / count, bool(known)))
    return found


def _accounting(
    title: str,
    shares: Shares,
    events: Events,
    recording: Recording | None,
    counters: tuple[Counter, ...],
    duration_s: float,
    passes: Literal[1, 2],
    iteration_s: float,
    overhead: float | None,
) -> Accounting:
    notes = [*events.notes, *shares.notes]
    if not counters:
        why = "; ".join(recording.absent) if recording is not None else ""
        notes.insert(0, f"{_NO_COUNTER}: {why}" if why else _NO_COUNTER)
    by_phase = {phase: module_share(events, phase) for phase in ("forward", "backward")}
    return Accounting(
        title=title,
        rows=shares.rows,
        unattributed=shares.unattributed,
        duration_s=duration_s,
        passes=passes,
        iterations=events.iterations,
        resolution=resolution(events, [counter.curve for counter in counters], iteration_s),
        overhead=overhead,
        module_share={phase: share for phase, share in by_phase.items() if share is not None},
        notes=tuple(notes),
        events=events,
        recording=recording,
        counter_power_w={c.device.name: c.device.idle_w for c in counters if c.device.idle_w is not None},
    )


class Recorder:
    """Records the sensors of this machine while it is entered.

    Args:
        sensors: What is measured; None for all that have a counter.
        interval_s: Seconds between two samples.
    """

    def __init__(self, sensors: Collection[str] | None, interval_s: float) -> None:
        self._settings = sensors, interval_s
        self.recording: Recording | None = None
        """What was recorded; None where another process of a parallel job measures this machine."""

    def __enter__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="joulecast-")
        self._out = Path(self._folder.name) / "recording.jsonl"
        sensors, interval_s = self._settings
        self._meter = Meter(sensors, interval_s=interval_s, out=self._out)
        try:
            self._meter.__enter__()
        except BaseException:
            self._folder.cleanup()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._meter.__exit__(kind, error, trace)
            self.recording = read_recording(self._out) if self._meter.measures else None
        finally:
            self._folder.cleanup()


def _wait(on_gpu: bool) -> None:
    """Wait until the GPU has done what it was asked for."""
    if on_gpu:
        import torch

        torch.cuda.synchronize()
