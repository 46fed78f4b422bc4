"""Makes an Accounting from a trace and the readings of sensors, in one pass or in two.

In one pass, joules are measured while the profiler runs. In two, they are measured in a loop without it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from ..energy import EnergyTree
from ..metering.meter import INTERVAL_S, Meter
from ..metering.recording import Recording
from .attribution import attributed, module_share
from .events import Events
from .result import Accounting
from .shares import Counter, Shares, Used, counters_of, spread, swept
from .sweep import resolution

if TYPE_CHECKING:
    from .steps import Steps

_WARM_UP = 2
_LEAST_LOOPS = 3
# Iterations that the host may launch before it waits for the GPU. Without a limit, a loop of seconds could queue
# minutes of work.
_AHEAD = 10
_ESTIMATED = "nothing could be measured, so joules are estimated from utilization and data sheets"
_NO_COUNTER = "no energy counter was read, so there are seconds but no joules"


def one_pass(title: str, events: Events, recording: Recording | None) -> Accounting:
    """Account the joules that were measured while the profiler ran."""
    counters = () if recording is None else counters_of(recording, events.origin_ns)
    start_s, end_s = events.window_s
    return _accounting(title, swept(events, counters), events, recording, counters, end_s - start_s, None)


def two_passes(steps: Steps, sensors: Collection[str] | None, loop_s: float, profiled_iterations: int) -> Accounting:
    """Run a model in an undisturbed loop for its joules, and under the profiler for the shares of its modules.

    Raises ExtractionError: the model raises an error.

    Args:
        sensors: Devices to measure; None for all that have a counter, empty for only seconds.
    """
    for _ in range(_WARM_UP):
        steps.run()
    meter = meter_of(sensors)
    with meter or nullcontext():
        start_s, end_s, count = looped(steps, meter, _LEAST_LOOPS, loop_s)
        events = profiled_events(steps, profiled_iterations)
    recording = recording_of(meter)
    iteration_s = (end_s - start_s) / count
    counters: tuple[Counter, ...] = ()
    used: list[Used] = []
    if recording is not None:
        counters = counters_of(recording, events.origin_ns)
        shift_s = recording.wall_offset_s - 1e-9 * events.origin_ns
        for counter in counters:
            joules, known = counter.curve.between(start_s + shift_s, end_s + shift_s)
            used.append(Used(counter.device, float(joules) / count, bool(known)))
    profiled_s = float(sum(end - start for start, end in events.windows)) / events.iterations
    found = spread(events, iteration_s, used)
    overhead = profiled_s / iteration_s - 1
    made = _accounting(steps.title, found, events, recording, counters, iteration_s, overhead)
    if not counters:
        return made
    seen = swept(events, counters)
    return replace(made, sensed=EnergyTree.of(steps.title, seen.rows, seen.unattributed, seen.notes))


def profiled_events(steps: Steps, iterations: int) -> Events:
    """Run some iterations under the profiler, and return their events.

    One more iteration runs first and is left out, because the profiler is slow at first, and compiled modules may be
    compiled again. Raises ExtractionError: the model raises an error.
    """
    from .steps import iteration, profiled

    on_gpu = runs_on_gpu(steps)
    with profiled(steps.module, on_gpu=on_gpu) as profile:
        steps.run()
        wait_for_gpu(on_gpu)
        for _ in range(iterations):
            with iteration():
                steps.run()
                wait_for_gpu(on_gpu)
    events = attributed(profile.trace)
    return events.between(*events.window_s)


def runs_on_gpu(steps: Steps) -> bool:
    """Whether parameters of a model are on a GPU."""
    return any(parameter.is_cuda for parameter in steps.module.parameters())


def looped(steps: Steps, meter: Meter | None, least: int, seconds: float = 0.0) -> tuple[float, float, int]:
    """Run iterations until there are enough of them and the time is up, in the window "loop" of a meter.

    Returns start and end in monotonic seconds, and the number of iterations.
    """
    on_gpu, count = runs_on_gpu(steps), 0
    wait_for_gpu(on_gpu)
    with meter.window("loop") if meter else nullcontext():
        start_s = time.monotonic()
        while count < least or time.monotonic() - start_s < seconds:
            steps.run()
            count += 1
            if count % _AHEAD == 0:
                wait_for_gpu(on_gpu)
        wait_for_gpu(on_gpu)
        return start_s, time.monotonic(), count


def _accounting(
    title: str,
    shares: Shares,
    events: Events,
    recording: Recording | None,
    counters: tuple[Counter, ...],
    duration_s: float,
    overhead: float | None,
) -> Accounting:
    """Make the accounting from the results of one pass, for which `overhead` is None, or of two."""
    notes = [*events.notes, *shares.notes]
    if not counters:
        reason = "; ".join(recording.absent) if recording is not None else ""
        notes.insert(0, f"{_NO_COUNTER}: {reason}" if reason else _NO_COUNTER)
    elif all(counter.device.method == "modelled" for counter in counters):
        notes.insert(0, f"{_ESTIMATED}: {'; '.join(recording.absent if recording is not None else ())}")
    iteration_s = duration_s / events.iterations if overhead is None else duration_s
    by_phase = {phase: module_share(events, phase) for phase in ("forward", "backward")}
    return Accounting(
        title=title,
        rows=shares.rows,
        unattributed=shares.unattributed,
        duration_s=duration_s,
        passes=1 if overhead is None else 2,
        iterations=events.iterations,
        resolution=resolution(events, [counter.curve for counter in counters], iteration_s),
        overhead=overhead,
        module_share={phase: share for phase, share in by_phase.items() if share is not None},
        notes=tuple(notes),
        events=events,
        recording=recording,
        idle_power_w={c.device.name: c.device.idle_w for c in counters if c.device.idle_w is not None},
    )


def meter_of(sensors: Collection[str] | None, interval_s: float = INTERVAL_S) -> Meter | None:
    """A meter for this machine; None if nothing is to be measured.

    Args:
        sensors: "cpu", "ram", "gpu" or names of devices; None for all that have a counter, or an estimate if none has
            one; empty for none.
    """
    return Meter(sensors, interval_s=interval_s) if sensors is None or sensors else None


def recording_of(meter: Meter | None) -> Recording | None:
    """The recording of a meter; None if there is no meter, or another process of the job measures this machine."""
    return meter.result().recordings[0] if meter is not None and meter.measures else None


def wait_for_gpu(on_gpu: bool) -> None:
    """Wait until the GPU has finished all launched work."""
    if on_gpu:
        import torch

        torch.cuda.synchronize()
