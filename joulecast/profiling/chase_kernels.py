"""Kernels that chase pointers through one memory level of an NVIDIA GPU, compiled by NVRTC, which comes with torch.

Each node of an array has 32 bytes and begins with the index of the next one. The chain visits all nodes in random
order, so neither cache lines nor prefetching make a later step faster. Loads with the suffix .ca use the L1 cache;
those with .cg use only the L2 cache and DRAM. The source compiles with NVRTC 12.9, but has not run on a GPU yet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Any

import torch

from ..errors import DeviceError, MissingDependencyError, SensorError
from ..hardware import GPU, find_gpu
from ..hardware.gpu import MEMORY_LEVELS
from ..metering.energy_curve import EnergyCurve
from ..metering.sensor import Sensor
from .calibration import ACCESSES, Chase
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
        self._device, self._sensor = device, sensor
        self._sizes = array_bytes(gpu)
        self._array = lru_cache(maxsize=8)(lambda nodes, access: chain(nodes, device))
        self._out = torch.zeros(1, dtype=torch.int32, device=device)

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors of the GPU."""
        count: int = torch.cuda.get_device_properties(self._device).multi_processor_count
        return count

    def run(
        self, level: str, blocks: int, threads: int, steps: int, access: str = "load", size_bytes: int | None = None
    ) -> Chase:
        """See `ChaseDevice.run`."""
        start_s, end_s = self.launch(level, blocks, threads, steps, access, size_bytes)
        return Chase(end_s - start_s, self._energy_j(start_s, end_s))

    def launch(
        self, level: str, blocks: int, threads: int, steps: int, access: str = "load", size_bytes: int | None = None
    ) -> tuple[float, float]:
        """Run a kernel; when it began and ended, in monotonic seconds. See `ChaseDevice.run`."""
        nodes = (size_bytes or self._sizes[level]) // _NODE_BYTES
        # Stores destroy their chain, so that they have an array of their own.
        arguments = [self._array(nodes, access == "store"), nodes, stride(nodes), steps, self._out]
        torch.cuda.synchronize(self._device)
        start_s = time.monotonic()
        self._kernels[level, access](grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
        torch.cuda.synchronize(self._device)
        return start_s, time.monotonic()

    def idle(self, settle_s: float, seconds: float) -> tuple[float, float]:
        """See `ChaseDevice.idle`."""
        time.sleep(settle_s)
        start_s = time.monotonic()
        time.sleep(seconds)
        end_s = time.monotonic()
        return self._energy_j(start_s, end_s) / (end_s - start_s), (start_s + end_s) / 2

    def now_s(self) -> float:
        """Monotonic time in seconds."""
        return time.monotonic()

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
        chase.launch(level, chase.multiprocessors, 256, 10_000)


if __name__ == "__main__":
    main(sys.argv[1])
