"""Kernels that chase pointers through one memory level of an NVIDIA GPU, compiled by NVRTC, which comes with torch.

Each node of an array has 32 bytes and begins with the index of the next one. The chain visits all nodes in random
order, so neither cache lines nor prefetching make a later step faster. Loads with the suffix .ca use the L1 cache;
those with .cg use only the L2 cache and DRAM. The source compiles with NVRTC 12.9, but has not run on a GPU yet.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
import torch

from ..arrays import FloatArray
from ..errors import DeviceError, MissingDependencyError, SensorError
from ..hardware import GPU, find_gpu
from ..hardware.gpu import MEMORY_LEVELS
from ..hardware.ncu import counters_of, metrics
from ..metering.energy_curve import EnergyCurve
from ..metering.sampler import Sensor
from ..rendering.plots import ACCENT, CHART_STYLE, FAINT, pyplot, svg_of
from .calibration import ACCESSES, THREADS, Calibration, Chase, ChaseDevice, energy_of, idle_of, rate_of
from .devices import sensor_of

_NODE_BYTES = 32
_WORDS = _NODE_BYTES // 4
_DRAWN_S = 0.05  # Time between two points of a drawing.
_SHARED_BYTES = 48 * 1024  # Shared memory of a block that every GPU grants by default.

_STEPS = {
    # What a step does, with the instruction of the level (LEVEL) and its kind of address (KIND).
    "load": 'asm volatile("ld.LEVEL.u32 %0, [%1];" : "=r"(at) : "KIND"(next + at));',
    # Stores cannot be chained. A stride of about 0.618 of the array, coprime with its nodes, spreads them as far.
    "store": """asm volatile("st.LEVEL.u32 [%0], %1;" :: "KIND"(next + at), "r"(at) : "memory");
        at += 8u * STRIDE; if (at >= 8u * nodes) at -= 8u * nodes;""",
    "divide": "at = at / one;",
}
_STEPS["load+divide"] = f"{_STEPS['load']} {_STEPS['divide']}"
_IN = {"shared": ("shared", "r"), "l1": ("global.ca", "l"), "l2": ("global.cg", "l"), "dram": ("global.cg", "l")}
"""Memory level -> state space and cache of its instruction, and the kind of its addresses. DRAM is measured by the
kernel of L2, with an array that is larger than L2."""


def source(level: str, access: str) -> str:
    """The kernel "chase" that follows a chain, in CUDA C++."""
    where, kind = _IN[level]
    step = _STEPS[access].replace("LEVEL", where).replace("KIND", kind)
    if level == "shared":  # Its addresses are 32-bit, and the array is copied there first.
        step = step.replace("next + at", "near + 4u * at")
    return rf"""
extern "C" __global__ void chase(unsigned *next, unsigned nodes, unsigned stride, int steps, unsigned *out) {{
    unsigned one = out[0] + 1u;  // The compiler cannot know that it is 1.
    unsigned at = 8u * ((blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u % nodes);
{_COPY if level == "shared" else ""}
    for (int i = 0; i < steps; i++) {{ {step.replace("STRIDE", "stride")} }}
    if (at == 0xffffffffu) out[0] = at;
}}
"""


_COPY = """
    __shared__ unsigned copy[48 * 1024 / 4];
    for (unsigned i = threadIdx.x; i < 8u * nodes; i += blockDim.x) copy[i] = next[i];
    __syncthreads();
    unsigned near = (unsigned)__cvta_generic_to_shared(copy);
"""


def array_bytes(gpu: GPU) -> dict[str, int]:
    """Memory level -> bytes of its array, which fits into this level but not into the one before.

    On the A100 of the paper, the arrays have 48 kB for shared memory, 150 kB for L1, 250 kB for L2 and 50 MB for DRAM.
    Here they follow from the sizes of the GPU's caches. Because the order is random, the share of hits in L2 is the
    share of the array that fits into it, so the array for DRAM is eight times as large as L2.
    """
    l1_bytes = gpu.l1_bytes or 128 * 1024
    return {
        "shared": _SHARED_BYTES,
        "l1": min(150_000, 3 * l1_bytes // 4),
        "l2": max(250_000, 5 * l1_bytes // 4),
        "dram": max(50_000_000, 8 * gpu.l2_bytes),
    }


def chain(nodes: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """An array of nodes that form a single chain in random order: each begins with the index of the next one.

    Returns shape (8 * nodes,), 32-bit integers.
    """
    order = torch.randperm(nodes, generator=torch.Generator().manual_seed(0)).to(device)
    array = torch.zeros(nodes * _WORDS, dtype=torch.int32, device=device)
    array[order * _WORDS] = (order.roll(-1) * _WORDS).to(torch.int32)
    return array


def stride(nodes: int) -> int:
    """Nodes between two stores: about 0.618 of all, coprime with them, so that all are visited before one again."""
    found = max(1, round(0.618 * nodes))
    while gcd(found, nodes) > 1:
        found += 1
    return found


class CudaChase:
    """Chases pointers on a GPU of this machine while a sensor reads its energy.

    Raises MissingDependencyError: the installed torch cannot compile kernels. Raises DeviceError: the kernels cannot be
    compiled for this GPU.
    """

    def __init__(self, device: torch.device, gpu: GPU, sensor: Sensor) -> None:
        compiled: Callable[..., Any] | None = getattr(torch.cuda, "_compile_kernel", None)
        if compiled is None:
            raise MissingDependencyError("compiling kernels needs torch 2.8 or newer", hint="pip install -U torch")
        try:
            self._kernels = {
                (level, access): compiled(source(level, access), "chase")
                for level in MEMORY_LEVELS
                for access in ACCESSES
            }
        except (RuntimeError, OSError) as error:
            raise DeviceError(
                "the kernels cannot be compiled for this GPU",
                given=str(error)[:300],
                allowed="a GPU and a driver for the CUDA version of torch",
                hint="update the driver, or install a torch that supports this GPU",
            ) from error
        self._device, self._sensor, self.now_s = device, sensor, time.monotonic
        self.multiprocessors: int = torch.cuda.get_device_properties(device).multi_processor_count
        self._sizes = array_bytes(gpu)
        self._array = lru_cache(maxsize=8)(lambda nodes, access: chain(nodes, device))
        self._out = torch.zeros(1, dtype=torch.int32, device=device)

    def run(
        self, level: str, blocks: int, threads: int, steps: int, access: str = "load", size_bytes: int | None = None
    ) -> Chase:
        """See `ChaseDevice.run`."""
        nodes = (size_bytes or self._sizes[level]) // _NODE_BYTES
        # Stores destroy their chain, so that they have an array of their own.
        arguments = [self._array(nodes, access == "store"), nodes, stride(nodes), steps, self._out]
        torch.cuda.synchronize(self._device)
        start_s = time.monotonic()
        self._kernels[level, access](grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
        torch.cuda.synchronize(self._device)
        end_s = time.monotonic()
        return Chase(end_s - start_s, self._energy_j(start_s, end_s))

    def idle(self, settle_s: float, seconds: float) -> tuple[float, float]:
        """See `ChaseDevice.idle`."""
        time.sleep(settle_s)
        start_s = time.monotonic()
        time.sleep(seconds)
        end_s = time.monotonic()
        return self._energy_j(start_s, end_s) / (end_s - start_s), (start_s + end_s) / 2

    def power(self, begin_s: float, end_s: float) -> tuple[list[float], list[float]]:
        """See `ChaseDevice.power`: means over twentieths of a second."""
        curve = self._curve(begin_s, end_s)
        edges = [begin_s + _DRAWN_S * number for number in range(int((end_s - begin_s) / _DRAWN_S) + 1)]
        joules = [float(curve.between(a, b)[0]) for a, b in pairwise(edges)]
        return [(a + b) / 2 for a, b in pairwise(edges)], [each / _DRAWN_S for each in joules]

    def _curve(self, begin_s: float, end_s: float) -> EnergyCurve:
        return EnergyCurve.of(self._sensor.window(begin_s, end_s))

    def _energy_j(self, start_s: float, end_s: float) -> float:
        joules, known = self._curve(start_s, end_s).between(start_s, end_s)
        if end_s - start_s > 1.0 and not known:
            raise SensorError(
                "the energy of a run could not be measured",
                given=f"{end_s - start_s:.1f} s with missing readings",
                allowed="readings during the whole run",
                hint="`joulecast measure --devices gpu -- sleep 2` shows what can be read",
            )
        return float(joules)


def main(level: str) -> None:
    """Run the loads of a memory level once, for a profiler of kernels."""
    device = torch.device("cuda")
    gpu = find_gpu(torch.cuda.get_device_name(device))
    with sensor_of(device) as sensor:
        chase = CudaChase(device, gpu, sensor)
        chase.run(level, chase.multiprocessors, 256, 10_000)


if __name__ == "__main__":
    main(sys.argv[1])


# What else chains of pointers show of a GPU's memory: sizes of its caches, energy over threads, and a drawing of both.
#
# The energy of an access falls with the number of threads, because a multiprocessor that is awake draws power that few
# or many accesses share. The size of a cache shows in the time of a step: a single thread follows chains through larger
# and larger arrays, and from the size of the cache on, a growing share of its steps misses.

_OCTAVES, _STEPS_OF_OCTAVE = 2, 8  # Arrays from a quarter of the catalogue's size to four times it, 9 % apart.
_FEW_MISSES = 0.1
_LEAST_RISE = 1.2  # Farther memory must take this many times as long, or there is no cache to be seen.


@dataclass(frozen=True)
class OverThreads:
    """Energy of an access over numbers of threads.

    Args:
        threads: Threads on the whole GPU: a single one first, then one block on each multiprocessor.
    """

    level: str
    threads: tuple[int, ...]
    access_j: tuple[float, ...]


@dataclass(frozen=True)
class CacheSize:
    """A cache, as the times of chains through larger and larger arrays show it.

    Args:
        miss_rate: Share of the steps in each array that missed, from their times.
        size_bytes: The largest array of whose steps at most a tenth missed.
    """

    level: str
    array_bytes: tuple[int, ...]
    miss_rate: tuple[float, ...]
    size_bytes: float


def over_threads(device: ChaseDevice, level: str) -> OverThreads:
    """Measure the energy of a load with a single thread, and with more and more threads on each multiprocessor."""
    choices = [(1, 1), *((device.multiprocessors, threads) for threads in (1, 32, *THREADS))]
    idle = [idle_of(device)]
    found = [energy_of(device, level, *choice, rate_of(device, level, *choice), "load", idle)[0] for choice in choices]
    return OverThreads(level, tuple(blocks * threads for blocks, threads in choices), tuple(found))


def sizes(device: ChaseDevice, gpu: GPU) -> tuple[CacheSize, ...]:
    """Find the sizes of L1 and L2 by a single thread that follows chains through arrays around the catalogue's sizes.

    Raises SensorError: the time of a step does not rise with the size of the array.
    """
    return tuple(
        _size(device, level, kernel, known)
        for level, kernel, known in (("l1", "l1", gpu.l1_bytes), ("l2", "dram", gpu.l2_bytes))
        if known is not None
    )


def _size(device: ChaseDevice, level: str, kernel: str, known_bytes: int) -> CacheSize:
    octaves = np.arange(-_OCTAVES * _STEPS_OF_OCTAVE, _OCTAVES * _STEPS_OF_OCTAVE + 1) / _STEPS_OF_OCTAVE
    array_bytes = (32 * np.round(known_bytes * 2**octaves / 32)).astype(int)
    step_s = np.array([1 / rate_of(device, kernel, 1, 1, size_bytes=int(size)) for size in array_bytes])
    near_s, far_s = float(np.median(step_s[:_STEPS_OF_OCTAVE])), float(step_s[-_STEPS_OF_OCTAVE // 4 :].max())
    if far_s < _LEAST_RISE * near_s:
        raise SensorError(
            f"no end of {level} can be seen in the time of a step",
            given=f"{1e9 * near_s:.3g} ns in small arrays, {1e9 * far_s:.3g} ns in large ones",
            allowed=f"a rise by {100 * (_LEAST_RISE - 1):.0f} % between {array_bytes[0]} and {array_bytes[-1]} bytes",
            hint="make sure that nothing else runs on the GPU; --gpu names a GPU whose catalogue entry is nearer",
        )
    missed = np.clip((step_s - near_s) / (far_s - near_s), 0.0, 1.0)
    first = max(1, int(np.argmax(missed > _FEW_MISSES)))
    # Between the last array that fits and the first that does not, on a logarithmic scale.
    share = (_FEW_MISSES - missed[first - 1]) / max(missed[first] - missed[first - 1], 1e-9)
    size = float(array_bytes[first - 1] * (array_bytes[first] / array_bytes[first - 1]) ** np.clip(share, 0, 1))
    return CacheSize(level, tuple(array_bytes.tolist()), tuple(missed.tolist()), size)


def hits(level: str, program: str = "ncu") -> Mapping[str, float]:
    """The share of the bytes of a chain that each memory level served, counted by Nsight Compute.

    Raises SensorError: the profiler is not there or fails. Raises InputError: it may not read the counters, or writes
    something else; see `read_counters`.
    """
    command = [program, "--csv", "--print-units", "base", "--metrics", ",".join(metrics()), "-k", "regex:chase"]
    command += [sys.executable, "-m", f"{__package__}.chase_kernels", level]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise SensorError(
            "Nsight Compute cannot be run", given=str(error), allowed="ncu on the PATH", hint="install Nsight Compute"
        ) from error
    served = counters_of((ran.stdout + ran.stderr).splitlines(), f"{program} {level}").traffic_bytes
    total = sum(value or 0.0 for value in served.values())
    return {each: (served[each] or 0.0) / total if total else 0.0 for each in MEMORY_LEVELS}


def drawn(
    device: ChaseDevice, calibration: Calibration, threads: OverThreads | None, caches: Sequence[CacheSize]
) -> str:
    """An SVG of power over the phases t0 to t5 of the first sweep, energy over threads, and misses over sizes."""
    plt = pyplot()
    with plt.rc_context(CHART_STYLE):
        panels = 1 + (threads is not None) + len(caches)
        figure, axes = plt.subplots(1, panels, figsize=(3.6 * panels, 3), squeeze=False, layout="constrained")
        _draw_phases(axes[0][0], device, calibration.phases_s)
        if threads is not None:
            axes[0][1].loglog(threads.threads, 1e12 * np.array(threads.access_j), "o-", color=ACCENT)
            axes[0][1].set(title=f"{threads.level}: energy of an access", xlabel="threads", ylabel="pJ for 32 bytes")
        for one, cache in zip(axes[0][panels - len(caches) :], caches, strict=True):
            one.semilogx(cache.array_bytes, 100 * np.array(cache.miss_rate), ".-", color=ACCENT)
            one.axvline(cache.size_bytes, color=FAINT)
            one.set(
                title=f"{cache.level}: {cache.size_bytes / 1024:,.0f} KiB", xlabel="bytes of array", ylabel="misses, %"
            )
        drawing = svg_of(figure)
        plt.close(figure)
    return drawing


def _draw_phases(one: Any, device: ChaseDevice, phases_s: Sequence[float]) -> None:
    at_s, watts = device.power(phases_s[0], phases_s[-1])
    seconds: FloatArray = np.array(at_s) - phases_s[0]
    one.plot(seconds, watts, color=ACCENT)
    for number, at in enumerate(phases_s):
        one.axvline(at - phases_s[0], color=FAINT, linewidth=0.8)
        one.annotate(f"t{number}", (at - phases_s[0], 1), xycoords=("data", "axes fraction"), color=FAINT)
    one.set(title="First sweep", xlabel="seconds", ylabel="board power, W")
