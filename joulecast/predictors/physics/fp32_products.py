"""Device times of cuBLAS's products in fp32 on NVIDIA's GPUs, counted from the tiles that its kernels compute.

Six effects are counted:

- Tiles. cuBLAS computes batched products in tiles of a few sizes, which depend on the generation: of the 87,623 kernels
  that NeuSight recorded, all but 0.4 % are named maxwell_sgemm_128x64 on Pascal, volta_sgemm_64x64, 128x64, 32x128 or
  128x32 on Volta and Turing, and ampere_sgemm_128x128 on Ampere. Hopper and Ada are assumed to run Ampere's kernels;
  none was measured. On Turing the small tiles are slower. Linear layers choose among many sizes. Where a linear layer
  has too few tiles for the multiprocessors, cuBLAS splits the reduction into parts instead, which costs a tenth.
- Rows that are far apart. A tile reads eight elements of each of its rows at a time. In batched products with a long
  reduction, each of these reads meets another page of the memory, and moving the left matrix takes up to three times
  as long. That shows where it is read once, which is where the product has few columns.
- Power. At the boost clock the board would need the power of its logic and of its memory. If that is more than the cap,
  the board lowers its clock. Short kernels feel only a part of it, because the board averages its power.
- Issue slots. From Ampere on, most multiprocessors have 128 lanes, which need all four instructions that can be issued
  per cycle. Loads and addresses take slots from them; with 64 lanes they use slots that are free. No single product was
  measured on such a chip. The factor is about that of a ViT in fp32 on an A10.
- Vectors. A product with a single row or column is computed by a kernel of its own (gemv), which has no tiles to fill and
  reads the matrix once. None was measured.
- Pascal's kernels for linear layers are slower than later ones, and more so for long reductions.

The constants were fitted to NeuSight's GPUs (Lee et al., ASPLOS 2025), and those of linear layers to A30 and
RTX 2080 Ti as well. Fitted without the chip that they are tested on, they are less exact; benchmarks/public/notes.md
has both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from .bandwidth import reached_bandwidth
from .energy import PRIOR_ENERGY, process_factor, static_power_w
from .least_times import LeastTimes
from .norms import overlapped
from .operation_numbers import is_batched

Tiles = tuple[tuple[int, int, float], ...]
"""Rows and columns of tiles, and their time relative to that of the same work in the largest one."""

_TURING = "7.5"
_BATCHED_TILES: Mapping[str, Tiles] = {
    "6": ((64, 128, 1.0),),
    "7": ((64, 64, 1.0), (128, 32, 1.0), (32, 128, 1.0)),
    _TURING: ((64, 64, 1.17), (64, 128, 1.0), (32, 128, 1.17)),
    "8": ((128, 128, 1.0),),
}
"""Generation of kernels, or compute capability of Turing -> the tiles of batched products."""

_LINEAR_TILES = ((128, 128, 1.0), (128, 64, 1.0), (64, 128, 1.0), (32, 128, 1.65), (128, 32, 1.65), (32, 32, 2.5))
_OUTPUTS = 128 * 128  # Outputs that a multiprocessor computes at a time.
_START_STEPS = 20.0  # Starting a tile takes as long as this many steps of its reduction.
_LAST_WAVE = 3  # A last wave with a share s of its tiles takes 1 - (1 - s)^3 of the time of a full one.
_LINEAR_SLOWER = 1.1  # Linear layers in whole tiles relative to the peak rate.
_SPLIT = 1.1  # Time of a linear layer whose reduction is split, relative to that of its tiles without any waves.
_FAR_APART, _FAR_APART_STEPS = 2.0, 500.0  # Most additional passes over the left matrix, and half-way reduction.
_LOGIC = 0.9  # Power of fp32 products relative to the prior of energy.py.
_LONG_S = 2e-3  # Seconds of a kernel that feels half of what a very long one feels of the cap.
_SHORT_BATCHED, _SHORT_LINEAR = 0.2, 0.4  # Share of the cap's effect that very short kernels feel.
_AMPERE, _MANY_LANES, _ISSUE_SLOWER = (
    8,
    96,
    1.25,
)  # Between 64 and 128, because data sheets round: an H100 NVL has 127.3.
_PASCAL, _PASCAL_SLOWER, _PASCAL_STEPS = 6, 1.25, 10_000.0


def kernel_generation(gpu: GPU) -> int:
    """The NVIDIA generation whose fp32 kernels a GPU runs: 6, 7 or 8 (AMD's GPUs count as 8)."""
    return min(max(int(gpu.generation), _PASCAL), _AMPERE)


class Products(NamedTuple):
    """What does not depend on the GPU of products in fp32; arrays of shape (operations,) unless said otherwise.

    Args:
        is_linear: True for linear layers and single products, False for batched products.
        by_vector: True for products with a single row or column.
        flops: FLOPs, with the start of each tile.
        outputs: Numbers of the result.
        linear_tiles: Tiles of each size of _LINEAR_TILES, shape (sizes, operations).
        batched_tiles: Key of _BATCHED_TILES -> tiles of each of its sizes, shape (sizes, operations).
        moved: Bytes read and written.
        again: Additional bytes of rows that are far apart.
        reduction: Steps of the reduction.
    """

    is_linear: NDArray[np.bool_]
    by_vector: NDArray[np.bool_]
    flops: FloatArray
    outputs: FloatArray
    linear_tiles: FloatArray
    batched_tiles: Mapping[str, FloatArray]
    moved: FloatArray
    again: FloatArray
    reduction: FloatArray

    @classmethod
    def of(cls, n: Any) -> Self:
        """Count the tiles of products."""
        by_vector = (n.rows == 1) | (n.columns == 1)
        is_linear = ~is_batched(n.batch, n.rows, n.columns)
        left_bytes = n.element_bytes * n.batch * n.rows * n.reduction
        far_apart = _FAR_APART * n.reduction / (n.reduction + _FAR_APART_STEPS)
        return cls(
            is_linear=is_linear,
            by_vector=by_vector,
            flops=n.flops * (1 + _START_STEPS / np.maximum(n.reduction, 1.0)),
            outputs=np.maximum(n.batch * n.rows * n.columns, 1.0),
            linear_tiles=_tiles(n, _LINEAR_TILES),
            batched_tiles={name: _tiles(n, tiles) for name, tiles in _BATCHED_TILES.items()},
            moved=n.bytes_read + n.bytes_written,
            again=np.where(is_linear, 0.0, left_bytes * far_apart),
            reduction=n.reduction,
        )


def product_times_s(products: Products, least: LeastTimes, gpu: GPU, capped: bool) -> FloatArray:
    """Device seconds of products in fp32 at the boost clock, shape (operations,)."""
    linear, generation, peak = products.is_linear, kernel_generation(gpu), gpu.peak_flops["fp32"]
    waves = np.where(linear, _LINEAR_SLOWER * _linear_waves(products, gpu), _batched_waves(products, gpu))
    waves = np.where(products.by_vector, products.outputs / (_OUTPUTS * gpu.sms), waves)
    compute_s = products.flops / products.outputs * waves * (_OUTPUTS * gpu.sms / peak)
    lanes = peak / (2 * gpu.sms * gpu.boost_clock_mhz * 1e6)
    if generation == _AMPERE and lanes > _MANY_LANES:
        compute_s = compute_s * _ISSUE_SLOWER
    if generation == _PASCAL:
        longer = np.sqrt(np.hypot(1.0, products.reduction / _PASCAL_STEPS))
        compute_s = np.where(linear, compute_s * _PASCAL_SLOWER * longer, compute_s)
    bandwidth = reached_bandwidth(gpu)
    time_s: FloatArray = overlapped(compute_s, least.memory_s + products.again / bandwidth, least.cache_s)
    if not capped:
        return time_s
    rate = np.minimum((products.moved + products.again) / time_s, bandwidth)
    wanted = _wanted_power(gpu, np.minimum(compute_s / time_s, 1.0), rate)
    short = np.where(linear, _SHORT_LINEAR, _SHORT_BATCHED)
    slowed: FloatArray = time_s * wanted ** (short + (1 - short) * time_s / (time_s + _LONG_S))
    return slowed


def _tiles(n: Any, tiles: Tiles) -> FloatArray:
    rows, columns, _ = _sides(tiles)
    found: FloatArray = n.batch * np.ceil(n.rows / rows) * np.ceil(n.columns / columns)
    return found


@cache
def _sides(tiles: Tiles) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, columns and relative times of tiles, each of shape (sizes, 1)."""
    rows, columns, slower = (np.array(each, dtype=float)[:, None] for each in zip(*tiles, strict=True))
    return rows, columns, slower


def _batched_waves(products: Products, gpu: GPU) -> FloatArray:
    """Times that each multiprocessor computes 128 x 128 outputs, in the tile size for which this is least."""
    name = _TURING if gpu.compute_capability == _TURING else str(kernel_generation(gpu))
    return _waves(products.batched_tiles[name], _BATCHED_TILES[name], gpu)


def _waves(counts: FloatArray, tiles: Tiles, gpu: GPU) -> FloatArray:
    rows, columns, slower = _sides(tiles)
    held = np.ceil(counts / gpu.sms) * (rows * columns / _OUTPUTS)
    whole = np.floor(held)
    waves: FloatArray = ((whole + 1 - (1 - (held - whole)) ** _LAST_WAVE) * slower).min(axis=0)
    return waves


def tile_ratio(n: Any, gpu: GPU) -> FloatArray:
    """Time of batched products in whole tiles and waves, relative to the time of their FLOPs alone.

    Returns:
        The least ratio over the tile sizes of the GPU's generation, shape (operations,).
    """
    tiles = _BATCHED_TILES[str(kernel_generation(gpu))]
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0)
    started = 1 + _START_STEPS / np.maximum(n.reduction, 1.0)
    found: FloatArray = _waves(_tiles(n, tiles), tiles, gpu) * _OUTPUTS * gpu.sms / outputs * started
    return found


def _linear_waves(products: Products, gpu: GPU) -> FloatArray:
    """The same for linear layers, in whole tiles for each multiprocessor or with a reduction that is split."""
    rows, columns, slower = _sides(_LINEAR_TILES)
    held = products.linear_tiles / gpu.sms
    waves: FloatArray = (np.minimum(np.ceil(held), _SPLIT * held) * (rows * columns * slower / _OUTPUTS)).min(axis=0)
    return waves


def _wanted_power(gpu: GPU, computing: FloatArray, rate: FloatArray) -> FloatArray:
    """Power that kernels would draw at the boost clock, relative to the board's cap; at least 1."""
    energy, clock_mhz = PRIOR_ENERGY, float(gpu.boost_clock_mhz)
    logic_w = energy.fp32_j_per_flop * gpu.peak_flops["fp32"] + energy.awake_w_per_sm_ghz * gpu.sms * clock_mhz / 1e3
    byte_j = energy.hbm_j_per_byte if gpu.has_hbm else energy.gddr_j_per_byte
    static_w = static_power_w(gpu, clock_mhz)
    wanted: FloatArray = static_w + _LOGIC * process_factor(gpu) * logic_w * computing + byte_j * rate
    return np.maximum(wanted / gpu.power_limit_w, 1.0)
