"""What else chains of pointers show of a GPU's memory: sizes of its caches, energy over threads, and a drawing of both.

The energy of an access falls with the number of threads, because a multiprocessor that is awake draws power that few or
many accesses share. The size of a cache shows in the time of a step: a single thread follows chains through larger and
larger arrays, and from the size of the cache on, a growing share of its steps misses.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import SensorError
from ..hardware import GPU
from ..hardware.gpu import MEMORY_LEVELS
from ..hardware.ncu import counters_of, metrics
from ..rendering.plots import ACCENT, CHART_STYLE, FAINT, pyplot, svg_of
from .calibration import THREADS, Calibration, ChaseDevice, energy_of, idle_of, rate_of

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
