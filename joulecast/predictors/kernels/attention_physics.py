"""The time of fused attention on tensor cores, computed from its sizes and a data sheet.

A kernel like FlashAttention (Dao, arXiv 2307.08691) gives each multiprocessor tiles of 128 queries. A tile passes over
the keys that its queries may see in blocks of 128. For each pair of a query and a key it computes two products and one
exponential. Exponentials have units of their own, which compute 16 per clock and multiprocessor on NVIDIA GPUs since
Volta (32 on a B300). That is why small heads reach little of the peak: a B200 multiplies a head of 64 elements in half
the time of its exponentials.

A single query per sequence (a step of decoding) has very little to compute. Its time is that of reading the cache of
keys and values. Where there are fewer heads than multiprocessors, kernels split the keys of a head over several
multiprocessors and merge the partial results ("split-kv").

Kernels of different libraries differ more than those of different GPUs (`attention_libraries.py`), so each library has
constants of its own. They start at values that were fitted to several GPUs, and then rounded. Their fit is bounded
around these values. Without bounds they would compensate for the weak points of one library on one GPU, and be wrong
for others. Learning these weak points is left to trees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..physics.attention_sizes import AttentionSizes
from ..physics.tiling import padded
from .family import Constant
from .products import ENERGY, Machine, capped_s

TILE = 128.0
"""Number of queries in a tile, and of keys in a block."""

_DECODING_ROWS = 64.0  # Rows of a tile in decoding; the queries that share keys and values are the rows of one product.
_SPLIT_SPARE = 1.1  # FlashAttention-3 plans with a tenth more work, so that the last wave is nearly full.

_CACHE_STEEPNESS = 6  # How sharply the share of hits falls where the bytes outgrow the L2.
# FLOPs per cycle and multiprocessor of the instructions that Triton's kernels use, on all generations.
_OLDER_INSTRUCTIONS = 1024.0
_HEAD_STEP, _TWO_PARTS = 32.0, 192.0
# FLOPs per cycle and multiprocessor of an A100, whose instructions FlashAttention 2 uses. Published forwards with heads
# of 128 reach 1480 on an A100 (arXiv 2307.08691, 4.1), 1290 to 1600 on an H100 (pytorch issue 142132, flash-attention
# pull request 1791) and 1240 on a B200 (tritonbench pull request 171). The peaks are 2048, 4096 and 8192.
_AMPERE = 2048.0
# FLOPs per second of the backward over those of the forward in long sequences. With heads of 128, FlashAttention 2 has
# 0.79 (full) and 1.01 (causal) on an H100, and FlashAttention 3 0.84 (flash-attention pull request 1791). It is 0.86 on
# an A100 (arXiv 2307.08691: 63 and 73 % of the peak), and with heads of 64 0.88 on a B200 (flash-attention issue 1589)
# and 0.97 on an RTX A5000 (gpu-mode/ring-attention issue 10).
_BACKWARD_RATE = 0.88
_TRITON_OVER_REST = 2.0  # Products of Triton's kernels take longer by this factor. Measured: 1.5 to 3.

CONTEXT_CONSTANTS: tuple[Constant, ...] = (
    # Launching the kernel, and a kernel before it in which engines plan the work.
    Constant("call_s", 8e-6, 4e-6, 1.6e-5),
    # Time of the products over their time at the peak of the data sheet.
    Constant("products_over_peak", 1.5, 1.2, 2.0),
    # Share of the exponentials' time that the products do not hide.
    Constant("exposed_exponentials", 0.55, 0.3, 1.0),
    # Starting a tile, loading its queries, and writing its result.
    Constant("tile_cycles", 5500.0, 2500.0, 12000.0),
    # Bytes of the operation over what the memory and the L2 transfer in the same time by the data sheet. TensorRT-LLM
    # moves them three times, because kernels before write queries and keys once more.
    Constant("share_of_bandwidth", 0.5, 0.15, 0.95),
    Constant("l2_bytes_per_sm_cycle", 6.0, 2.0, 48.0),
    Constant(ENERGY, 2.0, 0.5, 4.0),
    Constant("burst_s", 5e-4, 5e-5, 5e-3),  # See `capped_s`.
)
"""The constants of `context_s`, in the order in which it takes them."""

DECODING_CONSTANTS: tuple[Constant, ...] = (
    Constant("call_s", 8e-6, 4e-6, 1.6e-5),
    # A second kernel that merges the results of split keys.
    Constant("merge_s", 1.5e-6, 5e-7, 5e-6),
    # Starting on a part of a cache, and waiting for the first bytes from memory.
    Constant("part_cycles", 4000.0, 2500.0, 5000.0),
    # Bytes per clock that one multiprocessor can request from memory.
    Constant("bytes_per_sm_cycle", 60.0, 40.0, 120.0),
    Constant("share_of_bandwidth", 0.9, 0.85, 0.95),
    Constant("l2_bytes_per_sm_cycle", 35.0, 25.0, 60.0),
)
"""The constants of `decoding_s`, in the order in which it takes them."""


def context_s(
    work: AttentionSizes,
    machine: Machine,
    constants: FloatArray,
    by_triton: NDArray[np.bool_] | bool = False,
    *,
    backward: bool = False,
) -> FloatArray:
    """Device seconds of attention with many queries, shape (operations,).

    Args:
        work: Sizes of the operations, as the kernels compute them.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONTEXT_CONSTANTS, shape (constants,) or (constants, operations).
        by_triton: Whether kernels of Triton compute an operation, shape (operations,) or for all. They do not use the
            newest instructions: their FLOPs per cycle are 320 on an L40S, 340 to 390 on an H100 and 600 to 860 on a
            B200, where those of other libraries are proportional to the peak.
        backward: Whether the backward pass is meant instead of the forward pass.
    """
    older = np.sqrt(_OLDER_INSTRUCTIONS * machine.flops_per_cycle) / _TRITON_OVER_REST
    rate = np.where(by_triton, older, machine.flops_per_cycle)
    head = _padded_head(work.key_size, by_triton) + _padded_head(work.value_size, by_triton)
    return _tiled_s(work, machine, constants, head * constants[1] / rate, 1.0, backward)


def flash_2_s(
    work: AttentionSizes,
    machine: Machine,
    constants: FloatArray,
    slower: FloatArray | float = 1.0,
    *,
    backward: bool = False,
) -> FloatArray:
    """Device seconds of FlashAttention 2, as PyTorch calls it on any GPU, shape (operations,).

    Its kernels use Ampere's instructions on newer GPUs, too (`mma.sync`). What they lose beside the products is lost to
    loading operands for them. A multiprocessor loads as many in a cycle on all GPUs, so this costs as many cycles per
    FLOP as on an A100, and tensor cores of a lower rate come closer to their peak.

    Args:
        work: Sizes of the operations.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONTEXT_CONSTANTS as fitted to GPUs of compute capability 8.0, shape (constants,) or
            (constants, operations).
        slower: Time of each pair of query and key in the kernels that are meant over that in FlashAttention 2.
        backward: Whether the backward pass is meant instead of the forward pass.
    """
    head = padded(work.key_size, _HEAD_STEP) + padded(work.value_size, _HEAD_STEP)
    cycles = 1 / np.minimum(machine.flops_per_cycle, _AMPERE) + (constants[1] - 1) / _AMPERE
    return _tiled_s(work, machine, constants, head * cycles, slower, backward)


def _tiled_s(
    work: AttentionSizes,
    machine: Machine,
    constants: FloatArray,
    product_cycles: FloatArray,
    slower: FloatArray | float,
    backward: bool,
) -> FloatArray:
    """Device seconds of kernels that work in tiles, shape (operations,).

    Args:
        work: Sizes of the operations, as the kernels compute them.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONTEXT_CONSTANTS, shape (constants,) or (constants, operations).
        product_cycles: Cycles of one FLOP for each element of a key and of its value, shape (operations,).
        slower: Factor on the time of each pair of query and key.
        backward: Whether the backward pass is meant instead of the forward pass.
    """
    call_s, _, exposed, tile_cycles, bandwidth, l2_bytes, picojoules, burst_s = constants
    pair_cycles = slower * (2 * product_cycles + exposed / machine.exponentials)
    flops, apart_s = work.flops, np.zeros(len(work.queries))
    if backward:
        # Gradients of scores and scales take instructions beside the exponentials, so these grow as products do.
        pair_cycles = pair_cycles * work.backward_flops / (work.flops * _BACKWARD_RATE)
        flops, apart_s = work.backward_flops, work.gradient_bytes / (machine.bandwidth * bandwidth)
    packed, single = (_tile_cycles(work, machine.sms, pair_cycles, tile_cycles, each) for each in (True, False))
    burst = np.minimum(packed, single) / machine.clock_hz
    compute_s = capped_s(burst, flops, machine, picojoules, burst_s)
    missed = _missed(work.moved_bytes, machine)
    memory_s = work.moved_bytes * missed / (machine.bandwidth * bandwidth)
    moved_s = memory_s + work.moved_bytes * (1 - missed) / (machine.sms * machine.clock_hz * l2_bytes)
    seconds: FloatArray = call_s + np.cbrt(compute_s**3 + moved_s**3) + apart_s
    return seconds


def _padded_head(size: FloatArray, by_triton: NDArray[np.bool_] | bool) -> FloatArray:
    """Elements of a head that kernels compute: Triton's pad it to a power of two, others to a multiple of 32.

    Triton's compute a head of 192 in parts of 128 and 64. Measured on the L40S: they take as long for heads of 72 and
    80 elements as for 128.
    """
    power = np.where(size == _TWO_PARTS, size, np.exp2(np.ceil(np.log2(size))))
    found: FloatArray = np.where(by_triton, power, padded(size, _HEAD_STEP))
    return found


def _missed(moved_bytes: FloatArray, machine: Machine) -> FloatArray:
    """Share of the bytes that the L2 cache does not hold."""
    found: FloatArray = 1 - 1 / (1 + (moved_bytes / machine.l2_bytes) ** _CACHE_STEEPNESS)
    return found


def _tile_cycles(
    sizes: AttentionSizes, sms: int, pair_cycles: FloatArray, tile_cycles: FloatArray, packed: bool
) -> FloatArray:
    """Clock cycles until all multiprocessors have finished their tiles, shape (operations,).

    Args:
        sizes: Sizes of the operations.
        sms: Number of multiprocessors.
        pair_cycles: Cycles for one pair of query and key, shape (operations,).
        tile_cycles: Cycles of each tile in addition to its pairs, for all operations or shape (operations,).
        packed: Whether one tile holds the queries of all heads that share keys.
    """
    rows = sizes.queries * (sizes.group if packed else 1.0)
    heads = sizes.cached_heads if packed else sizes.heads
    # Few queries use tiles with 16 or 64 rows.
    tile_rows = np.where(rows > TILE / 2, TILE, np.where(rows > TILE / 8, TILE / 2, TILE / 8))
    in_head = np.ceil(rows / tile_rows)
    of_tile = np.clip(np.ceil(tile_rows / sizes.group) if packed else tile_rows, 1.0, sizes.queries)  # Queries.
    longest = padded(np.minimum(sizes.keys, sizes.window + of_tile - 1), TILE)
    # A causal tile sees the keys up to its last query. Each further tile sees more keys, until the window is full.
    least = padded(np.minimum(sizes.keys - sizes.queries + of_tile, longest), TILE)
    growing = np.minimum(np.ceil((longest - least) / of_tile), in_head)
    causal = (growing * (least + longest) / 2 + (in_head - growing) * longest) / in_head
    mean = np.where(sizes.causal > 0, causal, longest)
    waves = sizes.sequences * heads * in_head / sms
    average, most = (tile_rows * keys * pair_cycles + tile_cycles for keys in (mean, longest))
    # At least the longest tile. Otherwise the mean of two cases: work that is spread evenly, and whole waves of tiles.
    cycles: FloatArray = np.maximum(np.maximum(waves * average, most), (waves + np.ceil(waves)) / 2 * average)
    return cycles


class SplitKeys(NamedTuple):
    """How decoding distributes its work over the multiprocessors; arrays of shape (operations,).

    Args:
        blocks: Number of blocks of 128 keys in each head of keys.
        jobs: Number of heads of keys over all sequences; a multiple if one tile cannot hold the queries of a group.
        splits: Number of parts that each job is split into.
        longest: Number of blocks in the longest part.
        waves: Number of waves in which the multiprocessors compute all parts.
    """

    blocks: FloatArray
    jobs: FloatArray
    splits: FloatArray
    longest: FloatArray
    waves: FloatArray


def split_keys(sizes: AttentionSizes, sms: int) -> SplitKeys:
    """Split the keys of each head so that all multiprocessors have work, as FlashAttention-3 does.

    Args:
        sizes: Sizes of the operations.
        sms: Number of multiprocessors.
    """
    blocks = np.ceil(np.minimum(sizes.keys, sizes.window) / TILE)
    jobs = sizes.sequences * sizes.cached_heads * np.ceil(sizes.group / _DECODING_ROWS)
    splits = np.clip(np.ceil(blocks / np.ceil(blocks * _SPLIT_SPARE * jobs / sms)), 1.0, TILE)
    return SplitKeys(blocks, jobs, splits, np.ceil(blocks / splits), np.ceil(jobs * splits / sms))


def decoding_s(sizes: AttentionSizes, work: AttentionSizes, machine: Machine, constants: FloatArray) -> FloatArray:
    """Device seconds of attention with one query per sequence, shape (operations,).

    Args:
        sizes: Sizes of the operations.
        work: The same, with as many heads of keys as the kernels read. The memory delivers keys that several heads read
            once, the L2 cache each time.
        machine: The GPU that they run on, as numbers.
        constants: Values of DECODING_CONSTANTS, shape (constants,) or (constants, operations).
    """
    call_s, merge_s, part_cycles, sm_bytes, bandwidth, l2_bytes = constants
    split = split_keys(work, machine.sms)
    read = np.minimum(split.longest * TILE, np.minimum(sizes.keys, sizes.window)) * sizes.key_bytes
    waves = np.maximum(split.jobs * split.splits / machine.sms, 1.0)
    parts_s = waves * (part_cycles + read / sm_bytes) / machine.clock_hz
    memory_s = sizes.moved_bytes * _missed(sizes.moved_bytes, machine) / (machine.bandwidth * bandwidth)
    moved_s = np.maximum(memory_s, work.moved_bytes / (machine.sms * machine.clock_hz * l2_bytes))
    started_s = call_s + np.where(split.splits > 1, merge_s, 0.0)
    seconds: FloatArray = started_s + np.cbrt(parts_s**3 + moved_s**3)
    return seconds
