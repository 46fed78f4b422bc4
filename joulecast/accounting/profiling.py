"""Takes profiles of this process with torch.profiler, and turns them into traces without writing a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .module_ranges import named_modules
from .trace import Trace, TraceEvent, kind_and_name

if TYPE_CHECKING:
    import torch


class Profile:
    """A profile that is being taken; its trace is complete once the profiler has stopped."""

    def __init__(self) -> None:
        self.trace = Trace(())


@contextmanager
def profiled(model: torch.nn.Module, *, on_gpu: bool) -> Iterator[Profile]:
    """A context manager that profiles what runs inside it, with the calls of a model's modules.

    Args:
        model: The model whose modules are marked in the profile.
        on_gpu: Whether to record kernels of GPUs as well.

    Raises:
        InputError: Another profiler is running.
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
        results: The profile in PyTorch's internal form.
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
