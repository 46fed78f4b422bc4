"""The roofline (Williams, Waterman and Patterson, CACM 2009): the least times that a data sheet allows.

An operation takes at least its FLOPs over the peak rate, and at least its bytes over the memory bandwidth.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError
from ...hardware import GPU
from ...operations.attributes import PRECISIONS
from ...operations.operation import Operation
from .operation_numbers import numbers_of

LEAST_TIME_S = 1e-9
"""Seconds of an operation without any work; above zero, so that its logarithm exists."""


@dataclass(frozen=True)
class Roofline:
    """The least times that a GPU needs.

    Args:
        compute_s: Seconds for the FLOPs at the peak rate, shape (operations,).
        memory_s: Seconds for the bytes at the data sheet's bandwidth, shape (operations,).
    """

    compute_s: FloatArray
    memory_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """max(FLOPs / peak, bytes / bandwidth)."""
        return np.maximum(np.maximum(self.compute_s, self.memory_s), LEAST_TIME_S)

    @property
    def bounds(self) -> list[Literal["compute", "memory"]]:
        """Which of the two takes longer."""
        return ["compute" if more else "memory" for more in (self.compute_s > self.memory_s).tolist()]


def roofline(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Roofline:
    """Least compute and memory time of each operation on a GPU at a clock.

    Compute scales with the graphics clock, memory does not.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return _roofline(numbers_of(operations), gpu, clock_mhz)


def _roofline(n: Any, gpu: GPU, clock_mhz: float) -> Roofline:
    ratio = clock_mhz / gpu.boost_clock_mhz
    compute_s = n.flops / (peak_flops(n.precision, gpu) * ratio)
    return Roofline(compute_s, (n.bytes_read + n.bytes_written) / gpu.memory_bandwidth)


def peak_flops(precision: FloatArray, gpu: GPU) -> FloatArray:
    """Peak FLOPs per second of each operation at the boost clock, in the precision that it really runs in."""
    return of_precisions(precision, gpu, _peak_flops(gpu))


def on_tensor_cores(n: Any, gpu: GPU) -> Any:
    """Whether each operation has a precision whose products run on the GPU's tensor cores (`GPU.on_tensor_cores`).

    Returns:
        One truth value per operation.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return of_precisions(n.precision, gpu, _on_tensor_cores(gpu)) > 0


@lru_cache(maxsize=512)
def _peak_flops(gpu: GPU) -> FloatArray:
    return precision_table(gpu, lambda precision: gpu.peak_flops[gpu.running_precision(precision)])


@lru_cache(maxsize=512)
def _on_tensor_cores(gpu: GPU) -> FloatArray:
    return precision_table(gpu, gpu.on_tensor_cores)


def precision_table(gpu: GPU, value: Callable[[str], float]) -> FloatArray:
    """A value for each of `PRECISIONS`; NaN for those that the GPU does not support. See `of_precisions`."""
    table = np.full(len(PRECISIONS), np.nan)
    for place, precision in enumerate(PRECISIONS):
        with contextlib.suppress(InputError):
            gpu.running_precision(precision)
            table[place] = value(precision)
    return table


def of_precisions(places: FloatArray, gpu: GPU, table: FloatArray) -> FloatArray:
    """A value for each operation that depends on its precision only.

    Args:
        places: Index of each operation's precision in PRECISIONS, shape (operations,).
        gpu: The GPU that they run on.
        table: What `precision_table` made for this GPU; it is cached, because physics look it up a dozen times.

    Returns:
        Shape (operations,).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    at = places.astype(int)
    found: FloatArray = table[at]
    if math.isnan(found.sum()):
        gpu.running_precision(PRECISIONS[at[np.isnan(found)][0]])  # raises
    return found
