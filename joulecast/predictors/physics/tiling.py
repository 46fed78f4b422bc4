"""Matrix products cut into tiles, and tiles into waves: the counts that all models of kernels share.

A streaming multiprocessor (SM) computes one tile of the output at a time, along the whole reduction. All SMs together
compute one wave of tiles. A tile that lies half outside the output takes as long as a full one, and a last wave that
leaves half of the SMs idle takes as long as a full one. Three modules say which tiles a library has and which share of
the peak it reaches with them: model/tiles.py (half precision and below), fp32_kernels.py and convolutions.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU, per_gpu


class Tile(NamedTuple):
    """The part of a product's output that one SM computes at a time.

    Args:
        rows: Rows of the output in one tile.
        columns: Columns of the output in one tile.
    """

    rows: int
    columns: int

    @property
    def outputs(self) -> int:
        """Numbers of the output in one tile."""
        return self.rows * self.columns

    @property
    def flops_per_step(self) -> float:
        """FLOPs of one step along the reduction; a multiply-add is two."""
        return 2.0 * self.outputs


PASCAL, AMPERE = 6, 8
"""The first and the last generation whose kernels in fp32 are known."""


@per_gpu
def kernel_generation(gpu: GPU) -> int:
    """The NVIDIA generation whose fp32 kernels a GPU runs: 6, 7 or 8 (AMD's GPUs count as 8)."""
    return min(max(int(gpu.generation), PASCAL), AMPERE)


def padded(size: Any, side: float) -> Any:
    """Sizes rounded up to whole tiles."""
    return np.ceil(size / side) * side


def tile_count(rows: Any, columns: Any, tile: Tile, batch: Any = 1.0) -> Any:
    """How many tiles cover the output of a product."""
    return batch * np.ceil(rows / tile.rows) * np.ceil(columns / tile.columns)


LOADED_TILE = 128.0
"""Side of the square tiles of all other products: one step computes 2 x 128^2 FLOPs from 2 x 128 loaded elements."""
# Tensor cores read from shared memory. Each warp loads what its part of a tile needs. This part is 64 x 64 at most,
# because its sums must fit into the registers of the warp. The FLOPs per clock of an SM differ fourfold between GPUs
# (A100 2048, A10 1024, GeForce with sums in fp32 512), but the bytes that it loads per clock do not. That is why an
# A100 reaches less of its peak. Of the sides 128, 96, 85, 64 and 48, 64 transfers best between A100 and A10 (networks
# in bf16). A product with fewer rows than that fills only part of a warp's tile, and its weights are loaded once.
_WARP_TILE = 64.0
# From Hopper on, groups of warps multiply 128 x 256 tiles directly from shared memory (PTX: wgmma, tcgen05). A square
# that loads as much for each FLOP has the harmonic mean as its side, 171. No such GPU was measured.
_GROUP_TILE = 171.0
_GROUPS = (9.0, 10.0)  # Generations; GeForce boards of Blackwell (12.0) go on as Ampere does.


def loaded_tile(rows: FloatArray, gpu: GPU) -> FloatArray:
    """Side of the square tile that loads as many elements per FLOP as tensor cores do in half precision.

    Returns:
        Rows (and columns) of the square, shape (operations,).
    """
    of_warps = np.where(rows >= _WARP_TILE, _WARP_TILE, LOADED_TILE)
    return np.where(gpu.is_nvidia & np.isin(gpu.generation, _GROUPS), _GROUP_TILE, of_warps)
