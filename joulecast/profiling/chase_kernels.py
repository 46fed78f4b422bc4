"""Kernels that chase pointers through one memory level of an NVIDIA GPU, compiled by NVRTC, which comes with torch.

Each node of an array has 32 bytes and begins with the index of the next one. The chain visits all nodes in random
order, so neither cache lines nor prefetching make a later step faster. Loads with the suffix .ca use the L1 cache;
those with .cg use only the L2 cache and DRAM. The source compiles with NVRTC 12.9, but has not run on a GPU yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ..errors import DeviceError, MissingDependencyError, SensorError
from ..hardware import GPU
from ..metering.energy_curve import EnergyCurve
from ..metering.sensor import Sensor
from .calibration import Chase

_NODE_BYTES = 32
_WORDS = _NODE_BYTES // 4
_SHARED_BYTES = 48 * 1024  # Shared memory of a block that every GPU grants by default.

SOURCE = r"""
#define STEP(KIND, TYPE) asm volatile("ld." KIND ".u32 %0, [%1];" : "=r"(at) : TYPE(next + at))
#define START(NODES) (8u * ((blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u % (NODES)))

extern "C" __global__ void chase_l1(const unsigned *next, int nodes, int steps, unsigned *out) {
    unsigned at = START((unsigned)nodes);
    for (int i = 0; i < steps; i++) STEP("global.ca", "l");
    if (at == 0xffffffffu) out[0] = at;
}

extern "C" __global__ void chase_l2(const unsigned *next, int nodes, int steps, unsigned *out) {
    unsigned at = START((unsigned)nodes);
    for (int i = 0; i < steps; i++) STEP("global.cg", "l");
    if (at == 0xffffffffu) out[0] = at;
}

extern "C" __global__ void chase_shared(const unsigned *next, int nodes, int steps, unsigned *out) {
    __shared__ unsigned near[48 * 1024 / 4];
    for (int i = threadIdx.x; i < 8 * nodes; i += blockDim.x) near[i] = next[i];
    __syncthreads();
    unsigned at = START((unsigned)nodes);
    for (int i = 0; i < steps; i++) at = ((volatile unsigned *)near)[at];
    if (at == 0xffffffffu) out[0] = at;
}
"""
"""One kernel for each kind of load. DRAM is measured by the kernel of L2, with an array that is larger than L2."""

KERNELS = {"shared": "chase_shared", "l1": "chase_l1", "l2": "chase_l2", "dram": "chase_l2"}


def array_bytes(gpu: GPU) -> dict[str, int]:
    """Memory level -> bytes of its array, which fits into this level but not into the one before.

    On the A100 of the paper, the arrays have 48 kB for shared memory, 150 kB for L1, 250 kB for L2 and 50 MB for DRAM.
    Here they follow from the sizes of the GPU's caches. Because the order is random, the share of hits in L2 is the
    share of the array that fits into it, so the array for DRAM is eight times as large as L2.

    Args:
        gpu: The GPU, with the sizes of its caches.
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

    Returns:
        Shape (8 * nodes,), 32-bit integers.
    """
    order = torch.randperm(nodes, generator=torch.Generator().manual_seed(0)).to(device)
    array = torch.zeros(nodes * _WORDS, dtype=torch.int32, device=device)
    array[order * _WORDS] = (order.roll(-1) * _WORDS).to(torch.int32)
    return array


class CudaChase:
    """Chases pointers on a GPU of this machine while a sensor reads its energy.

    Args:
        device: The GPU.
        gpu: The GPU in the catalogue.
        sensor: Power sensor of the GPU, which was entered.

    Raises:
        MissingDependencyError: The installed torch cannot compile kernels.
        DeviceError: The kernels cannot be compiled for this GPU.
    """

    def __init__(self, device: torch.device, gpu: GPU, sensor: Sensor) -> None:
        compiled: Callable[..., Any] | None = getattr(torch.cuda, "_compile_kernel", None)
        if compiled is None:
            raise MissingDependencyError("compiling kernels needs torch 2.8 or newer", hint="pip install -U torch")
        try:
            self._kernels = {level: compiled(SOURCE, name) for level, name in KERNELS.items()}
        except (RuntimeError, OSError) as error:
            raise DeviceError(
                "the kernels cannot be compiled for this GPU",
                given=str(error)[:300],
                allowed="a GPU and a driver for the CUDA version of torch",
                hint="update the driver, or install a torch that supports this GPU",
            ) from error
        self._device, self._sensor = device, sensor
        self._nodes = {level: size // _NODE_BYTES for level, size in array_bytes(gpu).items()}
        self._arrays = {level: chain(nodes, device) for level, nodes in self._nodes.items()}
        self._out = torch.zeros(1, dtype=torch.int32, device=device)

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors of the GPU."""
        count: int = torch.cuda.get_device_properties(self._device).multi_processor_count
        return count

    def run(self, level: str, blocks: int, threads: int, steps: int) -> Chase:
        """See `ChaseDevice.run`."""
        torch.cuda.synchronize(self._device)
        start_s = time.monotonic()
        arguments = [self._arrays[level], self._nodes[level], steps, self._out]
        self._kernels[level](grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
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

    def now_s(self) -> float:
        """Monotonic time in seconds."""
        return time.monotonic()

    def _energy_j(self, start_s: float, end_s: float) -> float:
        joules, known = EnergyCurve.of(self._sensor.window(start_s, end_s)).between(start_s, end_s)
        if end_s - start_s > 1.0 and not known:
            raise SensorError(
                "the energy of a run could not be measured",
                given=f"{end_s - start_s:.1f} s with missing readings",
                allowed="readings during the whole run",
                hint="`joulecast measure --devices gpu -- sleep 2` shows what can be read",
            )
        return float(joules)
