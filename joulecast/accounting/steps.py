"""Iterations of a model: its inputs, and a function that runs a forward pass, or a forward and a backward pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..errors import ExtractionError, InputError
from ..extraction.job import refuse_optimizer
from ..extraction.models.transformers_models import is_transformer, named_inputs
from ..metering.meter import Meter
from ..operations.inputs import Input, Inputs, shape_text
from ..operations.operation import require_mode
from .attribution import ITERATION, MODULE_PREFIX, Trace, TraceEvent, attributed, kind_and_name
from .events import Events

_PLAIN: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
_OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    **_PLAIN,
    **{f"{name}_fused": partial(of, fused=True) for name, of in _PLAIN.items()},
}
_AHEAD = 10
"""Iterations that the host may launch before it waits. Without a limit, seconds could queue minutes of work."""
_SMALL_RATE = 1e-6
"""Learning rate of the optimizer. It is tiny because steps are measured, not used for training."""


@dataclass
class Steps:
    """Iterations of a model, which all do the same work.

    As a context manager, it sets the mode of the model, and restores the previous mode at the end.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    optimizer: torch.optim.Optimizer | None
    title: str
    _gradients: dict[Any, torch.Tensor] = field(default_factory=dict)

    def __enter__(self) -> Steps:
        self._modes = {part: part.training for part in self.module.modules()}
        self.module.train(self.training)
        return self

    def __exit__(self, *_: object) -> None:
        for part, training in self._modes.items():
            part.training = training
        if self.training:
            self.module.zero_grad(set_to_none=True)

    def run(self) -> None:
        """Run one iteration.

        Raises ExtractionError: the model raises an error. Raises InputError: no output of the model requires a
        gradient, in training.
        """
        gradients: AbstractContextManager[Any] = torch.enable_grad() if self.training else torch.no_grad()
        try:
            with gradients:
                result = self.module(*self.args, **self.kwargs)
                if self.training:
                    self._backward(result)
        except InputError:
            raise
        except Exception as error:
            raise ExtractionError(
                f"the model raises {type(error).__name__} when it runs",
                given=str(error).strip().splitlines()[0] if str(error).strip() else None,
                hint="run it on the same inputs without joulecast, and mend that first",
            ) from error

    def wait(self) -> None:
        """Wait until the GPU has finished all launched work, if the model is on one."""
        if _is_on_gpu(self.module):
            torch.cuda.synchronize()

    def looped(self, meter: Meter | None, least: int, seconds: float = 0.0) -> tuple[float, float, int]:
        """Run iterations until there are enough of them and the time is up, in the window "loop" of a meter.

        Returns start and end in monotonic seconds, and the number of iterations.
        """
        count = 0
        self.wait()
        with meter.window("loop") if meter else nullcontext():
            start_s = time.monotonic()
            while count < least or time.monotonic() - start_s < seconds:
                self.run()
                count += 1
                if count % _AHEAD == 0:
                    self.wait()
            self.wait()
            return start_s, time.monotonic(), count

    def profiled(self, iterations: int) -> Events:
        """Run some iterations under the profiler, and return their events.

        One more iteration runs first and is left out, because the profiler is slow at first, and compiled modules may
        be compiled again. Raises ExtractionError: the model raises an error.
        """
        with profiled(self.module) as trace:
            self.run()
            self.wait()
            for _ in range(iterations):
                with torch.profiler.record_function(ITERATION):
                    self.run()
                    self.wait()
        events = attributed(trace)
        return events.between(*events.window_s)

    def _backward(self, result: Any) -> None:
        # The outputs of transformers are a mapping of another class than the plain ones whose leaves torch finds.
        plain = dict(result) if isinstance(result, Mapping) else result
        outputs = [t for t in tree_leaves(plain) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not outputs:
            raise InputError(
                "no output of this model requires a gradient, so there is no backward pass",
                given=type(self.module).__name__,
                allowed="a model with parameters that require gradients",
                hint='use mode="inference", or set requires_grad on its parameters',
            )
        torch.autograd.backward(outputs, [self._gradient(output) for output in outputs])
        if self.optimizer is None:
            self.module.zero_grad(set_to_none=True)
        else:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def _gradient(self, output: torch.Tensor) -> torch.Tensor:
        """A gradient of ones, which is made once so that making it is not accounted to a module."""
        key = output.shape, output.dtype, output.device
        if key not in self._gradients:
            self._gradients[key] = torch.ones_like(output)
        return self._gradients[key]


def _is_on_gpu(module: torch.nn.Module) -> bool:
    return any(parameter.is_cuda for parameter in module.parameters())


def steps_of(
    module: torch.nn.Module, inputs: Any, mode: str, device: torch.device | None, optimizer: str | None
) -> Steps:
    """Prepare iterations of a model.

    Raises UnknownNameError: there is no such mode or optimizer. Raises InputError: `module` is not a module, or
    `inputs` are neither tensors nor shapes.

    Args:
        inputs: A tensor, a list of tensors, or tensors by name; or shapes, for which random numbers are drawn.
        device: Device to run on; None for the device of the model's parameters.
        optimizer: sgd, adam or adamw, which makes a tiny step after each backward pass; None for no steps.
    """
    checked_module(module)
    require_mode(mode)
    refuse_optimizer(optimizer, mode)
    if device is not None:
        module.to(device)
    place = device or next((p.device for p in module.parameters()), torch.device("cpu"))
    args, kwargs = _tensors(module, inputs, place)
    shapes = Inputs(tuple(map(Input.of, args)), tuple((name, Input.of(value)) for name, value in kwargs.items()))
    stepper = None if optimizer is None else _OPTIMIZERS[optimizer](module.parameters(), lr=_SMALL_RATE)
    title = f"{type(module).__name__} {shape_text(shapes.shape)}, {mode}, on {place}"
    return Steps(module, args, kwargs, mode == "training", stepper, title)


def checked_module(module: Any) -> torch.nn.Module:
    """Check that a value is a module, and return it. Raises InputError: it is not."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            "this is not a module",
            given=type(module).__name__,
            allowed="a torch.nn.Module",
            hint="pass the model itself; `joulecast account NAME SHAPE` builds models by name",
        )
    return module


def _tensors(
    module: torch.nn.Module, inputs: Any, device: torch.device
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """The positional inputs and the inputs by name, as tensors on the device."""
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    values = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    if isinstance(values, Sequence) and values and all(isinstance(value, torch.Tensor) for value in values):
        moved = tuple(value.to(device) for value in values)
        return ((), dict(zip(inputs, moved, strict=True))) if isinstance(inputs, Mapping) else (moved, {})
    shapes = Inputs.of(inputs)
    if is_transformer(module):
        shapes = named_inputs(module, shapes)
    generator = torch.Generator().manual_seed(0)
    rows = min((part.num_embeddings for part in module.modules() if isinstance(part, torch.nn.Embedding)), default=2)

    def drawn(item: Input, name: str = "") -> torch.Tensor:
        floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        known = item.dtype or getattr(module, "input_dtype", None)
        dtype = getattr(torch, known) if known else floating
        if name.endswith("_mask"):
            return torch.ones(item.shape, dtype=dtype, device=device)
        if dtype.is_floating_point:
            return torch.randn(item.shape, generator=generator).to(device, dtype)
        return torch.randint(0, rows, item.shape, generator=generator).to(device, dtype)

    return tuple(map(drawn, shapes.positional)), {name: drawn(item, name) for name, item in shapes.named}


# Takes profiles of this process with torch.profiler, with the names of modules, and turns them into traces.

_CALL = "_compiled_call_impl"
"""Attribute of a module: if it is set, PyTorch calls it in place of the module's own call. `Module.compile` uses it."""


@contextmanager
def named_modules(model: torch.nn.Module) -> Iterator[None]:
    """Mark the calls of a model and of all its parts in the profiles that are taken meanwhile.

    A range contains the call of a module with all its hooks. The marks are not hooks themselves, because PyTorch runs
    other operators in some modules if they have hooks (`nn.TransformerEncoderLayer`), and because the hooks of users
    could run outside the ranges. Parts of a compiled model are not marked, because they are not called one by one. A
    module that is used in several places has the name of its first place. All changes are undone at the end.
    """

    def named_call(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def named(*args: Any, **kwargs: Any) -> Any:
            with torch.profiler.record_function(name):
                return call(*args, **kwargs)

        return named

    replaced: list[tuple[dict[str, Any], Any]] = []
    try:
        for path, part in marked_modules(model):
            # setattr would not do: a compiled module sets attributes on the module that it was made from.
            attributes = part.__dict__
            before = attributes.get(_CALL)
            replaced.append((attributes, before))
            attributes[_CALL] = named_call(f"{MODULE_PREFIX}{path}", before or part._call_impl)
        yield
    finally:
        for attributes, before in reversed(replaced):
            if before is None:
                del attributes[_CALL]
            else:
                attributes[_CALL] = before


def marked_modules(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Qualified names and modules that are called one by one; this excludes the parts of compiled modules."""
    found: list[tuple[str, torch.nn.Module]] = []
    compiled: list[str] = []
    for path, part in model.named_modules():
        if any(not above or path == above or path.startswith(f"{above}.") for above in compiled):
            continue
        # torch.compile made this module, or `Module.compile` compiled it in place.
        if hasattr(part, "_orig_mod") or getattr(part, _CALL, None) is not None:
            compiled.append(path)
        found.append((path, part))
    return found


@contextmanager
def profiled(model: torch.nn.Module) -> Iterator[Trace]:
    """A context manager that profiles what runs inside it, with the calls of a model's modules.

    The trace that it yields is filled at the end.

    Raises InputError: another profiler is running.
    """
    if torch._C._autograd._profiler_enabled():
        raise InputError(
            "PyTorch cannot run two profilers at the same time",
            given="a profiler that is running already",
            allowed="no running profiler",
            hint="stop it first",
        )
    on_gpu, activities = _is_on_gpu(model), [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if on_gpu else []
    with named_modules(model), torch.profiler.profile(activities=activities) as profiler:
        trace = Trace()
        yield trace
        if on_gpu:
            torch.cuda.synchronize()
    results: Any = profiler.profiler.kineto_results
    gpus = {}
    if on_gpu:  # Recordings count all GPUs of the machine, and this process those that it may see.
        from ..profiling.devices import nvml_index

        devices = (torch.device("cuda", index) for index in range(torch.cuda.device_count()))
        gpus = {device.index: f"gpu{nvml_index(device)}" for device in devices}
    trace.origin_ns = int(results.trace_start_ns())
    events = (_event(event, trace.origin_ns, gpus) for event in results.events())
    trace.events = tuple(event for event in events if event is not None)


def _event(event: Any, origin_ns: int, gpus: Mapping[int, str]) -> TraceEvent | None:
    """The event in our form, with the names of GPUs by their index in this process.

    None for ranges that the user marked, and for ranges across threads.
    """
    start_ns = event.start_ns() - origin_ns
    times = 1e-9 * start_ns, 1e-9 * (start_ns + event.duration_ns())
    is_annotation = event.is_user_annotation()
    if event.device_type().name != "CPU":
        if is_annotation:  # A range of the user on the GPU. Its kernels are events of their own.
            return None
        device, stream = event.device_index(), event.device_resource_id()
        launch = event.linked_correlation_id()
        name = gpus.get(device, f"gpu{device}")
        return TraceEvent("kernel", event.name(), (device, stream), *times, name, launch=launch)
    found = kind_and_name(event.name(), is_annotation)
    if found is None or event.is_async():
        return None
    # Inside an event of autograd's engine, a second event has the name of the node. Neither of them is an operator that
    # creates a node of the backward pass.
    forward_thread = event.fwd_thread_id()
    makes_node = found[0] == "operator" and not forward_thread
    return TraceEvent(
        *found,
        event.start_thread_id(),
        *times,
        sequence=event.sequence_nr() if makes_node or found[0] == "node" else -1,
        numbering=forward_thread or event.start_thread_id(),
        launch=event.correlation_id(),
    )
