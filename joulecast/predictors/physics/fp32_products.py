"""Device times of cuBLAS's products in fp32 on NVIDIA's GPUs, counted from the tiles that its kernels compute.

- Tiles. cuBLAS computes batched products in tiles of a few sizes, which depend on the generation: of the 87,623 kernels
  that NeuSight recorded, all but 0.4 % are named maxwell_sgemm_128x64 on Pascal, volta_sgemm_64x64, 128x64, 32x128 or
  128x32 on Volta and Turing, and ampere_sgemm_128x128 on Ampere. All of Volta's are taken for 64 x 64, which is a point
  less exact. Hopper and Ada are assumed to run Ampere's kernels; none was measured. Linear layers, and single products
  as well (gemm), choose among more sizes. Where they have too few tiles for the multiprocessors, cuBLAS splits the
  reduction into parts instead.
- Vectors. A product with a single row or column is computed by a kernel of its own (gemv), which has no tiles to fill
  and reads the matrix once. None was measured.
- Power. At the boost clock the board would need the power of its logic and of its memory. If that is more than the cap,
  the board lowers its clock. Short kernels feel only a part of it, because the board averages its power.
- Issue slots. From Ampere on, most multiprocessors have 128 lanes, which need all four instructions that can be issued
  per cycle. Loads and addresses take slots from them; with 64 lanes they use slots that are free. No single product was
  measured on such a chip. The factor is about that of a ViT in fp32 on an A10.
- Pascal's kernels for linear layers are slower than later ones, and more so for long reductions.

The constants were fitted to NeuSight's GPUs (Lee et al., ASPLOS 2025), and those of linear layers to A30 and
RTX 2080 Ti as well. Fitted without the chip that they are tested on, they are less exact; benchmarks/public/notes.md
has both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from .bandwidth import reached_bandwidth
from .energy import PRIOR_ENERGY, process_factor, static_power_w
from .least_times import LeastTimes
from .norms import overlapped
from .operation_numbers import KIND_PLACES
from .tiling import Tile, tile_count

_BATCHED_TILES = {6: Tile(64, 128), 7: Tile(64, 64), 8: Tile(128, 128)}
"""Generation of kernels -> the tile of batched products."""

_LINEAR_TILES = (Tile(128, 128), Tile(128, 64), Tile(64, 128), Tile(32, 128), Tile(128, 32))
_NARROW, _NARROW_SLOWER = 32, 1.65  # Tiles with 32 rows or columns take longer than others for the same work.
_WHOLE = Tile(128, 128)
_START_STEPS = 20.0  # Starting a tile takes as long as this many steps of its reduction.
_LINEAR_SLOWER = 1.1  # Linear layers in whole tiles relative to the peak rate, and split reductions to whole ones.
_FEWEST_STEPS = 64.0  # Of a part of a reduction that is split, as in half precision (model/tiles.py).
_LONGEST_WHOLE = 1025.0  # Longest reduction of batched products that was measured: on A100 and P4 none is split.
_LOGIC = 0.9  # Power of fp32 products relative to the prior of energy.py.
_LONG_S = 8e-4  # Seconds of a kernel that feels half of what a very long one feels of the cap.
_AMPERE, _MANY_LANES, _ISSUE_SLOWER = 8, 96, 1.25  # Between 64 and 128 lanes: data sheets round (H100 NVL: 127.3).
_PASCAL, _PASCAL_SLOWER, _PASCAL_STEPS = 6, 1.25, 10_000.0


def kernel_generation(gpu: GPU) -> int:
    """The NVIDIA generation whose fp32 kernels a GPU runs: 6, 7 or 8 (AMD's GPUs count as 8)."""
    return min(max(int(gpu.generation), _PASCAL), _AMPERE)


def product_times_s(n: Any, least: LeastTimes, gpu: GPU, capped: bool) -> FloatArray:
    """Device seconds of products in fp32 at the boost clock, shape (operations,).

    Args:
        n: Their numbers (`numbers_of`).
        least: Their least times.
        gpu: The GPU.
        capped: Whether the default power cap applies.
    """
    generation, peak = kernel_generation(gpu), gpu.peak_flops["fp32"]
    batched, by_vector = _is_batched(n, gpu), (n.rows == 1) | (n.columns == 1)
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0)
    waves = np.where(batched, _batched_waves(n, gpu), _LINEAR_SLOWER * _linear_waves(n, gpu))
    waves = np.where(by_vector, np.maximum(outputs / (_WHOLE.outputs * gpu.sms), _least_waves(n)), waves)
    compute_s = n.flops * _started(n) / outputs * waves * (_WHOLE.outputs * gpu.sms / peak)
    lanes = peak / (2 * gpu.sms * gpu.boost_clock_mhz * 1e6)
    if generation == _AMPERE and lanes > _MANY_LANES:
        compute_s = compute_s * _ISSUE_SLOWER
    if generation == _PASCAL:
        longer = np.sqrt(np.hypot(1.0, n.reduction / _PASCAL_STEPS))
        compute_s = np.where(batched, compute_s, compute_s * _PASCAL_SLOWER * longer)
    time_s: FloatArray = overlapped(compute_s, least.memory_s, least.cache_s)
    if not capped:
        return time_s
    rate = np.minimum((n.bytes_read + n.bytes_written) / time_s, reached_bandwidth(gpu))
    wanted = _wanted_power(gpu, np.minimum(compute_s / time_s, 1.0), rate)
    slowed: FloatArray = time_s * wanted ** (time_s / (time_s + _LONG_S))
    return slowed


def tile_ratio(n: Any, gpu: GPU) -> FloatArray:
    """Time of batched products in whole tiles and waves, relative to the time of their FLOPs alone.

    Returns:
        Shape (operations,); 1 for other operations.
    """
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0)
    ratio = _batched_waves(n, gpu) * _WHOLE.outputs * gpu.sms / outputs * _started(n)
    return np.where((n.kind == KIND_PLACES["matmul"]) & _is_batched(n, gpu), ratio, 1.0)


def _is_batched(n: Any, gpu: GPU) -> Any:
    """Which products are computed by cuBLAS's batched kernels.

    A single product is computed as a linear layer is (PyTorch calls gemm in place of bmm), and one with a vector by a
    kernel of its own. On boards of other makers no batch was measured; it is taken to choose among tiles as well.
    """
    return gpu.is_nvidia & (n.batch > 1) & (n.rows > 1) & (n.columns > 1)


def _started(n: Any) -> Any:
    """Time of tiles with their start, relative to that of their reduction alone."""
    return 1 + _START_STEPS / np.maximum(n.reduction, 1.0)


def _batched_waves(n: Any, gpu: GPU) -> FloatArray:
    """Times that each multiprocessor computes 128 x 128 outputs, which it does at once."""
    tile = _BATCHED_TILES[kernel_generation(gpu)]
    held = tile_count(n.rows, n.columns, tile, n.batch) * (tile.outputs / _WHOLE.outputs) / gpu.sms
    part = (_LONGEST_WHOLE + _START_STEPS) / (n.reduction + _START_STEPS)
    split = np.where(part < 1, np.maximum(_LINEAR_SLOWER * held, part), np.inf)
    waves: FloatArray = np.minimum(np.ceil(held), split)
    return waves


def _linear_waves(n: Any, gpu: GPU) -> FloatArray:
    """The same for linear layers, in whole tiles for each multiprocessor or with a reduction that is split."""
    waves = []
    for tile in _LINEAR_TILES:
        held = tile_count(n.rows, n.columns, tile, n.batch) / gpu.sms
        slower = _NARROW_SLOWER if _NARROW in tile else 1.0
        split = np.maximum(_LINEAR_SLOWER * held, _least_part(n))
        waves.append(np.minimum(np.ceil(held), split) * (slower * tile.outputs / _WHOLE.outputs))
    least: FloatArray = np.min(waves, axis=0)
    return least


def _least_part(n: Any) -> Any:
    """Share of the time of a reduction that its shortest part takes, with the start of a tile."""
    return np.minimum((_FEWEST_STEPS + _START_STEPS) / (n.reduction + _START_STEPS), 1.0)


def _least_waves(n: Any) -> Any:
    """The least that `_linear_waves` are in whole: one part in one of the smallest tiles. No vector takes less."""
    return _LINEAR_SLOWER * _least_part(n) * _NARROW_SLOWER * _NARROW / _WHOLE.rows


def _wanted_power(gpu: GPU, computing: FloatArray, rate: FloatArray) -> FloatArray:
    """Power that kernels would draw at the boost clock, relative to the board's cap; at least 1."""
    energy, clock_mhz = PRIOR_ENERGY, float(gpu.boost_clock_mhz)
    logic_w = energy.fp32_j_per_flop * gpu.peak_flops["fp32"] + energy.awake_w_per_sm_ghz * gpu.sms * clock_mhz / 1e3
    byte_j = energy.hbm_j_per_byte if gpu.has_hbm else energy.gddr_j_per_byte
    static_w = static_power_w(gpu, clock_mhz)
    wanted: FloatArray = static_w + _LOGIC * process_factor(gpu) * logic_w * computing + byte_j * rate
    return np.maximum(wanted / gpu.power_limit_w, 1.0)
