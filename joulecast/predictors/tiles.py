"""Products as a GPU computes them: block by block, in whole waves.

Each streaming multiprocessor computes one block of the output at a time, along the whole reduction. A block that is
half outside the output takes as long as a full one, and a last wave that is half empty as long as a full one. cuBLAS
splits the reduction where a linear layer would leave multiprocessors idle; cuDNN does not (convolutions.py).

The sizes of the blocks are those that leave the least spread between the times measured on the A30 (operations of both
modes) and this count of waves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware import GPU

FloatArray = NDArray[np.float64]

TILE_NAMES: tuple[str, ...] = (
    "log_large_tiles",
    "log_narrow_tiles",
    "log_small_tiles",
    "log_backward_tiles",
)
"""What `tile_features` gives: time in whole waves over that of the FLOPs alone."""

_LARGE, _NARROW, _SMALL = (128, 128), (128, 64), (64, 64)
_START_UP = 32  # A block takes as long as so many further steps of its reduction before it computes.
_FEW_WAVES = 2
_FEW_ROWS = 32  # Below, other kernels read the weights once; none was measured.


def wave_flops(
    rows: Any, columns: Any, reduction: Any, tile: tuple[int, int], sms: int, *, splits: bool = False
) -> FloatArray:
    """FLOPs that a GPU could do while it computes a matrix product in whole waves of blocks.

    Args:
        rows: Of the product.
        columns: Of the product.
        reduction: Its inner dimension.
        tile: Rows and columns of a block.
        sms: Streaming multiprocessors, which compute one block each at a time.
        splits: Whether few blocks are split along the reduction, so that no multiprocessor idles.
    """
    waves = np.ceil(rows / tile[0]) * np.ceil(columns / tile[1]) / sms
    whole = np.where(splits & (waves < _FEW_WAVES), waves, np.ceil(waves))
    flops: FloatArray = whole * sms * 2.0 * tile[0] * tile[1] * (reduction + _START_UP)
    return flops


def _is_linear(n: Any) -> Any:
    return (n.is_product > 0) & (n.is_convolution == 0) & (n.batch == 1) & (n.reduction > 0)


def _own_flops(n: Any) -> FloatArray:
    own: FloatArray = 2.0 * n.batch * n.rows * n.columns * n.reduction
    return own


def computed_flops(n: Any, gpu: GPU) -> FloatArray:
    """FLOPs that a GPU could do in the least time of operations: linear layers in whole waves.

    Args:
        n: Numbers of operations.
        gpu: Whose multiprocessors.
    """
    own = _own_flops(n)
    # The gradient of a weight has a long reduction, which is split so that it fills the GPU.
    forward = wave_flops(n.rows, n.columns, n.reduction, _SMALL, gpu.sms, splits=True)
    backward = wave_flops(n.rows, n.reduction, n.columns, _SMALL, gpu.sms, splits=True)
    linear = np.where(n.is_training > 0, forward + backward + own, forward)
    in_waves = _is_linear(n) & (n.rows >= _FEW_ROWS)
    flops: FloatArray = np.where(in_waves, linear, n.computed_flops)
    return flops


def tile_features(n: Any, gpu: GPU) -> list[FloatArray]:
    """Linear layers as several sizes of blocks see them; 0 for all others.

    Returns:
        One array per name of TILE_NAMES.
    """
    linear, own = _is_linear(n), np.maximum(_own_flops(n), 1.0)
    views = [wave_flops(n.rows, n.columns, n.reduction, tile, gpu.sms) for tile in (_LARGE, _NARROW, _SMALL)]
    # The gradient of the input.
    views.append(wave_flops(n.rows, n.channels_in, n.channels_out, _SMALL, gpu.sms))
    return [np.where(linear, np.log(np.maximum(view / own, 1e-12)), 0.0) for view in views]
