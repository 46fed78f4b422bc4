"""Fused attention in half precision and fp8, with or without a narrower cache of keys and values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..physics.attention import TILE, AttentionSizes, attention_sizes, attention_times, split_keys
from ..physics.cached import ON_EACH_GPU, cached
from .family import Description, Family

PRECISIONS = ("fp16", "bf16", "fp8")
_ENGINES = ("tensorrt_llm", "vllm")  # sglang calls the kernels that PyTorch reaches at best, and stands for both.
_TILES = (64, 128)
_LEAST = 1e-15

INPUTS: tuple[str, ...] = (
    "log_compute_over_memory",
    "log_over_call",
    "log_cache_fill",
    "log_cached_over_queries",
    "key_size",
    "log_group",
    "log_cached_heads",
    "log_queries",
    "log_keys",
    "log_sequences",
    *(f"log_{side}_{tile}{wave}" for tile in _TILES for side in ("tiles", "packed") for wave in ("", "_last_wave")),
    "log_query_fill",
    "log_key_fill",
    "log_splits",
    "log_split_imbalance",
    "log_longest_split",
    "log_jobs",
    "log_window",
    "has_window",
    "causal",
    "decodes",
    "is_fp8",
    "cache_is_fp8",
    *(f"engine_{name}" for name in _ENGINES),
    "log_exponentials_over_products",
    "log_bytes_per_cycle",
    "generation",
    "sms",
)
"""What trees see of an attention on a GPU."""

_ABOUT_GPU = frozenset({"log_bytes_per_cycle", "generation", "sms"})
_CALL_S = 8e-6


def covers(operations: OperationList) -> NDArray[np.bool_]:
    """Attention in inference in a precision of tensor cores."""
    return operations.derived(_covers)


def _covers(operations: OperationList) -> NDArray[np.bool_]:
    mine = [o.kind == "attention" and o.mode == "inference" and o.precision in PRECISIONS for o in operations]
    return np.array(mine, dtype=bool)


@cached(ON_EACH_GPU)
def describe(operations: OperationList, gpu: GPU) -> Description:
    """What physics expects of attention on a GPU, and what trees see of it."""
    sizes = attention_sizes(operations)
    peak = np.array([gpu.peak_flops[gpu.running_precision(operation.precision)] for operation in operations])
    times = attention_times(sizes, gpu, peak)
    inputs = np.column_stack(
        [
            _log(times.compute_s) - _log(times.memory_s),
            _log(times.time_s - _CALL_S) - np.log(_CALL_S),
            _log((sizes.query_bytes + sizes.cached_bytes) / gpu.l2_bytes),
            _log(sizes.cached_bytes / sizes.query_bytes),
            sizes.key_size,
            *map(_log, (sizes.group, sizes.cached_heads, sizes.queries, sizes.keys, sizes.sequences)),
            *_waves(sizes, gpu),
            *(_log(n / (np.ceil(n / TILE) * TILE)) for n in (sizes.queries, sizes.keys)),
            *_splits(sizes, gpu),
            _log(np.minimum(sizes.window, sizes.keys) / sizes.keys),
            sizes.window < sizes.keys,
            sizes.causal,
            sizes.decodes,
            sizes.element_bytes == 1,
            sizes.cache_bytes == 1,
            *(_by_engine(operations, name) for name in _ENGINES),
            _log(peak / (gpu.sms * gpu.boost_clock_mhz * 1e6) / (2 * (sizes.key_size + sizes.value_size))),
            *(np.full(len(operations), value) for value in _gpu_inputs(gpu)),
        ]
    ).astype(np.float32)
    inputs.flags.writeable = False
    return Description(times.time_s, inputs)


def _waves(sizes: AttentionSizes, gpu: GPU) -> list[FloatArray]:
    """Tiles per multiprocessor, and how much longer the last wave of them makes it."""
    found = []
    for tile in _TILES:
        apart = sizes.heads * np.ceil(sizes.queries / tile)
        packed = sizes.cached_heads * np.ceil(sizes.queries * sizes.group / tile)
        for tiles in (apart, packed):
            waves = sizes.sequences * tiles / gpu.sms
            found += [_log(waves), _log(np.ceil(waves) / waves)]
    return found


def _splits(sizes: AttentionSizes, gpu: GPU) -> list[FloatArray]:
    split = split_keys(sizes, gpu.sms)
    imbalance = split.waves * split.longest * gpu.sms / (split.jobs * split.blocks)
    return [*map(_log, (split.splits, imbalance, split.longest, split.jobs * split.splits / gpu.sms))]


def _by_engine(operations: OperationList, engine: str) -> FloatArray:
    return np.array([_implementation(operation) == engine for operation in operations], dtype=float)


def _implementation(operation: Operation) -> str:
    return str(operation.attributes["implementation"])


def _gpu_inputs(gpu: GPU) -> tuple[float, float, float]:
    bytes_per_cycle = gpu.memory_bandwidth / (gpu.sms * gpu.boost_clock_mhz * 1e6)
    try:
        generation = float(gpu.compute_capability)
    except ValueError:  # AMD's names
        generation = 0.0
    return float(np.log(bytes_per_cycle)), generation, float(gpu.sms)


def _log(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(values, _LEAST))
    return logs


ATTENTION = Family("attention", INPUTS, _ABOUT_GPU, covers, describe)
