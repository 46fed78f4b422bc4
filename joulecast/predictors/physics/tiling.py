"""Matrix products cut into tiles, and tiles into waves: the counts that all models of kernels share.

A streaming multiprocessor (SM) computes one tile of the output at a time, along the whole reduction. A tile that lies
half outside the output takes as long as a full one, and a last wave over the SMs that is half empty as long as a full
one. Which tiles a library has, and what it reaches with them, say the models: whole_waves.py (a GPU's own
predictor), library.py (fp32 products on any GPU), tensor_tiles.py (half precision) and convolutions.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Tile(NamedTuple):
    """The part of a product's output that one SM computes at a time.

    Args:
        rows: Rows of the output in it.
        columns: Columns of the output in it.
    """

    rows: int
    columns: int

    @property
    def flops_per_step(self) -> float:
        """FLOPs of one step along the reduction; a multiply-add is two."""
        return 2.0 * self.rows * self.columns


def padded(size: Any, side: int) -> Any:
    """A size, or each of an array, rounded up to a multiple of the side of a tile."""
    return np.ceil(size / side) * side


def tile_count(rows: Any, columns: Any, tile: Tile, batch: Any = 1.0) -> Any:
    """How many tiles cover the output of a product.

    Args:
        rows: Rows of the output; a number or an array, as all sizes.
        columns: Columns of the output.
        tile: The tile that covers it.
        batch: How many such products there are.
    """
    return batch * np.ceil(rows / tile.rows) * np.ceil(columns / tile.columns)
