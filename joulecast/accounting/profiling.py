"""Takes profiles of this process with torch.profiler, with the names of modules, and turns them into traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .trace import ITERATION, MODULE_PREFIX, Trace, TraceEvent, kind_and_name

if TYPE_CHECKING:
    import torch

_CALL = "_compiled_call_impl"
"""Attribute of a module: if it is set, PyTorch calls it in place of the module's own call. `Module.compile` uses it."""


@contextmanager
def named_modules(model: torch.nn.Module) -> Iterator[None]:
    """Mark the calls of a model and of all its parts in the profiles that are taken meanwhile.

    A range contains the call of a module with all its hooks. The marks are not hooks themselves, because PyTorch runs
    other operators in some modules if they have hooks (`nn.TransformerEncoderLayer`), and because the hooks of users
    could run outside the ranges. Parts of a compiled model are not marked, because they are not called one by one. A
    module that is used in several places has the name of its first place.

    Args:
        model: Any module. The changes to it are undone at the end.
    """
    import torch

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


@contextmanager
def iteration() -> Iterator[None]:
    """Mark an iteration in the profiles that are taken meanwhile."""
    import torch

    with torch.profiler.record_function(ITERATION):
        yield


def marked_modules(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Qualified names and modules that are called one by one; this excludes the parts of compiled modules."""
    found: list[tuple[str, torch.nn.Module]] = []
    compiled: list[str] = []
    for path, part in model.named_modules():
        if any(not above or path == above or path.startswith(f"{above}.") for above in compiled):
            continue
        if is_compiled(part):
            compiled.append(path)
        found.append((path, part))
    return found


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether torch.compile made this module, or `Module.compile` compiled it in place."""
    return hasattr(module, "_orig_mod") or getattr(module, _CALL, None) is not None


class Profile:
    """A profile that is being taken; its trace is complete once the profiler has stopped."""

    def __init__(self) -> None:
        self.trace = Trace(())


@contextmanager
def profiled(model: torch.nn.Module, *, on_gpu: bool) -> Iterator[Profile]:
    """A context manager that profiles what runs inside it, with the calls of a model's modules.

    Raises InputError: another profiler is running.
    """
    import torch

    if torch._C._autograd._profiler_enabled():
        raise InputError(
            "PyTorch cannot run two profilers at the same time",
            given="a profiler that is running already",
            allowed="no running profiler",
            hint="stop it first, or export its trace and use `joulecast account --trace`",
        )
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if on_gpu else []
    profile = Profile()
    with named_modules(model), torch.profiler.profile(activities=activities) as profiler:
        yield profile
        if on_gpu:
            torch.cuda.synchronize()
    results: Any = profiler.profiler
    profile.trace = _trace(results.kineto_results, _gpu_names() if on_gpu else {})


def _gpu_names() -> dict[int, str]:
    """Index of a GPU in this process -> its name in recordings, which count all GPUs of the machine."""
    import torch

    from ..profiling.devices import nvml_index

    return {index: f"gpu{nvml_index(torch.device('cuda', index))}" for index in range(torch.cuda.device_count())}


def _trace(results: Any, gpus: Mapping[int, str]) -> Trace:
    """The trace of a profile.

    Args:
        gpus: Index of a GPU in this process -> its name.
    """
    origin_ns = int(results.trace_start_ns())
    events = tuple(found for event in results.events() if (found := _event(event, origin_ns, gpus)) is not None)
    return Trace(events, origin_ns, "ranges")


def _event(event: Any, origin_ns: int, gpus: Mapping[int, str]) -> TraceEvent | None:
    """The event in our form; None for ranges that the user marked, and for ranges across threads."""
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
