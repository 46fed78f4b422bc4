"""The time of fp32 products on a GPU that was never measured: the tiles of its library, and its power cap.

The least time of physics counts FLOPs. The names of a library's kernels and the data sheet say more about the time:

- Tiles. cuBLAS computes batched products in tiles of a few sizes, which depend on the generation. Of the 87,623 kernels
  that NeuSight (Lee et al., ASPLOS 2025) recorded, all but 0.4 % are named maxwell_sgemm_128x64 on Pascal,
  volta_sgemm_64x64, 128x64, 32x128 or 128x32 on Volta and Turing, and ampere_sgemm_128x128 on Ampere. A multiprocessor
  holds 128 x 128 outputs at a time, in one tile or in several, and its start takes as long as some 20 steps of the
  reduction. Hopper and Ada are assumed to run Ampere's kernels in fp32; none was measured.
- Power. A product that keeps every multiprocessor busy needs more power than a board with a cap of 70 W may draw, so
  the board lowers its clock. Let r be the needed power over the cap. Short batched products are slower by about the
  square root of r, and those that take a millisecond or more by r. Linear layers are not slower if they are short, and
  slower by the square root of r if they are long.
- Long reductions. On Pascal, kernels for linear layers reach a smaller share of the peak the longer the reduction is
  (P100: 0.65 at 4,096 and 0.27 at 65,536; P4: half of that). Kernels of later generations do not. This is computed
  here, because trees would learn it as a law of all GPUs: without it, V100 and T4 were predicted a third too slow.

The tile sizes, the exponents and the constants of Pascal were not fitted, but they were chosen with the GPUs of
NeuSight in view. Errors on these GPUs are therefore no independent test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from .energy import PRIOR_ENERGY, process_factor, static_power_w
from .least_times import LeastTimes
from .norms import overlapped
from .operation_numbers import KIND_PLACES, numbers_of
from .roofline import on_tensor_cores
from .tiling import Tile, tile_count

_NEWEST_KERNELS = 8
_TILES = {
    6: (Tile(64, 128),),
    7: (Tile(64, 64), Tile(128, 32), Tile(32, 128)),
    _NEWEST_KERNELS: (Tile(128, 128),),
}
_OUTPUTS = 128 * 128  # Outputs that a multiprocessor computes at a time.
# Starting a block takes as long as this many steps of its reduction: 16 to 22 on the A100, for reductions of 32 to 256.
_FP32_START_STEPS = 20.0
# Where a multiprocessor holds several tiles, a last wave with few of them is quicker: with a share s of the tiles it
# takes 1 - (1 - s)^3 of the time of a full one. (V100, tiles of 64 x 64: 0.58 at a quarter, 0.9 at a half.)
_LAST_WAVE = 3
_SHARE, _LONG_S = 0.5, 1e-3  # Exponent of the power ratio, and seconds of a product that counts as long.
# Factor on linear layers on Pascal with short reductions, and the reduction from where they become slower.
_PASCAL, _PASCAL_SLOWER, _PASCAL_STEPS = 6, 1.2, 4096.0


def kernel_generation(gpu: GPU) -> int:
    """The NVIDIA generation whose fp32 kernels a GPU runs: 6, 7 or 8 (AMD's GPUs count as 8)."""
    return min(max(int(gpu.generation), min(_TILES)), _NEWEST_KERNELS)


def wanted_power(gpu: GPU) -> float:
    """Power that fp32 products would draw at the boost clock without a cap, relative to the board's cap; at least 1."""
    constants, clock_mhz = PRIOR_ENERGY, float(gpu.boost_clock_mhz)
    awake_w = constants.awake_w_per_sm_ghz * gpu.sms * clock_mhz / 1e3
    logic_w = process_factor(gpu) * (constants.fp32_j_per_flop * gpu.peak_flops["fp32"] + awake_w)
    return max(1.0, float(logic_w + static_power_w(gpu, clock_mhz)) / gpu.power_limit_w)


def tile_ratio(n: Any, gpu: GPU) -> FloatArray:
    """Time of products in whole tiles and waves, relative to the time of their FLOPs alone.

    Args:
        n: Numbers of operations (`numbers_of`).
        gpu: The GPU that they run on.

    Returns:
        The least ratio over the tile sizes of the GPU's library, shape (operations,).
    """
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0) / gpu.sms
    ratios = []
    for tile in _TILES[kernel_generation(gpu)]:
        at_once = _OUTPUTS // (tile.rows * tile.columns)
        each = np.ceil(tile_count(n.rows, n.columns, tile, n.batch) / gpu.sms)
        whole = np.floor(each / at_once)
        last = each / at_once - whole
        ratios.append((whole + 1 - (1 - last) ** _LAST_WAVE) * _OUTPUTS / outputs)
    least: FloatArray = np.min(ratios, axis=0) * (1 + _FP32_START_STEPS / np.maximum(n.reduction, 1.0))
    return least


def on_fp32_pipes(operations: Sequence[Operation], gpu: GPU) -> NDArray[np.bool_]:
    """Whether each operation has a precision without tensor cores on the GPU: fp32, and on Pascal half precision, too.

    Args:
        operations: The operations.
        gpu: The GPU that they run on.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    on_pipes: NDArray[np.bool_] = ~on_tensor_cores(numbers_of(operations), gpu)
    return on_pipes


def expected_ratio(operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
    """Expected device time of fp32 products at the default clock, relative to the least time of physics.

    Args:
        operations: The operations.
        gpu: The GPU that they run on.
        capped: Whether the board's power cap slows them down; False computes the ratio for a board without a cap.

    Returns:
        Shape (operations,); 1 for operations other than products in fp32.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    n = numbers_of(operations)
    product = (n.is_product > 0) & (n.is_convolution == 0) & on_fp32_pipes(operations, gpu)
    if not product.any():
        return np.ones(len(product))
    least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
    in_tiles = product & (n.kind == KIND_PLACES["matmul"])
    own_s = n.flops / gpu.peak_flops["fp32"]
    compute_s = np.where(in_tiles, own_s * tile_ratio(n, gpu), least.compute_s)
    tiled_s = np.maximum(overlapped(compute_s, least.memory_s, least.cache_s), 1e-9)
    computing = np.minimum(compute_s / tiled_s, 1.0)
    exponent = _SHARE * (in_tiles + tiled_s / (tiled_s + _LONG_S)) * computing
    throttled = wanted_power(gpu) ** exponent if capped else 1.0
    ratio: FloatArray = np.where(product, tiled_s / least.time_s * throttled, 1.0)
    if kernel_generation(gpu) == _PASCAL:
        slower = _PASCAL_SLOWER * np.sqrt(1 + n.reduction / _PASCAL_STEPS)
        ratio = np.where(product & (n.kind == KIND_PLACES["linear"]), ratio * slower, ratio)
    return ratio
