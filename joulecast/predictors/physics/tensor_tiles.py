"""Products on tensor cores in half precision: the tiles that libraries choose from, and what feeding them takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from .operation_numbers import KIND_PLACES
from .tiling import Tile, tile_count

# The tiles of libraries, and what each reaches of the best: they take the one that fills the SMs best. The shares are
# round numbers, looked at on the A100's networks.
_TILES = (
    (Tile(128, 256), 1.0),
    (Tile(256, 128), 1.0),
    (Tile(128, 128), 0.85),
    (Tile(64, 128), 0.65),
    (Tile(128, 64), 0.65),
    (Tile(64, 64), 0.5),
)
_ATTENTION_ROWS = 64.0  # Of a tile of FlashAttention: four warps of 16 (Dao, arXiv 2307.08691).

LOADED_TILE = 128.0
"""Side of the square tiles that other products load for: 2 x 128^2 FLOPs for 2 x 128 elements."""
# Tensor cores are fed from shared memory, where each warp loads what its part of a tile needs: 64 x 64 at most, because
# the sums must fit into its registers. What an SM multiplies in a clock differs fourfold (A100 2048 FLOPs, A10 1024,
# GeForce 512 with sums in fp32), what it loads does not: that is why an A100 reaches less of its peak. Of 128, 96, 85,
# 64 and 48, this one carries products best from A100 to A10 (networks in bf16) and back. Fewer rows than a warp takes
# fill part of it, and their weights pass once.
_WARP_TILE = 64.0
# From Hopper on, groups of warps multiply out of shared memory, 128 x 256 (PTX: wgmma, tcgen05); none was measured.
_GROUP_TILE = 171.0
_GROUPS = ("9.0", "10.0")  # Compute capabilities; GeForce boards of Blackwell (12.0) go on as Ampere does.


def loaded_tile(rows: FloatArray, gpu: GPU) -> FloatArray:
    """Side of the square that loads as much for its FLOPs as tensor cores do in half precision.

    Args:
        rows: Rows of each product, shape (operations,).
        gpu: Whose tensor cores.
    """
    if gpu.compute_capability in _GROUPS:
        return np.full(len(rows), _GROUP_TILE)
    return np.where(rows >= _WARP_TILE, _WARP_TILE, LOADED_TILE)


def tile_slowdown(n: Any, gpu: GPU) -> FloatArray:
    """How many times longer products take than their FLOPs at the peak, because SMs work in whole waves of tiles.

    Attention of few queries (a step of decoding) shares its keys out, so that no SM idles; the rows of its tiles are
    padded with zeros all the same.

    Args:
        n: Numbers of operations (`numbers_of`).
        gpu: Whose SMs.
    """
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0)
    slower = [
        np.ceil(tile_count(n.rows, n.columns, tile, n.batch) / gpu.sms)
        * (gpu.sms * tile.rows * tile.columns / share)
        / outputs
        for tile, share in _TILES
    ]
    least: FloatArray = np.min(slower, axis=0)
    few = (n.kind == KIND_PLACES["attention"]) & (n.rows < _ATTENTION_ROWS)
    return np.where(few, _ATTENTION_ROWS / np.maximum(n.rows, 1.0), least)
