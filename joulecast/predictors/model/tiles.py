"""How products and attention are cut into tiles: the quickest choice of tile, and of parts of a split reduction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..physics.tiling import padded
from .machine import BLACKWELL, FLASH_2, HOPPER, TENSOR_CORES, TENSORRT_LLM, TRITON, Machine
from .work import ATTENTION, BACKWARD, PRODUCT, Work

TILES: FloatArray = np.array(
    [
        (256, 128),
        (128, 256),
        (128, 128),
        (128, 64),
        (64, 128),
        (64, 64),
        (64, 32),
        (32, 64),
        (32, 128),
        (128, 32),
        (16, 128),
        (128, 16),
    ],
    dtype=float,
)
"""Rows and columns of the tiles that libraries choose from, shape (tiles, 2)."""

_SPLITS: FloatArray = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_LEAST_REDUCTION = 64.0  # Least number of steps in a part of a split reduction.
_FEWEST_STEPS = 32.0  # A shorter reduction takes as long as this many steps.
_PARTIAL_BYTES = 8.0  # A partial sum in fp32 is written once and read once.
_LANE_RATE = 300.0  # Multiprocessors compute fewer FLOPs per cycle on lanes, more on tensor cores.
_AT_ONCE = 20_000  # Kernels whose tiles are computed together, so that arrays stay in the cache of a CPU.


def tiled_cycles(
    work: Work, machine: Machine, rate: FloatArray, full: FloatArray, ways: NDArray[np.int64], constants: FloatArray
) -> Iterator[FloatArray]:
    """Cycles, waves, fill and splits of the quickest choice of tile and split, each of shape (..., kernels).

    Kernels without a product have no cycles. Those on several GPUs stand in a row, GPU after GPU.
    """
    shape, count = rate.shape, rate.shape[-1]
    if len(shape) > 1:
        work = Work(*(np.broadcast_to(column, shape).ravel() for column in work))  # type: ignore[arg-type]
        rate, full, ways, constants = rate.ravel(), full.ravel(), ways.ravel(), constants.reshape(len(constants), -1)
    found = np.zeros((4, len(work.place)))
    found[1:] = 1.0
    attended = np.flatnonzero(work.group == ATTENTION)
    if len(attended):
        its = machine.of_kernels(attended // count)
        found[:3, attended] = attended_cycles(
            work.some(attended), its, rate[attended], ways[attended], constants[:, attended]
        )
    products = np.flatnonzero((work.rows > 0) & (work.group != ATTENTION))
    for first in range(0, len(products), _AT_ONCE):
        some = products[first : first + _AT_ONCE]
        its = machine.of_kernels(some // count)
        found[:, some] = _quickest(work.some(some), its, rate[some], full[some], constants[:, some])
    yield from found.reshape(4, *shape)


def _quickest(work: Work, machine: Machine, rate: FloatArray, full: FloatArray, constants: FloatArray) -> FloatArray:
    """Cycles, waves, fill and splits of the quickest of all tiles and splits, shape (4, kernels)."""
    tile, peak, loaded, split, exposed, l2_rate = constants
    splits = _SPLITS[:, None]
    # A product with a vector has kernels of its own (gemv), which have no tiles to fill, and all start at once. Linear
    # layers with one row take as long as tiles that they hardly fill (aiconfigurator2026).
    row = (work.rows == 1) & (work.batch > 1)
    by_vector = (work.group == PRODUCT) & (row | (work.columns == 1))
    tall, wide = (
        np.where(by_vector, np.minimum(side[:, None, None], size), side[:, None, None])
        for size, side in zip((work.rows, work.columns), TILES.T, strict=True)
    )
    steps = np.maximum(work.reduction / splits, _FEWEST_STEPS)
    tiles = np.ceil(work.rows / tall) * np.ceil(work.columns / wide) * work.batch
    waves = tiles * splits / machine.sms
    operands = (work.loads_rows * tall + wide) * work.in_bytes * steps
    loading = operands * loaded / full
    # What kernels lose beside the products costs as many cycles for each FLOP as at the rate that they are written for.
    product = (1 / rate + (1 / peak - 1) / full) / np.sqrt(np.where(full < _LANE_RATE, work.saved, 1.0))
    computing = 2 * tall * wide * steps * product + exposed * work.exponentials * tall * steps / (
        machine.exponentials * np.ceil(work.columns / wide)
    )
    sums = split + waves * tall * wide * _PARTIAL_BYTES / l2_rate
    whole = np.where(by_vector, np.maximum(waves, 1.0), np.ceil(waves))
    cycles = whole * np.maximum(computing, loading) + np.where(by_vector, 1.0, whole) * tile
    possible = (splits == 1) | (work.reduction / splits >= _LEAST_REDUCTION)
    cycles = np.where(possible, cycles + np.where(splits > 1, sums, 0.0), np.inf)
    taken = cycles.reshape(len(TILES) * len(_SPLITS), -1).argmin(axis=0)
    each = (*np.divmod(taken, len(_SPLITS)), np.arange(len(work.place)))
    parts = _SPLITS[each[1]]
    computed = np.ceil(waves[each]) * machine.sms * (tall * wide)[each[0], 0, each[2]]
    outputs = work.batch * work.rows * work.columns
    return np.array([cycles[each], waves[each], outputs * parts / computed, parts])


_QUERIES = 128.0  # In a tile of attention; and keys in a block.

# Kernels compute heads in multiples of 32 elements; Triton's pad them to a power of two, and compute a head of 192 in
# two parts. Measured on the L40S: they take as long for heads of 72 and 80 elements as for 128.
_HEAD_STEP, _TWO_PARTS = 32.0, 192.0
# FLOPs per cycle and multiprocessor of an A100, whose instructions FlashAttention 2 uses. Published forwards with heads
# of 128 reach 1480 on an A100 (arXiv 2307.08691, 4.1), 1290 to 1600 on an H100 (pytorch issue 142132, flash-attention
# pull request 1791) and 1240 on a B200 (tritonbench pull request 171). The peaks are 2048, 4096 and 8192.
_AMPERE = 2048.0
# FLOPs per second of the backward over those of the forward in long sequences. With heads of 128, FlashAttention 2 has
# 0.79 (full) and 1.01 (causal) on an H100, and FlashAttention 3 0.84 (flash-attention pull request 1791). It is 0.86 on
# an A100 (arXiv 2307.08691: 63 and 73 % of the peak), and with heads of 64 0.88 on a B200 (flash-attention issue 1589)
# and 0.97 on an RTX A5000 (gpu-mode/ring-attention issue 10). It has five products where the forward has two.
_BACKWARD_RATE, _BACKWARD_PRODUCTS = 0.88, 2.5
# FlashAttention 2 is 1.3 to 2.5 times as quick as the first FlashAttention in Triton (arXiv 2307.08691, 4.1): the
# geometric mean. Older GPUs run the memory-efficient kernels of xformers, which take 1.2 to 1.7 times as long as
# FlashAttention 2 in the forward and 1.9 to 3.5 times in the backward (flash-attention issue 416): geometric means.
_FIRST_IN_TRITON, _EFFICIENT, _EFFICIENT_BACKWARD = 1.8, 1.5, 2.4
_BEFORE_FLASH_2 = ("5", "6", "7")  # First numbers of compute capabilities of NVIDIA that it does not run on.


def attended_cycles(
    work: Work, machine: Machine, rate: FloatArray, ways: NDArray[np.int64], constants: FloatArray
) -> FloatArray:
    """Cycles, waves and fill of attention with many queries, shape (3, kernels).

    A kernel like FlashAttention (Dao, arXiv 2307.08691) gives each multiprocessor tiles of 128 queries, which pass over
    the keys that they may see in blocks of 128. For each pair of a query and a key it computes two products and one
    exponential. Kernels that cannot skip what is outside a window compute it. One tile may hold the queries of all
    heads that share keys; the quicker of both is called.
    """
    tile, peak, _, _, exposed, _ = constants
    by_triton, flash_2 = ways == TRITON, ways == FLASH_2
    skips = (ways == TENSORRT_LLM) | work.asked_of("vllm", "cudnn")
    skips |= (ways == TENSOR_CORES) & np.isin(machine.generation, (HOPPER, BLACKWELL))
    window = np.where(skips, work.window, work.span)
    half = work.columns / 2
    power = np.where(half == _TWO_PARTS, half, np.exp2(np.ceil(np.log2(np.maximum(half, 1.0)))))
    head = 2 * np.where(by_triton, power, padded(half, _HEAD_STEP))
    # What FlashAttention 2 loses beside the products costs as many cycles per FLOP on all GPUs as on Ampere.
    product = np.where(flash_2, 1 / np.minimum(rate, _AMPERE) + (1 / peak - 1) / _AMPERE, 1 / (rate * peak))
    back = work.part == BACKWARD
    pair = 2 * head * product + np.where(back, _BACKWARD_PRODUCTS, 1.0) * exposed / machine.exponentials
    pair = pair * np.where(flash_2, _over_flash_2(work, machine), 1.0) / np.where(back, _BACKWARD_RATE, 1.0)
    queries = work.rows / work.sharing
    found = []
    for together in (work.sharing, np.ones(len(queries))):
        rows, batch = queries * together, work.batch * work.sharing / together
        tall = np.where(rows > _QUERIES / 2, _QUERIES, np.where(rows > _QUERIES / 8, _QUERIES / 2, _QUERIES / 8))
        in_head = np.ceil(rows / tall)
        each = np.clip(np.ceil(tall / together), 1.0, np.maximum(queries, 1.0))
        longest = padded(np.minimum(work.span, window + each - 1), _QUERIES)
        # A causal tile sees the keys up to its last query. Each further tile sees more, until the window is full.
        least = padded(np.minimum(np.maximum(work.span - queries + each, 1.0), longest), _QUERIES)
        growing = np.minimum(np.ceil((longest - least) / each), in_head)
        growth = (growing * (least + longest) / 2 + (in_head - growing) * longest) / in_head
        waves = batch * in_head / machine.sms
        average, most = (tall * keys * pair + tile for keys in (np.where(work.causal > 0, growth, longest), longest))
        # At least the longest tile; otherwise half way between work that is spread evenly and whole waves of tiles.
        cycles = np.maximum(np.maximum(waves * average, most), (waves + np.ceil(waves)) / 2 * average)
        found.append((cycles, waves, rows / (in_head * tall) * waves / np.ceil(waves)))
    packed, single = found
    quicker: FloatArray = np.where(packed[0] <= single[0], packed, single)
    return quicker


def _over_flash_2(work: Work, machine: Machine) -> FloatArray:
    """Time of pairs of query and key in the kernels that PyTorch calls, over that in FlashAttention 2, (kernels,)."""
    older = np.isin(np.char.partition(machine.generation, ".")[..., 0], _BEFORE_FLASH_2)
    efficient = np.where(older, np.where(work.part == BACKWARD, _EFFICIENT_BACKWARD, _EFFICIENT), 1.0)
    found: FloatArray = np.where(work.asked_of("triton"), _FIRST_IN_TRITON, efficient)
    return found
