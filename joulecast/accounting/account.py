"""Accounting of a model that runs on this machine: two passes over inputs, or one pass around a user's own steps.

Power readings lag by up to a second, so they do not show what happens within an iteration. An undisturbed loop of some
seconds therefore gives the joules of an iteration, and a few profiled iterations give the shares of the modules.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from ..checked import in_range
from ..errors import InputError, needing, with_extra
from ..metering.meter import INTERVAL_S, Meter
from ..metering.recording import Recording
from .attribution import attributed, module_share
from .events import Events
from .result import Accounting
from .shares import Counter, Shares, counters_of, figure_of, resolution, spread, swept

if TYPE_CHECKING:
    import torch

    from .steps import Steps

LOOP_S = 3.0
"""Least length of the undisturbed loop: power readings are averages over up to a second."""

PROFILED = 5
"""Default number of profiled iterations."""

_WARM_UP = 2
_LEAST_LOOPS = 3
_INTERVAL_S = 0.02  # Shorter than a meter's interval, because the joules within a step depend on single samples.
_ESTIMATED = "joules are estimated from utilization and data sheets, not measured"
_NO_COUNTER = "no energy counter was read, so there are seconds but no joules"


class Account:
    """Accounts for a user's own steps with a model, in one pass: `with joulecast.account(model) as a: ...`.

    A profiler and a sampler run at the same time, so the result includes the overhead of profiling. If steps are not
    much longer than the update period of the sensor, the joules within them are divided by time. Operators that run
    outside the model belong to no module. The arguments are those of `account`.
    """

    def __init__(self, module: torch.nn.Module, *, sensors: Collection[str] | None = None) -> None:
        needs_torch()
        from .steps import checked_module

        self._module = checked_module(module)
        self._title = type(module).__name__
        self._meter = meter_of(sensors, _INTERVAL_S)
        self._result: Accounting | None = None

    def __enter__(self) -> Self:
        from .steps import profiled

        self._result = None
        with ExitStack() as entered:
            if self._meter is not None:
                entered.enter_context(self._meter)
            self._trace = entered.enter_context(profiled(self._module))
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)
        if error is None:
            self._result = one_pass(self._title, attributed(self._trace), recording_of(self._meter))

    def result(self) -> Accounting:
        """Time and energy of the steps.

        Raises InputError: the context was not entered or not left yet, or the steps raised an error.
        """
        if self._result is None:
            raise InputError(
                "nothing is accounted yet", given=self._title, hint="ask after the end of `with joulecast.account(...)`"
            )
        return self._result


@overload
def account(module: torch.nn.Module, inputs: None = None, *, sensors: Collection[str] | None = None) -> Account: ...


@overload
def account(
    module: torch.nn.Module,
    inputs: Any,
    *,
    mode: str = "inference",
    device: str | None = None,
    optimizer: str | None = None,
    sensors: Collection[str] | None = None,
    loop_s: float = LOOP_S,
    profiled_iterations: int = PROFILED,
) -> Accounting: ...


def account(
    module: torch.nn.Module,
    inputs: Any = None,
    *,
    mode: str = "inference",
    device: str | None = None,
    optimizer: str | None = None,
    sensors: Collection[str] | None = None,
    loop_s: float = LOOP_S,
    profiled_iterations: int = PROFILED,
) -> Account | Accounting:
    """Attribute measured energy to the modules of a model.

    With inputs, the model runs in two passes: an undisturbed loop gives the joules of an iteration, profiled iterations
    give the shares of modules. Without inputs, this is a context manager around steps of your own.

    Args:
        module: Any `torch.nn.Module`.
        inputs: A tensor, a list of tensors, or tensors by name; or shapes, as `joulecast.extract` takes them, for which
            random inputs are drawn. None for a context manager.
        mode: "inference", or "training" for forward and backward.
        device: "cpu", "cuda" or "cuda:1", to which the module is moved; None to leave it where it is.
        optimizer: "adamw" or another that `joulecast.extract` knows, to end each iteration with its step; None for no
            step. The learning rate is tiny, but the step changes the weights.
        sensors: "cpu", "ram", "gpu" or names such as "gpu1"; None for all that have a counter, empty for seconds alone.
            Without a counter, the result has seconds and says that joules are missing.
        loop_s: Shortest length of the undisturbed loop in seconds.
        profiled_iterations: Number of profiled iterations.

    Raises:
        InputError, UnknownNameError: The module, its inputs, the mode, the device or a number is not valid, or another
            profiler is running.
        ExtractionError: The model raises an error when it runs.
        MissingDependencyError: torch is not installed.
    """
    if inputs is None:
        return Account(module, sensors=sensors)
    needs_torch()
    from ..profiling.devices import find_device
    from .steps import steps_of

    in_range("loop_s", loop_s, above=True)
    in_range("profiled_iterations", profiled_iterations, 1, whole=True)
    place = None if device is None else find_device(device)
    with steps_of(module, inputs, mode, place, optimizer) as steps:
        return two_passes(steps, sensors, loop_s, profiled_iterations)


def needs_torch() -> Any:
    """Import torch. Raises MissingDependencyError: torch is not installed."""
    with needing("accounting needs torch", with_extra("torch")):
        import torch
    return torch


def one_pass(title: str, events: Events, recording: Recording | None) -> Accounting:
    """Account the joules that were measured while the profiler ran."""
    counters = () if recording is None else counters_of(recording, events.origin_ns)
    start_s, end_s = events.window_s
    return _accounting(title, swept(events, counters), events, recording, counters, end_s - start_s, None)


def two_passes(steps: Steps, sensors: Collection[str] | None, loop_s: float, profiled_iterations: int) -> Accounting:
    """Run a model in an undisturbed loop for its joules, and under the profiler for the shares of its modules.

    Raises ExtractionError: the model raises an error.
    """
    for _ in range(_WARM_UP):
        steps.run()
    meter = meter_of(sensors)
    with meter or nullcontext():
        start_s, end_s, count = steps.looped(meter, _LEAST_LOOPS, loop_s)
        events = steps.profiled(profiled_iterations)
    recording = recording_of(meter)
    iteration_s = (end_s - start_s) / count
    counters: tuple[Counter, ...] = ()
    used = []
    if recording is not None:
        counters = counters_of(recording, events.origin_ns)
        shift_s = recording.wall_offset_s - 1e-9 * events.origin_ns
        for counter in counters:
            joules, known = counter.curve.between(start_s + shift_s, end_s + shift_s)
            used.append((counter.device, figure_of(counter.device, float(joules) / count, bool(known))))
    profiled_s = float(sum(end - start for start, end in events.windows)) / events.iterations
    found = spread(events, iteration_s, used)
    overhead = profiled_s / iteration_s - 1
    return _accounting(steps.title, found, events, recording, counters, iteration_s, overhead)


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
    if all(counter.device.method == "modelled" for counter in counters):
        reasons = "; ".join(() if recording is None else recording.absent)
        notes.insert(0, ": ".join(filter(None, [_ESTIMATED if counters else _NO_COUNTER, reasons])))
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
    """A meter of sensors as `account` takes them, or of an estimate if there are none; None if none are to be read."""
    return Meter(sensors, interval_s=interval_s) if sensors is None or sensors else None


def recording_of(meter: Meter | None) -> Recording | None:
    """The recording of a meter; None if there is no meter, or another process of the job measures this machine."""
    return meter.result().recordings[0] if meter is not None and meter.measures else None
