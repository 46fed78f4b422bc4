"""Device times that follow from what NVIDIA's kernels in fp32 do.

Where the kernels are known, their tiles, steps and blocks are counted: those of matrix products, and of softmax and
layer norm (pytorch_kernels.py). What is learned is the ratio to these times. Of cuBLAS's products count:

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

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES, PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .cached import cached
from .energy import PRIOR_ENERGY, process_factor, static_power_w
from .least_times import LeastTimes
from .norms import overlapped
from .operation_numbers import KIND_PLACES, is_depthwise, numbers_of
from .pytorch_kernels import layer_norm_times_s, softmax_times_s
from .roofline import fp32_flops, on_tensor_cores, reached_bandwidth
from .tiling import AMPERE, PASCAL, Tile, kernel_generation, tile_count
from .variants import as_run, seen_as

_BATCHED_TILES = np.array([[64, 64, 128], [128, 64, 128]])
"""Rows and columns of the tile of batched products, for each generation of kernels from Pascal to Ampere."""

_LINEAR_TILES = (Tile(128, 128), Tile(128, 64), Tile(64, 128), Tile(32, 128), Tile(128, 32))
_NARROW, _NARROW_SLOWER = 32, 1.65  # Tiles with 32 rows or columns take longer than others for the same work.
_WHOLE = Tile(128, 128)
_START_STEPS = 20.0  # Starting a tile takes as long as this many steps of its reduction.
_LINEAR_SLOWER = 1.1  # Linear layers in whole tiles relative to the peak rate, and split reductions to whole ones.
_FEWEST_STEPS = 64.0  # Of a part of a reduction that is split, as in half precision (model/tiles.py).
_LONGEST_WHOLE = 1025.0  # Longest reduction of batched products that was measured: on A100 and P4 none is split.
_LOGIC = 0.9  # Power of fp32 products relative to the prior of energy.py.
_LONG_S = 8e-4  # Seconds of a kernel that feels half of what a very long one feels of the cap.
_MANY_LANES, _ISSUE_SLOWER = 96, 1.25  # Between 64 and 128 lanes: data sheets round (H100 NVL: 127.3).
_PASCAL_SLOWER, _PASCAL_STEPS = 1.25, 10_000.0
DEPTHWISE_TRAINING = 3.0
"""Device time over least time of depthwise convolutions in training in half precision. Chosen with timm's published
times in view (the half of benchmarks/public that is not held back for tests)."""

_ROW_KERNELS = {"softmax": softmax_times_s, "layer_norm": layer_norm_times_s}


def counted_s(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Device seconds that the work of kernels takes at the default clock, shape (operations,)."""
    return LeastTimes.of(operations, gpu).time_s * counted_ratio(operations, gpu)


def counted_ratio(operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
    """Device time that the work of kernels takes at the default clock, relative to the least time of physics.

    Returns:
        A read-only array of shape (operations,); 1 for operations whose kernels are not counted: other kinds than
        matmul, linear, softmax and layer_norm, other precisions than fp32, softmax and layer norm in training and on
        AMD's GPUs.
    """
    return _counted_ratio(as_run(OperationList.of(operations), gpu), gpu, capped)


def device_ratio(
    operations: OperationList, gpu: GPU, learned: FloatArray, capped: NDArray[np.bool_] | bool
) -> FloatArray:
    """Device time over least time from what was learned of it: what is counted of kernels in fp32 is a part of it.

    Products count as they are seen (`seen_as`). Rows in half precision take as many steps as in fp32, for fewer bytes.
    Depthwise convolutions are a case apart. In fp32 a kernel of PyTorch computes them, several times slower than memory
    allows. In half precision on tensor cores cuDNN does (`use_cudnn_depthwise` in ATen/native/Convolution.cpp), and is
    bound by memory but for the gradient of the weight. The default power cap is counted of products that are `capped`.
    Shape (operations,).
    """
    n, lists = numbers_of(operations), (seen_as(operations, gpu), operations)
    counted = np.where(n.is_product > 0, *(counted_ratio(each, gpu, False) for each in lists))
    if np.any(capped):
        counted = np.where(capped & (n.is_product > 0), counted_ratio(lists[0], gpu), counted)
    by_cudnn = is_depthwise(n) & (n.element_bytes == HALF_BYTES) & on_tensor_cores(n, gpu)
    found: FloatArray = np.where(by_cudnn, np.where(n.is_training > 0, DEPTHWISE_TRAINING, 1.0), learned * counted)
    return found


def is_counted_product(n: Any) -> NDArray[np.bool_]:
    """Which operations are products whose kernels are counted, shape (operations,), given their numbers."""
    found: NDArray[np.bool_] = (n.kind == KIND_PLACES["linear"]) | (n.kind == KIND_PLACES["matmul"])
    return found


@cached
def _counted_ratio(operations: OperationList, gpu: GPU, capped: bool) -> FloatArray:
    n, least = numbers_of(operations), LeastTimes.of(operations, gpu)
    ratio, plain, training = np.ones_like(least.time_s), n.precision == PRECISIONS.index("fp32"), n.is_training > 0
    product = plain & is_counted_product(n)
    # Softmax and layer norm take as many steps for a row in half precision.
    in_rows = (plain | (n.element_bytes == HALF_BYTES)) & ~training
    for places in (np.flatnonzero(product & ~training), np.flatnonzero(product & training)):
        if len(places):
            passes = _passes(_some(n, places))
            memory_s, cache_s = (each[..., places] * (1 / len(passes)) for each in (least.memory_s, least.cache_s))
            seconds = sum(product_times_s(one, memory_s, cache_s, gpu, capped) for one in passes)
            ratio[..., places] = seconds / least.time_s[..., places]
    for kind, times_s in _ROW_KERNELS.items():
        if len(places := np.flatnonzero(in_rows & (n.kind == KIND_PLACES[kind]))):
            seconds = times_s(_some(n, places), least.memory_s[..., places], gpu)
            ratio[..., places] = np.where(gpu.is_nvidia, seconds / least.time_s[..., places], 1.0)
    ratio.flags.writeable = False
    return ratio


def _passes(n: Any) -> list[Any]:
    """The numbers of each product: the forward, and in training the gradients of both factors, of as many FLOPs."""
    if not n.is_training.any():
        return [n]
    sizes = ((n.rows, n.columns, n.reduction), (n.rows, n.reduction, n.columns), (n.columns, n.reduction, n.rows))
    third = {name: getattr(n, name) / len(sizes) for name in ("flops", "bytes_read", "bytes_written")}
    return [n._replace(rows=m, columns=c, reduction=k, **third) for m, c, k in sizes]


def _some(n: Any, places: NDArray[np.int64]) -> Any:
    """The numbers of some operations of a list."""
    return n._make(column[places] for column in n)


def product_times_s(n: Any, memory_s: FloatArray, cache_s: FloatArray, gpu: GPU, capped: bool) -> FloatArray:
    """Device seconds of products in fp32 at the boost clock, shape (operations,).

    Args:
        n: Their numbers (`numbers_of`).
        memory_s: Their least seconds of DRAM.
        cache_s: Their least seconds of caches.
        gpu: The GPU.
        capped: Whether the default power cap applies.
    """
    generation, peak = kernel_generation(gpu), fp32_flops(gpu)
    batched, by_vector = _is_batched(n, gpu), (n.rows == 1) | (n.columns == 1)
    outputs = np.maximum(n.batch * n.rows * n.columns, 1.0)
    waves = np.where(batched, _batched_waves(n, gpu), _LINEAR_SLOWER * _linear_waves(n, gpu))
    waves = np.where(by_vector, np.maximum(outputs / (_WHOLE.outputs * gpu.sms), _least_waves(n)), waves)
    compute_s = n.flops * _started(n) / outputs * waves * (_WHOLE.outputs * gpu.sms / peak)
    lanes = peak / (2 * gpu.sms * gpu.boost_clock_mhz * 1e6)
    compute_s = compute_s * np.where((generation == AMPERE) & (lanes > _MANY_LANES), _ISSUE_SLOWER, 1.0)
    longer = np.sqrt(np.hypot(1.0, n.reduction / _PASCAL_STEPS))
    compute_s = np.where((generation == PASCAL) & ~batched, compute_s * _PASCAL_SLOWER * longer, compute_s)
    time_s: FloatArray = overlapped(compute_s, memory_s, cache_s)
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
    tile = Tile(*_BATCHED_TILES[:, kernel_generation(gpu) - PASCAL])
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
    energy, clock_mhz = PRIOR_ENERGY, gpu.boost_clock_mhz
    logic_w = energy.fp32_j_per_flop * fp32_flops(gpu) + energy.awake_w_per_sm_ghz * gpu.sms * clock_mhz / 1e3
    byte_j = np.where(gpu.has_hbm, energy.hbm_j_per_byte, energy.gddr_j_per_byte)
    static_w = static_power_w(gpu, clock_mhz)
    wanted: FloatArray = static_w + _LOGIC * process_factor(gpu) * logic_w * computing + byte_j * rate
    return np.maximum(wanted / gpu.power_limit_w, 1.0)
