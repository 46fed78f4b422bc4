"""The least device time of operations on any GPU at any clock: physics with a handful of constants.

Compute scales with the graphics clock, DRAM does not, and the caches and load units between them do: at low clocks they
slow memory-bound work down, too. The three overlap, but not wholly; their p-norm is the least time. What work costs in
energy, energy.py says; what another clock or a power cap changes, clock.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .bandwidth import reached_bandwidth
from .cached import ON_EACH_GPU, cached
from .features import dense_convolutions
from .operation_numbers import FAMILIES, KIND_PLACES, numbers_of
from .roofline import peak_flops, roofline

_LEAST_S = 1e-9
# Bytes per clock that an SM moves: half of the 64 that its L1 is built for. Fits the A100's bf16 networks at 510 MHz.
_SM_BYTES = 36.0
# Rows and columns of the tiles that tensor cores compute half precision in, and what each reaches of the best:
# libraries take the one that fills the multiprocessors best. The shares are round numbers, looked at on the A100's
# networks.
_HALF_TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.85), (64, 128, 0.65), (128, 64, 0.65), (64, 64, 0.5))
_ATTENTION_ROWS = 64.0  # Of a tile of FlashAttention: four warps of 16 (Dao, arXiv 2307.08691).
_CONVOLUTION = FAMILIES.index("convolution")
_HALF = 2.0  # Bytes of an element.
_TILE = 128.0  # Rows and columns of the tiles that products are computed in: 2 x 128^2 FLOPs for 2 x 128 elements.
# Tensor cores are fed from shared memory, where each warp loads what its part of a tile needs: 64 x 64 at most, because
# the sums must fit into its registers. What an SM multiplies in a clock differs fourfold (A100 2048 FLOPs, A10 1024,
# GeForce 512 with sums in fp32), what it loads does not: that is why an A100 reaches less of its peak. Of 128, 96, 85,
# 64 and 48, this one carries products best from A100 to A10 (networks in bf16) and back. Fewer rows than a warp takes
# fill part of it, and their weights pass once.
_WARP_TILE = 64.0
# From Hopper on, groups of warps multiply out of shared memory, 128 x 256 (PTX: wgmma, tcgen05); none was measured.
_GROUP_TILE = 171.0
_GROUPS = ("9.0", "10.0")  # Compute capabilities; GeForce boards of Blackwell (12.0) go on as Ampere does.


def _cubed(values: FloatArray) -> FloatArray:
    # (numpy's power takes ten times as long)
    return values * values * values


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
        norm: FloatArray = np.cbrt(on_clock * _cubed(np.asarray(factor)) + off_clock)
        return norm

    @cached_property
    def _cubes(self) -> tuple[FloatArray, FloatArray]:
        """Of what scales with the clock, and of what does not."""
        return _cubed(self.compute_s) + _cubed(self.cache_s), _cubed(self.memory_s)

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
    across = np.where(is_half, _half_tile(n.rows, gpu), _TILE)
    tiles_s = n.is_product * n.computed_flops * n.element_bytes / across
    compute_s, way = line.compute_s, _SM_BYTES * gpu.sms * clock_mhz * 1e6
    in_tiles = is_half & (n.is_product > 0) & (n.family != _CONVOLUTION)
    if in_tiles.any():
        longer = np.where(in_tiles, _half_tiles(n, gpu) * n.flops / np.maximum(n.computed_flops, 1.0), 1.0)
        # (only what tiles compute and read is padded: a weight that one row meets passes once, as any does)
        compute_s, tiles_s = compute_s * longer, tiles_s * longer
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
    on_pipes = peak_flops(dense.precision, gpu) <= gpu.peak_flops["fp32"]
    work = dense.least(gpu)
    compute_s, memory_s = work.flops / gpu.peak_flops["fp32"], work.bytes / reached_bandwidth(gpu)
    cache_s = (work.bytes + work.flops * dense.element_bytes / _TILE) / way
    together = np.cbrt(_cubed(compute_s) + _cubed(memory_s))
    # At the boost clock, so that each part follows the clock as it does elsewhere.
    longer = np.where(work.in_turn, (compute_s + memory_s) / np.maximum(together, _LEAST_S), 1.0)
    slower = gpu.boost_clock_mhz / clock_mhz
    put = np.array([compute_s * slower, memory_s, cache_s]) * longer
    parts[:, dense.places[on_pipes]] = put[:, on_pipes]


def _half_tile(rows: FloatArray, gpu: GPU) -> FloatArray:
    """Rows and columns of the square that loads as much for its FLOPs as tensor cores do in half precision."""
    if gpu.compute_capability in _GROUPS:
        return np.full(len(rows), _GROUP_TILE)
    return np.where(rows >= _WARP_TILE, _WARP_TILE, _TILE)


def _half_tiles(n: Any, gpu: GPU) -> FloatArray:
    """How much longer products take than their FLOPs say, because the multiprocessors work in whole waves of tiles.

    Attention of few queries (a step of decoding) shares its keys out, so that no multiprocessor idles; the rows of its
    tiles are filled up with zeros all the same.
    """
    size = np.maximum(n.batch * n.rows * n.columns, 1.0)
    longer = [
        np.ceil(n.batch * np.ceil(n.rows / rows) * np.ceil(n.columns / columns) / gpu.sms)
        * (gpu.sms * rows * columns / share)
        / size
        for rows, columns, share in _HALF_TILES
    ]
    least: FloatArray = np.min(longer, axis=0)
    few = (n.kind == KIND_PLACES["attention"]) & (n.rows < _ATTENTION_ROWS)
    return np.where(few, _ATTENTION_ROWS / np.maximum(n.rows, 1.0), least)
