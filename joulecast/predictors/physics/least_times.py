"""The least device time of operations on any GPU at any clock: physics with a handful of constants.

Compute scales with the graphics clock, DRAM does not, and the caches and load units between them do: at low clocks they
slow memory-bound work down, too. The three overlap, but not wholly; their p-norm is the least time. What work costs in
energy, energy.py says; what another clock or a power cap changes, clock.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.precisions import ELEMENT_BYTES
from .bandwidth import reached_bandwidth
from .cached import ON_EACH_GPU, cached
from .features import dense_convolutions
from .norms import cubed, overlapped
from .operation_numbers import FAMILIES, numbers_of
from .roofline import on_tensor_cores, roofline
from .tensor_tiles import LOADED_TILE, loaded_tile, tile_slowdown

_LEAST_S = 1e-9
# Bytes per clock that an SM moves: half of the 64 that its L1 is built for. Fits the A100's bf16 networks at 510 MHz.
_SM_BYTES = 36.0
_CONVOLUTION = FAMILIES.index("convolution")
_HALF = 2.0  # Bytes of an element.


@dataclass(frozen=True)
class LeastTimes:
    """The least seconds that each operation needs: for computing, for DRAM, and for the way between.

    Args:
        compute_s, cache_s: At the clock they were made for; they scale with it.
        memory_s: At any clock.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    cache_s: FloatArray

    @staticmethod
    def of(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> LeastTimes:
        """Least times of operations on a GPU at a clock."""
        return _least_times(OperationList.of(operations), gpu, clock_mhz)

    def slowed(self, factor: FloatArray | float) -> Self:
        """The same at a clock that is lower by a factor."""
        return type(self)(self.compute_s * factor, self.memory_s, self.cache_s * factor)

    @cached_property
    def time_s(self) -> FloatArray:
        """The p-norm of the three, at least a nanosecond."""
        return np.maximum(self.overlapped_s, _LEAST_S)

    @cached_property
    def overlapped_s(self) -> FloatArray:
        """The p-norm of the three, p = 3."""
        return self.slowed_s(1.0)

    def slowed_s(self, factor: FloatArray | float) -> FloatArray:
        """The p-norm at a clock that is lower by a factor; a sweep over clocks asks for little else."""
        on_clock, off_clock = self._cubes
        norm: FloatArray = np.cbrt(on_clock * cubed(np.asarray(factor)) + off_clock)
        return norm

    @cached_property
    def _cubes(self) -> tuple[FloatArray, FloatArray]:
        """Of what scales with the clock, and of what does not."""
        return cubed(self.compute_s) + cubed(self.cache_s), cubed(self.memory_s)

    def times(self, ratio: FloatArray) -> Self:
        """Each of the three longer by a ratio, and so is their p-norm."""
        return type(self)(self.compute_s * ratio, self.memory_s * ratio, self.cache_s * ratio)


@cached(ON_EACH_GPU)
def _least_times(operations: OperationList, gpu: GPU, clock_mhz: float) -> LeastTimes:
    line = roofline(operations, gpu, clock_mhz)
    n = numbers_of(operations)
    is_half = n.element_bytes == _HALF
    moved = n.bytes_read + n.bytes_written
    # An instruction moves an element, however narrow.
    passed = moved * np.where(is_half & (n.is_product == 0), 4 / _HALF, 1.0)
    # A tile of a product reads its rows and columns for itself, from the cache.
    in_half_tiles = is_half & on_tensor_cores(n, gpu)
    loaded = np.where(in_half_tiles, loaded_tile(n.rows, gpu), LOADED_TILE)
    tiles_s = n.is_product * n.computed_flops * n.element_bytes / loaded
    compute_s, way = line.compute_s, _SM_BYTES * gpu.sms * clock_mhz * 1e6
    in_tiles = in_half_tiles & (n.is_product > 0) & (n.family != _CONVOLUTION)
    if in_tiles.any():
        slower = np.where(in_tiles, tile_slowdown(n, gpu) * n.flops / np.maximum(n.computed_flops, 1.0), 1.0)
        # (only what tiles compute and read is padded: a weight that one row meets passes once, as any does)
        compute_s, tiles_s = compute_s * slower, tiles_s * slower
    parts = np.array([compute_s, moved / reached_bandwidth(gpu), (passed + tiles_s) / way])
    _put_convolutions(parts, operations, gpu, clock_mhz, way)
    return LeastTimes(*parts)


def _put_convolutions(
    parts: FloatArray, operations: Sequence[Operation], gpu: GPU, clock_mhz: float, way: float
) -> None:
    """Put the least times of dense convolutions in the place of what their FLOPs alone say; way in bytes per second.

    Those on tensor cores stay as they are: their blocks and splits are not known, and whole waves of 128 x 64 make
    small batches several times slower than FLOPs do (with them, ResNet-101 on A100 and A10 came out far too slow).
    """
    dense = OperationList.of(operations).derived(dense_convolutions)
    # (of fp64 nobody knows cuDNN's algorithms: its FLOPs count)
    on_pipes = ~on_tensor_cores(dense, gpu) & (dense.element_bytes != ELEMENT_BYTES["fp64"])
    work = dense.least(gpu)
    compute_s, memory_s = work.flops / gpu.peak_flops["fp32"], work.bytes / reached_bandwidth(gpu)
    cache_s = (work.bytes + work.flops * dense.element_bytes / LOADED_TILE) / way
    together = overlapped(compute_s, memory_s)
    # At the boost clock, so that each part follows the clock as it does elsewhere.
    longer = np.where(work.in_turn, (compute_s + memory_s) / np.maximum(together, _LEAST_S), 1.0)
    slower = gpu.boost_clock_mhz / clock_mhz
    put = np.array([compute_s * slower, memory_s, cache_s]) * longer
    parts[:, dense.places[on_pipes]] = put[:, on_pipes]
