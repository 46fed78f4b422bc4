"""Accounting of a model that runs on this machine: two passes over inputs, or one pass around a user's own steps.

Power readings lag by up to a second, so they do not show what happens within an iteration. An undisturbed loop of some
seconds therefore gives the joules of an iteration, and a few profiled iterations give the shares of the modules.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from ..errors import InputError, needing, with_extra
from .attribution import attributed
from .passes import meter_of, one_pass, recording_of, two_passes
from .result import Accounting

if TYPE_CHECKING:
    import torch

LOOP_S = 3.0
"""Least length of the undisturbed loop: power readings are averages over up to a second."""

PROFILED = 5
"""Default number of profiled iterations."""

_INTERVAL_S = 0.02  # Shorter than a meter's interval, because the joules within a step depend on single samples.


class Account:
    """Accounts for a user's own steps with a model, in one pass: `with joulecast.account(model) as a: ...`.

    A profiler and a sampler run at the same time, so the result includes the overhead of profiling. If steps are not
    much longer than the update period of the sensor, the joules within them are divided by time.

    Args:
        module: The model. Operators that run outside it belong to no module.
        sensors: "cpu", "ram", "gpu" or names such as "gpu1"; None for all that have a counter, empty for seconds alone.
        interval_s: Seconds between two samples; counters update every 10 to 100 ms.
        title: Title of the result.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        sensors: Collection[str] | None = None,
        interval_s: float = _INTERVAL_S,
        title: str | None = None,
    ) -> None:
        torch = needs_torch()
        from .steps import checked_module

        self._module = checked_module(module)
        self._title = title or type(module).__name__
        self._on_gpu = any(p.is_cuda for p in module.parameters()) and torch.cuda.is_available()
        self._meter = meter_of(sensors, interval_s)
        self._result: Accounting | None = None

    def __enter__(self) -> Self:
        from .steps import profiled

        with ExitStack() as entered:
            if self._meter is not None:
                entered.enter_context(self._meter)
            self._profile = entered.enter_context(profiled(self._module, on_gpu=self._on_gpu))
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)
        if error is None:
            self._result = one_pass(self._title, attributed(self._profile.trace), recording_of(self._meter))

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

    if not loop_s > 0 or profiled_iterations < 1:
        raise InputError(
            "a loop and profiled iterations are needed",
            given=f"loop_s={loop_s}, profiled_iterations={profiled_iterations}",
            allowed="seconds above 0, at least 1 iteration",
        )
    place = None if device is None else find_device(device)
    with steps_of(module, inputs, mode, place, optimizer) as steps:
        return two_passes(steps, sensors, loop_s, profiled_iterations)


def needs_torch() -> Any:
    """Import torch. Raises MissingDependencyError: torch is not installed."""
    with needing("accounting needs torch", with_extra("torch")):
        import torch
    return torch
