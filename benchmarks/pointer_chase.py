"""The energy of an access to shared memory, L1, L2 and DRAM of an NVIDIA GPU, by kernels that chase pointers.

    python benchmarks/pointer_chase.py --out my-gpu.toml [--clock 1065] [--access store] [--threads l1] [--sizes]

It takes about four minutes on an idle GPU; docs/memory-levels.md describes the method, which is that of Delestrac et
al., ASAP 2024 (access_energy.py). The kernels are compiled by NVRTC, which comes with torch. Each node of an array has
32 bytes and begins with the index of the next one. The chain visits all nodes in random order, so neither cache lines
nor prefetching make a later step faster. Loads with the suffix .ca use the L1 cache; those with .cg use only the L2
cache and DRAM. The source compiles with NVRTC 12.9, but has not run on a GPU yet.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import torch
from access_energy import (
    ACCESSES,
    RUNS,
    CacheSize,
    Calibration,
    Chase,
    ChaseDevice,
    OverThreads,
    calibrate,
    over_threads,
    sizes,
)
from charts import CHART_STYLE

from joulecast.errors import DeviceError, JoulecastError, MissingDependencyError, SensorError
from joulecast.hardware import GPU, find_gpu
from joulecast.hardware.description import gpu_toml
from joulecast.hardware.gpu import MEMORY_LEVELS
from joulecast.hardware.ncu import counters_of, metrics
from joulecast.metering import Sensor
from joulecast.metering.energy_curve import EnergyCurve
from joulecast.predictors.physics.energy import relative_voltage
from joulecast.profiling.devices import clocks_of, find_device, sensor_of
from joulecast.rendering.plots import ACCENT, FAINT, saved
from joulecast.units import si

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


def hits(level: str, program: str = "ncu") -> Mapping[str, float]:
    """The share of the bytes of a chain that each memory level served, counted by Nsight Compute.

    Raises SensorError: the profiler is not there or fails. Raises InputError: it may not read the counters, or writes
    something else; see `read_counters`.
    """
    command = [program, "--csv", "--print-units", "base", "--metrics", ",".join(metrics()), "-k", "regex:chase"]
    try:
        ran = subprocess.run([*command, sys.executable, __file__, "--once", level], capture_output=True, text=True)
    except OSError as error:
        raise SensorError(
            "Nsight Compute cannot be run", given=str(error), allowed="ncu on the PATH", hint="install Nsight Compute"
        ) from error
    served = counters_of((ran.stdout + ran.stderr).splitlines(), f"{program} {level}")
    total = sum(value or 0.0 for value in served.values())
    return {each: (served[each] or 0.0) / total if total else 0.0 for each in MEMORY_LEVELS}


def draw(
    path: Path, device: ChaseDevice, found: Calibration, threads: OverThreads | None, caches: Sequence[CacheSize]
) -> None:
    """Draw power over the phases t0 to t5 of the first sweep, energy over threads, and misses over sizes."""
    panels = 1 + (threads is not None) + len(caches)
    with saved(path, 1, panels, CHART_STYLE, figsize=(3.6 * panels, 3), squeeze=False) as ((first, *others),):
        at_s, watts = device.power(found.phases_s[0], found.phases_s[-1])
        first.plot(np.array(at_s) - found.phases_s[0], watts, color=ACCENT)
        for number, at in enumerate(found.phases_s):
            first.axvline(at - found.phases_s[0], color=FAINT, linewidth=0.8)
            first.annotate(f"t{number}", (at - found.phases_s[0], 1), xycoords=("data", "axes fraction"), color=FAINT)
        first.set(title="First sweep", xlabel="seconds", ylabel="board power, W")
        if threads is not None:
            others[0].loglog(threads.threads, 1e12 * np.array(threads.access_j), "o-", color=ACCENT)
            others[0].set(title=f"{threads.level}: energy of an access", xlabel="threads", ylabel="pJ for 32 bytes")
        for one, cache in zip(others[len(others) - len(caches) :], caches, strict=True):
            one.semilogx(cache.array_bytes, 100 * np.array(cache.miss_rate), ".-", color=ACCENT)
            one.axvline(cache.size_bytes, color=FAINT)
            title = f"{cache.level}: {cache.size_bytes / 1024:,.0f} KiB"
            one.set(title=title, xlabel="bytes of array", ylabel="misses, %")


def described(gpu: GPU, found: Calibration, clock_mhz: int | None) -> GPU:
    """The GPU with its measured energies. Those of the catalogue hold at the boost clock."""
    logic = (
        1.0 if clock_mhz is None else float(relative_voltage(gpu, clock_mhz)[0]) ** -2
    )  # on the chip: voltage squared
    joules = {level: each * (1 if level == "dram" else logic) for level, each in found.access_energy_j.items()}
    source = f"access_energy_j: benchmarks/pointer_chase.py on this {gpu.name}"
    return replace(gpu, access_energy_j=joules, sources=(*gpu.sources, source))


def report(found: Calibration, threads: OverThreads | None, caches: Sequence[CacheSize]) -> str:
    """All energies and sizes, and reasons to doubt them."""
    lines = ["| level | access | 32 bytes | spread of sweeps | blocks x threads | accesses |", "| --- " * 6 + "|"]
    lines += [
        f"| {each.level} | {each.access} | {1e12 * each.access_j:.4g} pJ | {100 * (each.spread - 1):.1f} % | "
        f"{each.blocks} x {each.threads} | {si(each.accesses_per_s, '')}/s |"
        for each in found.levels
    ]
    lines += [f"without work: {', '.join(f'{watts:.1f}' for watts in found.idle_w)} W"]
    lines += [f"note: {note}" for note in found.notes]
    if threads is not None:
        pairs = zip(threads.threads, threads.access_j, strict=True)
        lines += [f"{threads.level}, {number:,} threads: {1e12 * joules:.4g} pJ" for number, joules in pairs]
    return "\n".join(
        [*lines, *(f"{cache.level}: {cache.size_bytes / 1024:,.0f} KiB, from the time of a step" for cache in caches)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpu", help="its name in the catalogue, where it is not that of its driver")
    parser.add_argument("--clock", type=int, help="graphics clock in MHz to lock meanwhile")
    parser.add_argument("--access", action="append", choices=ACCESSES, help="load where none is given")
    parser.add_argument("--threads", choices=MEMORY_LEVELS, help="also the energy of its loads over numbers of threads")
    parser.add_argument("--sizes", action="store_true", help="also the sizes of L1 and L2")
    parser.add_argument("--hits", action="store_true", help="also which level served the loads, counted by ncu")
    parser.add_argument("--picture", type=Path, help="draw power over time, threads and sizes into this SVG file")
    parser.add_argument("--out", type=Path, help="write the GPU with its energies to this TOML file")
    parser.add_argument("--once", choices=MEMORY_LEVELS, help="run the loads of one level once, for ncu")
    asked = parser.parse_args()
    if asked.out is not None and asked.out.exists():
        parser.error(f"{asked.out} exists already")
    try:
        board = find_device(asked.device)
        gpu = find_gpu(asked.gpu or torch.cuda.get_device_name(board))
        with sensor_of(board) as sensor:
            chase = CudaChase(board, gpu, sensor)
            if asked.once:
                chase.run(asked.once, chase.multiprocessors, 256, 10_000)
                return
            if asked.clock is not None:
                clocks_of(board).check(asked.clock)
            with nullcontext() if asked.clock is None else clocks_of(board).locked(asked.clock):
                found = calibrate(chase, RUNS, accesses=asked.access or ("load",))
                threads = None if asked.threads is None else over_threads(chase, asked.threads)
                caches = sizes(chase, gpu) if asked.sizes else ()
            if asked.picture is not None:
                draw(asked.picture, chase, found, threads, caches)
        print(report(found, threads, caches))
        for level in MEMORY_LEVELS if asked.hits else ():
            print(f"{level}: {', '.join(f'{100 * share:.0f} % from {each}' for each, share in hits(level).items())}")
    except JoulecastError as error:
        sys.exit(f"error: {error}")
    if asked.out is not None:
        asked.out.write_text(gpu_toml(described(gpu, found, asked.clock)), encoding="utf-8")
        print(f"wrote {asked.out}; use it with --gpu {asked.out}")


if __name__ == "__main__":
    main()
