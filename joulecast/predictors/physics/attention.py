"""What fused attention takes on tensor cores, from its sizes and a data sheet.

A kernel of the FlashAttention kind (Dao, arXiv 2307.08691) gives each multiprocessor tiles of 128 queries, which pass
over the keys that they may see in blocks of 128. Two products and one exponential are computed for each pair of a query
and a key. The exponentials have units of their own, 16 per clock and multiprocessor on all NVIDIA GPUs since Volta,
which is why small heads reach little of the peak: a B200 multiplies a head of 64 in half the time of its exponentials.

A single query per sequence (a step of decoding) has next to nothing to compute: it reads the cache of keys and values.
Kernels split the keys of a head over several multiprocessors where there are fewer heads than those, and merge the
partial results ("split-kv").

The constants below were fitted to sglang's kernels on H100, H200, B200, GB200, L40S and A100 (aiconfigurator2026) and
rounded. With all GPUs of one chip left out of the fit they hardly move.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.precisions import ELEMENT_BYTES

TILE = 128.0
"""Queries of a tile, and keys of a block."""

_EXPONENTIALS = 16.0  # Per clock and multiprocessor (CUDA C++ Programming Guide, throughput of native instructions).
_EXPOSED = 0.55  # Share of the exponentials' time that products do not hide.
_PRODUCTS_SLOWER = 1.5  # Than the peak of the data sheet: what the products of the best kernels reach.
_TILE_CYCLES = 5400.0  # Loading the queries of a tile, starting, and writing the result.
_CALL_S = 8e-6  # Kernels that plan the work, and the start of a kernel.
_L2_BYTES = {"context": 24.0, "decoding": 30.0}  # Per clock and multiprocessor, of what fits into the L2 cache.
_MEMORY_REACHED = {"context": 0.8, "decoding": 0.87}  # Of the data sheet's bandwidth.
_JOB_CYCLES = 4500.0  # Of a multiprocessor that reads a share of a cache: waiting for memory, and starting.
_JOB_BYTES = 60.0  # Per clock that one multiprocessor can ask for.
_MERGE_S = 1.5e-6  # A second kernel that merges partial results.
_DECODING_ROWS = 64.0  # Queries that share keys and values are rows of one product.
_SPLIT_SPARE = 1.1  # As FlashAttention-3 has it, so that the last wave is full.


class AttentionSizes(NamedTuple):
    """Attention operations as arrays, one value each.

    Args:
        sequences: Batch.
        heads: Of queries.
        cached_heads: Of keys and values; each serves heads / cached_heads heads of queries.
        queries, keys: Of one sequence.
        key_size, value_size: Elements of one key, and of one value, per head.
        causal: 1 where a query sees no later key; the last query stands at the last key.
        window: Keys that a query sees at most, its own among them.
        element_bytes, cache_bytes: Of one element of queries, and of keys and values.
        decodes: 1 for a single query with keys before it.
    """

    sequences: FloatArray
    heads: FloatArray
    cached_heads: FloatArray
    queries: FloatArray
    keys: FloatArray
    key_size: FloatArray
    value_size: FloatArray
    causal: FloatArray
    window: FloatArray
    element_bytes: FloatArray
    cache_bytes: FloatArray
    decodes: FloatArray

    @property
    def group(self) -> FloatArray:
        """Heads of queries for each head of keys and values."""
        return self.heads / self.cached_heads

    @property
    def seen_keys(self) -> FloatArray:
        """Keys of a sequence that some query sees."""
        return np.minimum(self.keys, self.window + self.queries - 1)

    @property
    def query_bytes(self) -> FloatArray:
        """Queries and results; results are never narrower than 16 bits."""
        written = np.maximum(self.element_bytes, ELEMENT_BYTES["bf16"]) * self.value_size
        return self.sequences * self.heads * self.queries * (self.element_bytes * self.key_size + written)

    @property
    def cached_bytes(self) -> FloatArray:
        """Keys and values that are read."""
        per_key = self.cache_bytes * (self.key_size + self.value_size)
        return self.sequences * self.cached_heads * self.seen_keys * per_key

    @property
    def pairs(self) -> FloatArray:
        """Pairs of a query and a key that it sees, of one head of one sequence."""
        # The i-th query sees `first + i` keys until the window holds it back.
        first = self.keys - self.queries + 1
        ramp = np.clip(np.minimum(self.keys, self.window) - first + 1, 0, None)
        below = ramp * (first + np.minimum(self.keys, self.window)) / 2
        causal = below + (self.queries - ramp) * np.minimum(self.keys, self.window)
        return np.where(self.causal > 0, causal, self.queries * np.minimum(self.keys, self.window))

    @property
    def flops(self) -> FloatArray:
        """What is computed for pairs that see each other; a multiply-add is two."""
        return 2 * self.sequences * self.heads * self.pairs * (self.key_size + self.value_size)


def attention_sizes(operations: OperationList) -> AttentionSizes:
    """The sizes of operations of kind attention, to be read only."""
    return operations.derived(_attention_sizes)


def _attention_sizes(operations: OperationList) -> AttentionSizes:
    table = np.array([_sizes(operation) for operation in operations], dtype=float).reshape(len(operations), -1)
    columns = np.ascontiguousarray(table.T)
    columns.flags.writeable = False
    return AttentionSizes(*columns)


@lru_cache(maxsize=100_000)
def _sizes(operation: Operation) -> tuple[float, ...]:
    q, k, v = operation.input_shapes
    queries, keys = q[-2], k[-2]
    decodes = queries == 1 and keys > 1
    own, cache = operation.precision, operation.attributes["cache_precision"] or operation.precision
    return (
        prod(q[:-3]),
        q[-3] if len(q) > 2 else 1,
        k[-3] if len(k) > 2 else 1,
        queries,
        keys,
        q[-1],
        v[-1],
        operation.attributes["causal"] and 1 < queries <= keys,
        operation.attributes["window"] or keys,
        ELEMENT_BYTES[own],
        ELEMENT_BYTES[cache],
        decodes,
    )


class AttentionTimes(NamedTuple):
    """Seconds that attention is expected to take, one value each.

    Args:
        time_s: All in all.
        compute_s: Products, exponentials and starts of tiles; of decoding, what multiprocessors wait for memory.
        memory_s: Reading and writing, from the L2 cache where everything fits into it.
    """

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray


def attention_times(sizes: AttentionSizes, gpu: GPU, peak_flops: FloatArray) -> AttentionTimes:
    """What attention is expected to take at the default clock.

    Args:
        sizes: Of the operations.
        gpu: Where.
        peak_flops: FLOP/s of tensor cores in the precision of each.
    """
    clock = gpu.boost_clock_mhz * 1e6
    per_clock = peak_flops / (gpu.sms * clock)
    decodes = sizes.decodes > 0
    moved = sizes.query_bytes + sizes.cached_bytes
    l2 = gpu.sms * clock * np.where(decodes, _L2_BYTES["decoding"], _L2_BYTES["context"])
    memory = gpu.memory_bandwidth * np.where(decodes, _MEMORY_REACHED["decoding"], _MEMORY_REACHED["context"])
    memory_s = moved / np.where(moved < gpu.l2_bytes, l2, memory)
    split = split_keys(sizes, gpu.sms)
    packed, apart = (_tiles_s(sizes, gpu, per_clock, each) for each in (True, False))
    compute_s = np.where(decodes, _jobs_s(sizes, split, gpu), np.minimum(packed, apart))
    started_s = _CALL_S + np.where(decodes & (split.splits > 1), _MERGE_S, 0.0)
    return AttentionTimes(started_s + np.cbrt(compute_s**3 + memory_s**3), compute_s, memory_s)


def _tiles_s(sizes: AttentionSizes, gpu: GPU, per_clock: FloatArray, packed: bool) -> FloatArray:
    """Seconds until the multiprocessors are through with their tiles.

    Args:
        sizes: Of the operations.
        gpu: Where.
        per_clock: FLOPs of one multiprocessor per clock.
        packed: Whether queries of all heads that share keys stand in one tile.
    """
    rows = sizes.queries * (sizes.group if packed else 1.0)
    heads = sizes.cached_heads if packed else sizes.heads
    # Tiles of 16 and 64 rows are for few queries.
    filled = np.where(rows > TILE / 2, TILE, np.where(rows > TILE / 8, TILE / 2, TILE / 8))
    in_head = np.ceil(rows / filled)
    of_tile = np.clip(np.ceil(filled / sizes.group) if packed else filled, 1.0, sizes.queries)  # queries
    longest = np.ceil(np.minimum(sizes.keys, sizes.window + of_tile - 1) / TILE) * TILE
    # A causal tile sees the keys up to its last query: with each tile more, until the window is full.
    least = np.ceil(np.minimum(sizes.keys - sizes.queries + of_tile, longest) / TILE) * TILE
    growing = np.minimum(np.ceil((longest - least) / of_tile), in_head)
    mean = (growing * (least + longest) / 2 + (in_head - growing) * longest) / in_head
    mean = np.where(sizes.causal > 0, mean, longest)
    pair_cycles = 2 * _PRODUCTS_SLOWER * (sizes.key_size + sizes.value_size) / per_clock + _EXPOSED / _EXPONENTIALS
    waves = sizes.sequences * heads * in_head / gpu.sms
    usual, most = (filled * keys * pair_cycles + _TILE_CYCLES for keys in (mean, longest))
    # Between tiles that are handed out evenly and whole waves of them.
    cycles: FloatArray = np.maximum(np.maximum(waves * usual, most), (waves + np.ceil(waves)) / 2 * usual)
    return cycles / (gpu.boost_clock_mhz * 1e6)


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


def _jobs_s(sizes: AttentionSizes, split: SplitKeys, gpu: GPU) -> FloatArray:
    per_key = sizes.cache_bytes * (sizes.key_size + sizes.value_size)
    read = np.minimum(split.longest * TILE, np.minimum(sizes.keys, sizes.window)) * per_key
    seconds: Any = split.waves * (_JOB_CYCLES + read / _JOB_BYTES) / (gpu.boost_clock_mhz * 1e6)
    return np.asarray(seconds)
