"""Products as a GPU computes them: block by block, in whole waves.

Each streaming multiprocessor (SM) computes one block of the output at a time, along the whole reduction. A block that
lies half outside the output takes as long as a full one, and so does a last wave that leaves half of the SMs idle. For
example, a convolution with 32 x 512 outputs and a reduction of 2304 has only 8 blocks for the 56 SMs of an A30, and
takes 28 times the time of its FLOPs. Where a linear layer would leave SMs idle, cuBLAS splits the reduction into parts;
cuDNN does not.

The sizes of the blocks were chosen so that measured times on the A30 (inference and training) scatter least around the
time that this count of waves predicts. For convolutions, 128 x 64 is the best choice on the RTX 2080 Ti, too. On tensor
cores, cuDNN takes smaller blocks where large ones would leave multiprocessors idle.
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
"""Names of the features of `tile_features`: logarithms of the time in whole waves over that of the FLOPs alone, and how
many times fewer multiplications Winograd's algorithm needs."""

_LARGE, _NARROW, _SMALL = Tile(128, 128), Tile(128, 64), Tile(64, 64)
# Blocks of convolutions on tensor cores, and the time of a FLOP in each relative to the first. Smaller blocks read
# their inputs more often. The factors are round numbers, chosen on the A30.
_TENSOR_BLOCKS = ((_LARGE, 1.0), (_NARROW, 1.1), (_SMALL, 1.25))
_PRODUCT_START_STEPS = 32  # Starting a block takes as long as this many steps of its reduction.
_FEW_WAVES = 2  # Below this many waves, cuBLAS splits the reduction.
_FEW_ROWS = 32  # Products with fewer rows run on other kernels, which read the weights once; none was measured.


def wave_flops(rows: Any, columns: Any, reduction: Any, tile: Tile, sms: int, *, splits: bool = False) -> FloatArray:
    """FLOPs that a GPU could compute at its peak during the time that a matrix product takes in whole waves of blocks.

    Args:
        rows: Rows of the product: a number or an array.
        columns: Columns of the product: a number or an array.
        reduction: Inner dimension of the product: a number or an array.
        tile: The part of the output that one block computes.
        sms: Number of streaming multiprocessors; each computes one block at a time.
        splits: Whether the reduction is split where there are few blocks, so that no multiprocessor idles.
    """
    waves = tile_count(rows, columns, tile) / sms
    whole = np.where(splits & (waves < _FEW_WAVES), waves, np.ceil(waves))
    flops: FloatArray = whole * sms * tile.flops_per_step * (reduction + _PRODUCT_START_STEPS)
    return flops


def _is_dense(n: Any) -> Any:
    """Whether each operation is a single product: a linear layer, or a convolution that is not grouped."""
    return (n.is_product > 0) & (n.groups == 1) & (n.batch == 1) & (n.reduction > 0)


def _backward_flops(n: Any, tile: Tile, sms: int) -> FloatArray:
    """`wave_flops` of the product that computes the gradient of the input."""
    window = n.kernel**2
    positions = n.input_size / n.channels_in
    return wave_flops(positions, n.channels_in, n.channels_out * window / n.stride**2, tile, sms)


def _own_flops(n: Any) -> FloatArray:
    own: FloatArray = 2.0 * n.batch * n.rows * n.columns * n.reduction
    return own


def computed_flops(n: Any, gpu: GPU, on_tensor_cores: Any) -> FloatArray:
    """FLOPs that a GPU could compute at its peak during the least time of operations, which comes in whole waves.

    Winograd's algorithm reduces the FLOPs of the convolutions that it applies to.

    Returns:
        Shape (operations,).
    """
    own = _own_flops(n)
    passes = n.flops / own
    # Winograd's algorithm computes whole squares of outputs, also where a square reaches beyond the edge of the image.
    squares = (n.winograd > 1) & ~on_tensor_cores
    rows = np.where(squares, n.rows * WINOGRAD / n.winograd, n.rows)
    narrow = wave_flops(rows, n.columns, n.reduction, _NARROW, gpu.sms) * passes / np.where(squares, WINOGRAD, 1.0)
    blocks = [slower * wave_flops(n.rows, n.columns, n.reduction, tile, gpu.sms) for tile, slower in _TENSOR_BLOCKS]
    quickest = np.min(blocks, axis=0) * passes
    # The gradient of a weight has a long reduction. It is split so that all SMs have work, and counts its FLOPs alone.
    forward = wave_flops(n.rows, n.columns, n.reduction, _SMALL, gpu.sms, splits=True)
    backward = wave_flops(n.rows, n.reduction, n.columns, _SMALL, gpu.sms, splits=True)
    linear = np.where(n.is_training > 0, forward + backward + own, forward)
    linear = np.where(n.rows < _FEW_ROWS, n.computed_flops, linear)
    dense = np.where(n.is_convolution > 0, np.where(on_tensor_cores, quickest, narrow), linear)
    flops: FloatArray = np.where(_is_dense(n), dense, n.computed_flops)
    return flops


def tile_features(n: Any, gpu: GPU, on_tensor_cores: Any) -> list[FloatArray]:
    """Features of operations for several sizes of blocks; 0 for operations other than single products.

    Returns:
        One array of shape (operations,) for each name of TILE_NAMES.
    """
    dense, own = _is_dense(n), np.maximum(_own_flops(n), 1.0)
    views = [wave_flops(n.rows, n.columns, n.reduction, tile, gpu.sms) for tile in (_LARGE, _NARROW, _SMALL)]
    views.append(_backward_flops(n, _SMALL, gpu.sms))
    logs = [np.where(dense, np.log(np.maximum(view / own, 1e-12)), 0.0) for view in views]
    return [*logs, np.where(on_tensor_cores, 1.0, n.winograd)]
