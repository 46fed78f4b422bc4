"""What fused attention takes on tensor cores, from its sizes and a data sheet.

A kernel of the FlashAttention kind (Dao, arXiv 2307.08691) gives each multiprocessor tiles of 128 queries, which pass
over the keys that they may see in blocks of 128. Two products and one exponential are computed for each pair of a query
and a key. The exponentials have units of their own, 16 per clock and multiprocessor on all NVIDIA GPUs since Volta,
which is why small heads reach little of the peak: a B200 multiplies a head of 64 in half the time of its exponentials.

A single query per sequence (a step of decoding) has next to nothing to compute: it reads the cache of keys and values.
Kernels split the keys of a head over several multiprocessors where there are fewer heads than those, and merge the
partial results ("split-kv").

The constants start at values that were fitted to the kernels of SGLang on H100, H200, B200, GB200 and L40S and rounded.
They may not move far from there: fitted freely, they would make up for what one library does badly, and be wrong on the
GPUs of another. Trees learn what a library does badly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ..physics.attention_sizes import AttentionSizes
from .family import Constant
from .products import Machine

TILE = 128.0
"""Queries of a tile, and keys of a block."""

_EXPONENTIALS = 16.0  # Per clock and multiprocessor (CUDA C++ Programming Guide, throughput of native instructions).
_DECODING_ROWS = 64.0  # Queries that share keys and values are rows of one product.
_SPLIT_SPARE = 1.1  # As FlashAttention-3 has it, so that the last wave is full.

CONTEXT_CONSTANTS: tuple[Constant, ...] = (
    # Planning the work, as engines do in a kernel of its own, and starting.
    Constant("call_s", 8e-6, 4e-6, 1.6e-5),
    # Time of the products over that at the peak of the data sheet.
    Constant("products_over_peak", 1.5, 1.2, 2.0),
    # Share of the exponentials' time that the products do not hide.
    Constant("exposed_exponentials", 0.55, 0.3, 1.0),
    # Loading the queries of a tile, starting it, and writing the result.
    Constant("tile_cycles", 5400.0, 2500.0, 10000.0),
    Constant("share_of_bandwidth", 0.8, 0.6, 0.95),
    Constant("l2_bytes_per_sm_cycle", 24.0, 12.0, 48.0),
)
"""What `context_s` needs, in its order."""

DECODING_CONSTANTS: tuple[Constant, ...] = (
    Constant("call_s", 8e-6, 4e-6, 1.6e-5),
    # A second kernel that merges the results of split keys.
    Constant("merge_s", 1.5e-6, 5e-7, 5e-6),
    # Of a multiprocessor that reads a part of a cache: waiting for memory, and starting.
    Constant("part_cycles", 4500.0, 2500.0, 8000.0),
    # That one multiprocessor can ask for.
    Constant("bytes_per_sm_cycle", 60.0, 40.0, 120.0),
    Constant("share_of_bandwidth", 0.87, 0.75, 0.95),
    Constant("l2_bytes_per_sm_cycle", 30.0, 16.0, 60.0),
)
"""What `decoding_s` needs, in its order."""


def context_s(sizes: AttentionSizes, machine: Machine, constants: FloatArray) -> FloatArray:
    """Seconds that attention of many queries takes.

    Args:
        sizes: Sizes of the operations.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONTEXT_CONSTANTS.
    """
    call_s, products, exposed, tile_cycles, bandwidth, l2_bytes = constants
    pair_cycles = 2 * products * (sizes.key_size + sizes.value_size) / machine.flops_per_cycle
    pair_cycles = pair_cycles + exposed / _EXPONENTIALS
    packed, apart = (_tile_cycles(sizes, machine.sms, pair_cycles, tile_cycles, each) for each in (True, False))
    compute_s = np.minimum(packed, apart) / machine.clock_hz
    moved_s = moving_s(sizes, machine, bandwidth, l2_bytes)
    seconds: FloatArray = call_s + np.cbrt(compute_s**3 + moved_s**3)
    return seconds


def moving_s(sizes: AttentionSizes, machine: Machine, share_of_bandwidth: float, l2_bytes: float) -> FloatArray:
    """Seconds for reading and writing, from the L2 cache where everything fits into it."""
    moved = sizes.query_bytes + sizes.cached_bytes
    cached = machine.sms * machine.clock_hz * l2_bytes
    return np.where(moved < machine.l2_bytes, moved / cached, moved / (machine.bandwidth * share_of_bandwidth))


def _tile_cycles(
    sizes: AttentionSizes, sms: int, pair_cycles: FloatArray, tile_cycles: float, packed: bool
) -> FloatArray:
    """Clock cycles until the multiprocessors are through with their tiles.

    Args:
        sizes: Sizes of the operations.
        sms: Multiprocessors.
        pair_cycles: For one query and one key.
        tile_cycles: For each tile beside that.
        packed: Whether queries of all heads that share keys stand in one tile.
    """
    rows = sizes.queries * (sizes.group if packed else 1.0)
    heads = sizes.cached_heads if packed else sizes.heads
    # Tiles of 16 and 64 rows are for few queries.
    filled = np.where(rows > TILE / 2, TILE, np.where(rows > TILE / 8, TILE / 2, TILE / 8))
    in_head = np.ceil(rows / filled)
    of_tile = np.clip(np.ceil(filled / sizes.group) if packed else filled, 1.0, sizes.queries)  # Queries.
    longest = np.ceil(np.minimum(sizes.keys, sizes.window + of_tile - 1) / TILE) * TILE
    # A causal tile sees the keys up to its last query: with each tile more, until the window is full.
    least = np.ceil(np.minimum(sizes.keys - sizes.queries + of_tile, longest) / TILE) * TILE
    growing = np.minimum(np.ceil((longest - least) / of_tile), in_head)
    causal = (growing * (least + longest) / 2 + (in_head - growing) * longest) / in_head
    mean = np.where(sizes.causal > 0, causal, longest)
    waves = sizes.sequences * heads * in_head / sms
    usual, most = (filled * keys * pair_cycles + tile_cycles for keys in (mean, longest))
    # Between tiles that are handed out evenly and whole waves of them.
    cycles: FloatArray = np.maximum(np.maximum(waves * usual, most), (waves + np.ceil(waves)) / 2 * usual)
    return cycles


class SplitKeys(NamedTuple):
    """How decoding shares its work out.

    Args:
        blocks: Of 128 keys, of each head of keys.
        jobs: Heads of keys over all sequences; more where one tile does not hold the queries of a group.
        splits: Parts that each job is split into.
        longest: Blocks of the longest part.
        waves: In which the multiprocessors work through all parts.
    """

    blocks: FloatArray
    jobs: FloatArray
    splits: FloatArray
    longest: FloatArray
    waves: FloatArray


def split_keys(sizes: AttentionSizes, sms: int) -> SplitKeys:
    """Split the keys of each head so that all multiprocessors have work, as FlashAttention-3 does."""
    blocks = np.ceil(np.minimum(sizes.keys, sizes.window) / TILE)
    jobs = sizes.sequences * sizes.cached_heads * np.ceil(sizes.group / _DECODING_ROWS)
    splits = np.clip(np.ceil(blocks / np.ceil(blocks * _SPLIT_SPARE * jobs / sms)), 1.0, TILE)
    return SplitKeys(blocks, jobs, splits, np.ceil(blocks / splits), np.ceil(jobs * splits / sms))


def decoding_s(sizes: AttentionSizes, machine: Machine, constants: FloatArray) -> FloatArray:
    """Seconds that attention of one query per sequence takes.

    Args:
        sizes: Sizes of the operations.
        machine: The GPU that they run on, as numbers.
        constants: Values of DECODING_CONSTANTS.
    """
    call_s, merge_s, part_cycles, sm_bytes, bandwidth, l2_bytes = constants
    split = split_keys(sizes, machine.sms)
    read = np.minimum(split.longest * TILE, np.minimum(sizes.keys, sizes.window)) * sizes.key_bytes
    parts_s = split.waves * (part_cycles + read / sm_bytes) / machine.clock_hz
    moved_s = moving_s(sizes, machine, bandwidth, l2_bytes)
    started_s = call_s + np.where(split.splits > 1, merge_s, 0.0)
    seconds: FloatArray = started_s + np.cbrt(parts_s**3 + moved_s**3)
    return seconds
