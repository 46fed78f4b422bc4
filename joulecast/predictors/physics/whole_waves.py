"""Products as a GPU computes them: block by block, in whole waves.

Each streaming multiprocessor computes one block of the output at a time, along the whole reduction. A block that is
half outside the output takes as long as a full one, and a last wave that is half empty as long as a full one: a
convolution with 32 x 512 outputs and a reduction of 2304 is 8 blocks for 56 multiprocessors, and needs 28 times the
time of its FLOPs. cuBLAS splits the reduction where a linear layer would leave multiprocessors idle; cuDNN does not.

The sizes of the blocks are those that leave the least spread between the times measured on the A30 (operations of both
modes) and this count of waves; 128 x 64 for convolutions leaves the least on the RTX 2080 Ti, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from .operation_numbers import WINOGRAD
from .tiling import Tile, tile_count

TILE_NAMES: tuple[str, ...] = (
    "log_large_tiles",
    "log_narrow_tiles",
    "log_small_tiles",
    "log_backward_tiles",
    "winograd_saving",
)
"""What `tile_features` gives: time in whole waves over that of the FLOPs alone, and what Winograd saves."""

_LARGE, _NARROW, _SMALL = Tile(128, 128), Tile(128, 64), Tile(64, 64)
_START_UP = 32  # A block takes as long as so many further steps of its reduction before it computes.
_FEW_WAVES = 2
_FEW_ROWS = 32  # Below, other kernels read the weights once; none was measured.


def wave_flops(rows: Any, columns: Any, reduction: Any, tile: Tile, sms: int, *, splits: bool = False) -> FloatArray:
    """FLOPs that a GPU could do while it computes a matrix product in whole waves of blocks.

    Args:
        rows: Rows of the product.
        columns: Columns of the product.
        reduction: Its inner dimension.
        tile: The part of the output that a block computes.
        sms: Streaming multiprocessors, which compute one block each at a time.
        splits: Whether few blocks are split along the reduction, so that no multiprocessor idles.
    """
    waves = tile_count(rows, columns, tile) / sms
    whole = np.where(splits & (waves < _FEW_WAVES), waves, np.ceil(waves))
    flops: FloatArray = whole * sms * tile.flops_per_step * (reduction + _START_UP)
    return flops


def _is_dense(n: Any) -> Any:
    """Where an operation is one product: linear layers, and convolutions that are not grouped."""
    return (n.is_product > 0) & (n.groups == 1) & (n.batch == 1) & (n.reduction > 0)


def _backward_flops(n: Any, tile: Tile, sms: int) -> FloatArray:
    """The product that gives the gradient of the input."""
    window = n.kernel**2
    positions = n.input_size / n.channels_in
    return wave_flops(positions, n.channels_in, n.channels_out * window / n.stride**2, tile, sms)


def _own_flops(n: Any) -> FloatArray:
    own: FloatArray = 2.0 * n.batch * n.rows * n.columns * n.reduction
    return own


def computed_flops(n: Any, gpu: GPU, on_tensor_cores: Any) -> FloatArray:
    """FLOPs that a GPU could do in the least time of operations: in whole waves, without what Winograd saves.

    Args:
        n: Numbers of operations.
        gpu: Whose multiprocessors.
        on_tensor_cores: Where they run there; Winograd does not.
    """
    own = _own_flops(n)
    passes = n.flops / own
    # Winograd computes whole squares of outputs, also where the image ends within one.
    squares = (n.winograd > 1) & ~on_tensor_cores
    rows = np.where(squares, n.rows * WINOGRAD / n.winograd, n.rows)
    narrow = wave_flops(rows, n.columns, n.reduction, _NARROW, gpu.sms) * passes / np.where(squares, WINOGRAD, 1.0)
    large = wave_flops(n.rows, n.columns, n.reduction, _LARGE, gpu.sms) * passes
    # The gradient of a weight has a long reduction, which is split so that it fills the GPU.
    forward = wave_flops(n.rows, n.columns, n.reduction, _SMALL, gpu.sms, splits=True)
    backward = wave_flops(n.rows, n.reduction, n.columns, _SMALL, gpu.sms, splits=True)
    linear = np.where(n.is_training > 0, forward + backward + own, forward)
    linear = np.where(n.rows < _FEW_ROWS, n.computed_flops, linear)
    dense = np.where(n.is_convolution > 0, np.where(on_tensor_cores, large, narrow), linear)
    flops: FloatArray = np.where(_is_dense(n), dense, n.computed_flops)
    return flops


def tile_features(n: Any, gpu: GPU, on_tensor_cores: Any) -> list[FloatArray]:
    """Operations as several sizes of blocks see them; 0 where they are no product.

    Returns:
        One array per name of TILE_NAMES.
    """
    dense, own = _is_dense(n), np.maximum(_own_flops(n), 1.0)
    views = [wave_flops(n.rows, n.columns, n.reduction, tile, gpu.sms) for tile in (_LARGE, _NARROW, _SMALL)]
    views.append(_backward_flops(n, _SMALL, gpu.sms))
    logs = [np.where(dense, np.log(np.maximum(view / own, 1e-12)), 0.0) for view in views]
    return [*logs, np.where(on_tensor_cores, 1.0, n.winograd)]
