"""The roofline (Williams, Waterman and Patterson, CACM 2009): the least times that a data sheet allows.

An operation takes at least its FLOPs over the peak rate, and at least its bytes over the memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from .operation_numbers import by_precision, numbers_of
from .whole_waves import computed_flops

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

    Compute scales with the graphics clock, memory does not. A library computes small batched products in whole blocks,
    so all FLOPs of these blocks count, also those beyond the edges of the output.

    Args:
        operations: The operations.
        gpu: The GPU that they run on.
        clock_mhz: Graphics clock in MHz.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return _roofline(numbers_of(operations), gpu, clock_mhz)


def tiled_roofline(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Roofline:
    """The roofline with products computed in whole waves of blocks (whole_waves.py), which a predictor of one GPU uses.

    Args:
        operations: The operations.
        gpu: The GPU that they run on.
        clock_mhz: Graphics clock in MHz.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    n = numbers_of(operations)
    return _roofline(n._replace(computed_flops=computed_flops(n, gpu, on_tensor_cores(n, gpu))), gpu, clock_mhz)


def _roofline(n: Any, gpu: GPU, clock_mhz: float) -> Roofline:
    ratio = clock_mhz / gpu.boost_clock_mhz
    compute_s = n.computed_flops / (peak_flops(n.precision, gpu) * ratio)
    return Roofline(compute_s, (n.bytes_read + n.bytes_written) / gpu.memory_bandwidth)


def peak_flops(precision: FloatArray, gpu: GPU) -> FloatArray:
    """Peak FLOPs per second of each operation at the boost clock, in the precision that it really runs in.

    Args:
        precision: Index of each operation's precision in `PRECISIONS`, shape (operations,).
        gpu: The GPU that they run on.
    """
    return by_precision(precision, lambda p: gpu.peak_flops[gpu.running_precision(p)])


def on_tensor_cores(n: Any, gpu: GPU) -> Any:
    """Whether each operation has a precision whose products run on the GPU's tensor cores (`GPU.on_tensor_cores`).

    Args:
        n: Numbers of operations (`numbers_of`).
        gpu: The GPU that they run on.

    Returns:
        One truth value per operation.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return by_precision(n.precision, gpu.on_tensor_cores) > 0
