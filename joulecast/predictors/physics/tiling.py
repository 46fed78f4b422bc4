"""Matrix products cut into tiles, and tiles into waves: the counts that all models of kernels share.

A streaming multiprocessor (SM) computes one tile of the output at a time, along the whole reduction. All SMs together
compute one wave of tiles. A tile that lies half outside the output takes as long as a full one, and a last wave that
leaves half of the SMs idle takes as long as a full one. Four modules say which tiles a library has and which share of
the peak it reaches with them: whole_waves.py (the predictor of one GPU), fp32_products.py (fp32 products on any GPU),
tensor_tiles.py (half precision) and convolutions.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Tile(NamedTuple):
    """The part of a product's output that one SM computes at a time.

    Args:
        rows: Rows of the output in one tile.
        columns: Columns of the output in one tile.
    """

    rows: int
    columns: int

    @property
    def flops_per_step(self) -> float:
        """FLOPs of one step along the reduction; a multiply-add is two."""
        return 2.0 * self.rows * self.columns


def padded(size: Any, side: float) -> Any:
    """Sizes rounded up to whole tiles.

    Args:
        size: Rows or columns: a number or an array.
        side: Rows or columns of one tile.
    """
    return np.ceil(size / side) * side


def tile_count(rows: Any, columns: Any, tile: Tile, batch: Any = 1.0) -> Any:
    """How many tiles cover the output of a product.

    Args:
        rows: Rows of the output: a number or an array.
        columns: Columns of the output: a number or an array.
        tile: The tile that covers it.
        batch: Number of products of these sizes: a number or an array.
    """
    return batch * np.ceil(rows / tile.rows) * np.ceil(columns / tile.columns)
