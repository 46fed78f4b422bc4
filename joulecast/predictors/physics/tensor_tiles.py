"""Products on tensor cores in half precision: the tiles that libraries choose from, and what feeding them takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from .operation_numbers import KIND_PLACES
from .tiling import Tile, tile_count

# The tiles of libraries, and the rate that each reaches as a share of the best tile's. A library picks the tile with
# the shortest time. The shares are round numbers that were chosen with the A100's networks in view.
_TILES = (
    (Tile(128, 256), 1.0),
    (Tile(256, 128), 1.0),
    (Tile(128, 128), 0.85),
    (Tile(64, 128), 0.65),
    (Tile(128, 64), 0.65),
    (Tile(64, 64), 0.5),
)
_ATTENTION_ROWS = 64.0  # Rows of a tile of FlashAttention: four warps with 16 rows each (Dao, arXiv 2307.08691).

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

# Eight times as many loads for eight elements of 2 bytes, of which caches hide a part. Chosen on ViT-L in bf16 (197
# tokens) on A100 and A10; 2, 4 and 6 were compared. timm's vision transformers with unfused attention stay as close.
ODD_LOADS = 4.0


def loaded_tile(rows: FloatArray, gpu: GPU) -> FloatArray:
    """Side of the square tile that loads as many elements per FLOP as tensor cores do in half precision.

    Args:
        rows: Rows of each product, shape (operations,).
        gpu: The GPU with these tensor cores.

    Returns:
        Rows (and columns) of the square, shape (operations,).
    """
    if gpu.is_nvidia and gpu.generation in _GROUPS:
        return np.full(len(rows), _GROUP_TILE)
    return np.where(rows >= _WARP_TILE, _WARP_TILE, LOADED_TILE)


def tile_slowdown(n: Any, gpu: GPU) -> FloatArray:
    """How many times longer products take than their FLOPs at the peak, because SMs work in whole waves of tiles.

    Attention with few queries (a step of decoding) distributes its keys over the SMs, so that none idles. Its tiles are
    padded with rows of zeros nevertheless.

    Args:
        n: Numbers of operations (`numbers_of`).
        gpu: The GPU that they run on.

    Returns:
        Factors of at least 1, shape (operations,).
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


def load_slowdown(n: Any) -> FloatArray:
    """How many times longer products of two inputs take to load their tiles, because rows are badly aligned.

    Tensor cores are fed in pieces of 16 bytes. A matrix with an odd number of columns, such as the scores of attention
    over the 197 tokens of a vision transformer, has rows that begin anywhere, and is loaded element by element.

    Args:
        n: Numbers of operations (`numbers_of`).

    Returns:
        Factors of at least 1, shape (operations,).
    """
    odd = (n.kind == KIND_PLACES["matmul"]) & ((n.columns % 2 > 0) | (n.reduction % 2 > 0))
    return np.where(odd, ODD_LOADS, 1.0)
