"""Timing an operation in a loop over distinct instances, by `torch.utils.benchmark.Timer`.

The instances together are larger than the cache, so that none finds its weights there from the last round. The loop is
long enough for a power sensor. Its time must be proportional to the number of iterations, which is checked. The Timer
measures it in blocks, from whose spread the standard error of the time follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from statistics import stdev
from typing import Any

import torch
from torch.utils.benchmark import Timer

from ..operations.attributes import ELEMENT_BYTES
from ..operations.operation import Operation
from ..operations.rules import size
from .campaign import lengths, outliers_s
from .runners import Instance

_MOST_INSTANCES = 64
_WARM_UP_S = 0.2
_SHORT_SHARE = 0.1  # Durations of the loops that check proportionality, relative to that of the main loop.
PROPORTIONAL = 0.1
"""Least relative difference between the times per iteration of a short and the long loop that gives a warning."""
_REPLAYS = 20


@dataclass(frozen=True)
class Timing:
    """The times of an operation.

    Args:
        device_time_s: Time per iteration of its kernels, replayed as a CUDA graph without the host; None where the
            device is the CPU, or where the operation cannot be captured.
        start_s, end_s: Start and end of the loop on `time.monotonic`, for the power sensor.
        time_std_s: Standard error of `time_s`, from the Timer's blocks; None where there is only one.
        loops: Iterations and seconds of every loop that was timed, including those that check proportionality.
    """

    time_s: float
    device_time_s: float | None
    iterations: int
    start_s: float
    end_s: float
    time_std_s: float | None = None
    loops: tuple[tuple[int, float], ...] = ()
    warnings: tuple[str, ...] = ()


@contextmanager
def running(mode: str, precision: str) -> Iterator[None]:
    """Put PyTorch into the state for a mode and precision, and restore it afterwards.

    Precision decides whether TF32 is allowed. "default" is PyTorch's: convolutions may use it, matrix products may not.
    """
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision in ("tf32", "default")
    try:
        with torch.inference_mode() if mode == "inference" else nullcontext():
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def block_length(operation: Operation, cache_bytes: int, memory_bytes: int) -> int:
    """Number of instances to loop over: as many as fill the cache twice, but at most 64 and half of the memory."""
    tensors = operation.input_size + size(operation.output_shape) + operation.parameters
    # Training needs a gradient for every tensor.
    bytes_each = round(ELEMENT_BYTES[operation.precision] * tensors * (2 if operation.mode == "training" else 1))
    wanted = -(-2 * cache_bytes // max(1, bytes_each))
    fitting = memory_bytes // (2 * max(1, bytes_each))
    return max(1, min(wanted, fitting, _MOST_INSTANCES))


def time_operation(
    operation: Operation,
    device: torch.device,
    *,
    seed: int = 0,
    cache_bytes: int = 64 * 2**20,
    memory_bytes: int = 2**30,
    **loop: Any,
) -> Timing:
    """Time an operation on a device, whose last-level cache has `cache_bytes`. `loop` is passed on to `time_block`.

    Raises RuntimeError: PyTorch cannot run the operation here; torch.OutOfMemoryError where it does not fit.
    """
    generator = torch.Generator(device).manual_seed(seed)
    length = block_length(operation, cache_bytes, memory_bytes)
    with running(operation.mode, operation.precision):
        block = [Instance.of_operation(operation, device, generator) for _ in range(length)]
        return time_block(block, device, **loop)


def time_block(
    block: Sequence[Callable[[], None]],
    device: torch.device,
    *,
    seconds: float,
    loop_lengths: int = 0,
    floor_s: float = 0.0,
) -> Timing:
    """Time a block of distinct instances that run one after the other. Times are per instance.

    `loop_lengths` is the number of lengths that check proportionality by a linear fit; 0 for one short loop.
    """

    def run() -> None:
        for instance in block:
            instance()

    timer = Timer("run()", timer=clock_of(device), globals={"run": run}, num_threads=torch.get_num_threads())
    rounds = 1
    timer.timeit(1)  # the first run compiles, allocates and chooses algorithms
    while (warm := timer.timeit(rounds)).mean * rounds < min(_WARM_UP_S, seconds):
        rounds *= 2
    few = max(1, round(_SHORT_SHARE * seconds / warm.mean))
    short_s = timer.timeit(few).mean
    start_s = time.monotonic()
    blocks = timer.blocked_autorange(min_run_time=seconds)
    end_s = time.monotonic()
    number, measured_s = blocks.number_per_run * len(blocks.times), blocks.mean
    std_s = stdev(blocks.times) if len(blocks.times) > 1 else None
    device_time_s, warnings = _device_time_s(run, len(block), device)
    loops = [(rounds, warm.mean), (few, short_s), (number, measured_s)]
    if loop_lengths:
        counts = [max(1, round(length_s / measured_s)) for length_s in lengths(loop_lengths, seconds)]
        fitted = [(count, count * timer.timeit(count).mean) for count in dict.fromkeys(counts)]
        loops = [*((count, total_s / count) for count, total_s in fitted), loops[-1]]
        if len(fitted) > 2 and (off_s := max(outliers_s(fitted), default=0.0)) > floor_s:
            warnings = (*warnings, f"time is not proportional to iterations in loops of up to {off_s:.3g} s")
    elif (difference := abs(short_s / measured_s - 1)) > PROPORTIONAL:
        warnings = (*warnings, f"time is not proportional to iterations: {100 * difference:.0f} %")
    if measured_s * number < floor_s:
        warnings = (*warnings, f"the loop took {measured_s * number:.3g} s, less than the floor of {floor_s:g} s")
    return Timing(
        time_s=measured_s / len(block),
        device_time_s=device_time_s,
        iterations=number * len(block),
        start_s=start_s,
        end_s=end_s,
        time_std_s=std_s / len(block) / len(blocks.times) ** 0.5 if std_s is not None else None,
        loops=tuple((count * len(block), count * mean_s) for count, mean_s in loops),
        warnings=warnings,
    )


def by_cpu_time(device: torch.device) -> bool:
    """Whether a device is timed by the CPU time of this process: a CPU on which PyTorch uses one thread.

    Then CPU time is the wall time on a machine that does nothing else, and other programs do not lengthen it by taking
    the core away. (They still take room in its caches, and bandwidth of its memory.)
    """
    return device.type == "cpu" and torch.get_num_threads() == 1


def clock_of(device: torch.device) -> Callable[[], float]:
    """The clock that a device is timed by: CPU time (`by_cpu_time`), or wall time after all queued work is done."""
    if by_cpu_time(device):
        return time.process_time

    def clock() -> float:
        synchronize(device)
        return time.perf_counter()

    return clock


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_time_s(run: Callable[[], None], length: int, device: torch.device) -> tuple[float | None, tuple[str, ...]]:
    if device.type != "cuda":
        return None, ()
    try:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        graph.replay()
        start.record()
        for _ in range(_REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
    except RuntimeError as error:
        with suppress(RuntimeError):  # A failed capture leaves an error that the next call would report.
            torch.cuda.synchronize(device)
        return None, (f"cannot be captured as a CUDA graph: {str(error).splitlines()[0]}",)
    return start.elapsed_time(end) / 1e3 / _REPLAYS / length, ()
