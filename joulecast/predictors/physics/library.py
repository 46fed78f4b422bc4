"""What fp32 products take on a GPU that nobody measured: the tiles of its library, and its power.

The least time of physics counts FLOPs. What a library makes of them is known beforehand, too, from the names of its
kernels and from the data sheet:

- Tiles. cuBLAS computes batched products in tiles of few sizes, by generation: of the 87,623 that NeuSight (Lee et al.,
  ASPLOS 2025) recorded, all but 0.4 % are named maxwell_sgemm_128x64 on Pascal, volta_sgemm_64x64, 128x64, 32x128 or
  128x32 on Volta and Turing, and ampere_sgemm_128x128 on Ampere. A multiprocessor holds 128 x 128 outputs at a time,
  in one tile or in several, and starts up for as long as some 20 steps of the reduction take. Hopper and Ada
  are assumed to run Ampere's kernels in fp32: none was measured.
- Power. A product that keeps every multiprocessor busy wants more power than boards of 70 W have. Short calls of
  batched products show about the square root of what is wanted over the cap, and those from a millisecond on all
  of it; linear layers show nothing of it, and the square root.
- Long reductions. Pascal's kernels for linear layers reach less of the peak the longer the reduction is (P100: 0.65 at
  4,096 and 0.27 at 65,536; P4: half of that), those of later generations do not. Counted here, trees do not take it
  for a law of all GPUs: without it, V100 and T4 were predicted a third too slow.

The sizes, the exponents and what Pascal pays were looked at on the GPUs of that data set, with no fit: errors
on them are no independent test.
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
_OUTPUTS = 128 * 128  # That a multiprocessor computes at a time.
_START_UP = 20.0  # A100: 16 to 22 steps from reductions of 32 to 256.
# A last wave that is one quarter full takes 0.58 of a full one, half full 0.9 (64 x 64 on V100).
_LAST_WAVE = 3
_SHARE, _LONG_S = 0.5, 1e-3
_PASCAL, _PASCAL_SLOWER, _PASCAL_STEPS = 6, 1.2, 4096.0


def kernel_generation(gpu: GPU) -> int:
    """The NVIDIA generation whose fp32 kernels a GPU runs: 6, 7 or 8 (AMD's GPUs count as 8)."""
    return min(max(int(gpu.generation), min(_TILES)), _NEWEST_KERNELS)


def wanted_power(gpu: GPU) -> float:
    """Power that fp32 products would draw at the boost clock, over the board's cap; at least 1."""
    constants, clock_mhz = PRIOR_ENERGY, float(gpu.boost_clock_mhz)
    awake_w = constants.awake_w_per_sm_ghz * gpu.sms * clock_mhz / 1e3
    logic_w = process_factor(gpu) * (constants.fp32_j_per_flop * gpu.peak_flops["fp32"] + awake_w)
    return max(1.0, float(logic_w + static_power_w(gpu, clock_mhz)) / gpu.power_limit_w)


def tile_ratio(n: Any, gpu: GPU) -> FloatArray:
    """FLOPs that multiprocessors could do while they compute the tiles of products, over those of the products.

    Args:
        n: Numbers of operations.
        gpu: Whose multiprocessors.

    Returns:
        The least ratio over the sizes of tiles that its library has, one per operation.
    """
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0) / gpu.sms
    ratios = []
    for tile in _TILES[kernel_generation(gpu)]:
        at_once = _OUTPUTS // (tile.rows * tile.columns)
        each = np.ceil(tile_count(n.rows, n.columns, tile, n.batch) / gpu.sms)
        whole = np.floor(each / at_once)
        last = each / at_once - whole
        ratios.append((whole + 1 - (1 - last) ** _LAST_WAVE) * _OUTPUTS / outputs)
    least: FloatArray = np.min(ratios, axis=0) * (1 + _START_UP / np.maximum(n.reduction, 1.0))
    return least


def on_fp32_pipes(operations: Sequence[Operation], gpu: GPU) -> NDArray[np.bool_]:
    """Which operations are in a precision that has no tensor cores there: fp32, and on Pascal half precision, too.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    on_pipes: NDArray[np.bool_] = ~on_tensor_cores(numbers_of(operations), gpu)
    return on_pipes


def expected_ratio(operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
    """Device time that tiles and power let expect at the default clock, over the least time of physics.

    Args:
        operations: What runs.
        gpu: The GPU that they run on.
        capped: With what the board's power cap costs, or as if there was none.

    Returns:
        One value per operation; 1 for what is no fp32 product.

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
