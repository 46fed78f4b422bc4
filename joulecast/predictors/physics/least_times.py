"""The least device time of operations on any GPU at any clock: physics with a handful of constants.

An operation needs time for computing, for DRAM, and for the transfer between them through caches and load units. The
first and the last scale with the graphics clock; DRAM has a clock of its own. At low clocks, therefore, memory-bound
work becomes slower, too. The three parts overlap, but not perfectly: their p-norm is the least time (norms.py).
energy.py computes the energy of work, clock.py the effect of another clock or of a power cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES, HALF_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .cached import cached
from .convolutions import dense_convolutions, transposed_bytes
from .norms import cubed, overlapped
from .operation_numbers import numbers_of
from .pytorch_kernels import extra_bytes, thread_kernels_s, waiting_s
from .roofline import chosen_clock_mhz, half_at_lower_rate, on_tensor_cores, reached_bandwidth, roofline
from .tiling import LOADED_TILE, loaded_tile

_LEAST_S = 1e-9
# Bytes per clock that an SM moves, about half of the 64 that its L1 can deliver. It fits the A100's networks in bf16 at
# 510 MHz.
_SM_BYTES = 36.0


@dataclass(frozen=True)
class LeastTimes:
    """The least seconds of each operation for computing, for DRAM, and for the transfer between; shape (operations,).

    Of several GPUs, arrays have the shape (gpus, operations) here and everywhere else (`Boards`).

    Args:
        compute_s: Seconds of computing at one clock; inversely proportional to the clock.
        memory_s: Seconds of DRAM; the same at any clock.
        cache_s: Seconds of caches and load units at one clock; inversely proportional to the clock.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    cache_s: FloatArray

    @staticmethod
    def of(operations: Sequence[Operation], gpu: GPU, clock_mhz: float | None = None) -> LeastTimes:
        """Least times of operations on a GPU at a clock, None for its default."""
        return _least_times(OperationList.of(operations), gpu, clock_mhz)

    def slowed(self, factor: FloatArray | float) -> Self:
        """These times at a clock that is lower by a factor, one for all operations or one for each."""
        return type(self)(self.compute_s * factor, self.memory_s, self.cache_s * factor)

    @cached_property
    def time_s(self) -> FloatArray:
        """The p-norm of the three, at least a nanosecond."""
        return np.maximum(self.overlapped_s, _LEAST_S)

    @cached_property
    def overlapped_s(self) -> FloatArray:
        """The p-norm of the three, p = 3."""
        norm: FloatArray = overlapped(self.compute_s, self.cache_s, self.memory_s)
        return norm


@cached
def _least_times(operations: OperationList, gpu: GPU, at_mhz: float | None) -> LeastTimes:
    clock_mhz = gpu.boost_clock_mhz if at_mhz is None else at_mhz
    line = roofline(operations, gpu, clock_mhz)
    n = numbers_of(operations)
    is_half = n.element_bytes == HALF_BYTES
    half_on_tensor = is_half & on_tensor_cores(n, gpu)
    moved = n.bytes_read + n.bytes_written + extra_bytes(n) + transposed_bytes(n, gpu)
    # Other kernels than products move one element per instruction, so narrower elements need as many instructions.
    passed = moved * np.where(is_half & (n.is_product == 0), 4 / HALF_BYTES, 1.0)
    # Each tile of a product loads its own rows and columns from the cache, also those that other tiles load, too.
    loaded = np.where(half_on_tensor, loaded_tile(n.rows, gpu), LOADED_TILE)
    tiles_s = n.is_product * n.flops * n.element_bytes / loaded
    way = _SM_BYTES * gpu.sms * clock_mhz * 1e6
    parts = np.array([line.compute_s, moved / reached_bandwidth(gpu), (passed + tiles_s) / way])
    _put_convolutions(parts, operations, gpu, clock_mhz, way)
    if is_half.any():
        # In fp32, what was learned of boards for desks contains the clock that they choose.
        parts[::2, ..., is_half] *= gpu.boost_clock_mhz / np.maximum(chosen_clock_mhz(gpu), gpu.boost_clock_mhz)
        parts[0] *= np.where(half_on_tensor & (n.is_product > 0), half_at_lower_rate(gpu), 1.0)
    parts[0] = np.maximum(parts[0], thread_kernels_s(operations, gpu, clock_mhz))
    waited_s = waiting_s(n, gpu, clock_mhz, parts[1])
    if waited_s.any():
        # One kernel after the other, of which the waiting one follows the clock.
        others = cubed(parts[1:]).sum(axis=0)
        together_s = np.cbrt(cubed(parts[0]) + others) + waited_s
        parts[0] = np.where(waited_s > 0, np.cbrt(cubed(together_s) - others), parts[0])
    return LeastTimes(*parts)


def _put_convolutions(
    parts: FloatArray, operations: Sequence[Operation], gpu: GPU, clock_mhz: float, way: float
) -> None:
    """Replace the least times of dense convolutions by those of the algorithm that cuDNN takes.

    Parts are seconds of computing, DRAM and caches, shape (3, ..., operations), and changed in place.
    """
    dense = OperationList.of(operations).derived(dense_convolutions)
    # cuDNN's algorithms for fp64 are not known, so these convolutions count their FLOPs.
    known = dense.element_bytes != ELEMENT_BYTES["fp64"]
    if not known.any():
        return
    work = dense.least(gpu)
    compute_s, memory_s = work.compute_s, work.bytes / reached_bandwidth(gpu)
    cache_s = (work.bytes + work.flops * dense.element_bytes / LOADED_TILE) / way
    together = overlapped(compute_s, memory_s)
    # Computed at the boost clock and scaled afterwards, so that each part follows the clock as for other operations.
    longer = np.where(work.in_turn, (compute_s + memory_s) / np.maximum(together, _LEAST_S), 1.0)
    slower = gpu.boost_clock_mhz / clock_mhz
    put = np.array([compute_s * slower, memory_s, cache_s]) * longer
    parts[..., dense.places[known]] = put[..., known]
