"""Fused attention on tensor cores: with many queries, and with one query per sequence (a step of decoding)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..physics.attention_sizes import AttentionSizes, attention_sizes
from ..physics.tiling import padded
from .attention_libraries import (
    EACH_HEAD,
    FLASH,
    LIBRARIES,
    TRITON,
    context_library,
    context_work,
    decoding_library,
    decoding_work,
    over_flash_2,
)
from .attention_physics import (
    CONTEXT_CONSTANTS,
    DECODING_CONSTANTS,
    TILE,
    context_s,
    decoding_s,
    flash_2_s,
    split_keys,
)
from .family import Family
from .products import Machine
from .widths import WIDTHS

# Widths of queries and of cached keys -> variant.
_VARIANTS: Mapping[tuple[str, str], str] = {
    ("half", "half"): "half",
    ("half", "fp8"): "half with fp8 cache",
    ("fp8", "fp8"): "fp8",
}
_NEEDED: Mapping[str, str] = {"half": "bf16", "half with fp8 cache": "bf16", "fp8": "fp8"}
# Engines with kernels of their own. SGLang calls the kernels that PyTorch uses at best, so it needs no feature.
_ENGINES: tuple[str, ...] = ("tensorrt_llm", "vllm")
_TILES = (64, 128)
# Attention kernels of different generations differ so much that trees of one generation say little about another. With
# H100 and H200, or B200 and GB200, left out, weights of 0.3 to 0.5 had the smallest errors; 1 was worse than physics
# alone.
_SHRINKAGE = 0.4


def _variant(operation: Operation) -> str | None:
    if operation.kind != "attention" or operation.mode != "inference":
        return None
    cache = operation.attributes["cache_precision"] or operation.precision
    return _VARIANTS.get((WIDTHS.get(operation.precision, ""), WIDTHS.get(cache, "")))


def _context(operation: Operation) -> str | None:
    return None if _decodes(operation) else _variant(operation)


def _by_pytorch(operation: Operation) -> str | None:
    variant = _context(operation)
    is_pytorchs = variant == "half" and operation.attributes["implementation"] in ("pytorch", "triton")
    return variant if is_pytorchs else None


def _decoding(operation: Operation) -> str | None:
    return _variant(operation) if _decodes(operation) else None


def _decodes(operation: Operation) -> bool:
    if operation.kind != "attention":
        return False
    queries, keys, _ = operation.input_shapes
    return queries[-2] == 1 and keys[-2] > 1


def _heads(operation: Operation) -> Hashable:
    queries, keys, values = operation.input_shapes
    return queries[-3:-2], keys[-3:-2], queries[-1], values[-1]


def _sizes_and_machine(operations: OperationList, gpu: GPU) -> tuple[AttentionSizes, Machine]:
    """Sizes of operations of one variant, and the GPU as it multiplies in their precision."""
    return attention_sizes(operations), Machine.of(gpu, operations[0].precision)


def _context_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    sizes, machine = _sizes_and_machine(operations, gpu)
    by_triton = context_library(operations, gpu) == TRITON
    return context_s(context_work(sizes, operations, gpu), machine, constants, by_triton)


def _context_backward_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    sizes, machine = _sizes_and_machine(operations, gpu)
    by_triton = context_library(operations, gpu) == TRITON
    return context_s(context_work(sizes, operations, gpu), machine, constants, by_triton, backward=True)


def _flash_2_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    slower = over_flash_2(operations, gpu, backward=False)
    return flash_2_s(*_sizes_and_machine(operations, gpu), constants, slower)


def _flash_2_backward_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    slower = over_flash_2(operations, gpu, backward=True)
    return flash_2_s(*_sizes_and_machine(operations, gpu), constants, slower, backward=True)


def _decoding_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    sizes, machine = _sizes_and_machine(operations, gpu)
    return decoding_s(sizes, decoding_work(sizes, operations, gpu), machine, constants)


_SHARED_NAMES = (
    "log_physics_cycles",
    "log_bytes_over_l2",
    "log_memory_cycles",
    "log_cached_over_queries",
    "log_key_size",
    "log_group",
    "log_cached_heads",
    "log_keys",
    "log_sequences",
    "log_key_padding",
    "log_window",
    "has_window",
    *(f"by_{engine}" for engine in _ENGINES),
)
_CONTEXT_NAMES = (
    "log_queries",
    "log_query_padding",
    "causal",
    "log_compute_over_memory",
    "by_triton",
    *(f"log_{of}_{tile}_{what}" for tile in _TILES for of in ("heads", "groups") for what in ("waves", "wave_padding")),
)
_DECODING_NAMES = (
    "log_splits",
    "log_split_padding",
    "log_longest_split",
    "log_part_waves",
    "by_triton",
    "each_head_by_itself",
)


def _shared(operations: OperationList, sizes: AttentionSizes, machine: Machine, physics_s: FloatArray) -> FloatArray:
    """The features of _SHARED_NAMES, shape (features, operations)."""
    moved = sizes.moved_bytes
    logs = [
        physics_s * machine.clock_hz,
        moved / machine.l2_bytes,
        moved / machine.bandwidth * machine.clock_hz,
        sizes.cached_bytes / sizes.query_bytes,
        sizes.key_size,
        sizes.group,
        sizes.cached_heads,
        sizes.keys,
        sizes.sequences,
        padded(sizes.keys, TILE) / sizes.keys,
        sizes.window / sizes.keys,
    ]
    engines = [operation.attributes["implementation"] for operation in operations]
    of_engine = np.array([[engine == name for engine in engines] for name in _ENGINES])
    return np.vstack([np.log2(logs), sizes.window < sizes.keys, of_engine])


def _context_features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    sizes, machine = _sizes_and_machine(operations, gpu)
    memory_cycles = sizes.moved_bytes / machine.bandwidth * machine.clock_hz
    intensity = sizes.flops / machine.flops_per_cycle / machine.sms / memory_cycles
    logs = [sizes.queries, padded(sizes.queries, TILE) / sizes.queries]
    waves = []
    for tile in _TILES:
        for heads, rows in ((sizes.heads, 1.0), (sizes.cached_heads, sizes.group)):
            each = sizes.sequences * heads * np.ceil(sizes.queries * rows / tile) / machine.sms
            waves += [each, np.ceil(each) / each]
    shared = _shared(operations, sizes, machine, physics_s)
    by_triton = context_library(operations, gpu) == TRITON
    found = np.vstack([shared, np.log2(logs), sizes.causal, np.log2(intensity), by_triton, np.log2(waves)])
    return found.T.astype(np.float32)


def _decoding_features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    sizes, machine = _sizes_and_machine(operations, gpu)
    split = split_keys(sizes, machine.sms)
    parts = split.jobs * split.splits / machine.sms
    padding = split.waves * split.longest * machine.sms / (split.jobs * split.blocks)
    shared = _shared(operations, sizes, machine, physics_s)
    library = decoding_library(operations, gpu)
    kernels = [library == TRITON, library == EACH_HEAD]
    return np.vstack([shared, np.log2([split.splits, padding, split.longest, parts]), kernels]).T.astype(np.float32)


ATTENTION = Family(
    name="attention",
    constants=CONTEXT_CONSTANTS,
    feature_names=(*_SHARED_NAMES, *_CONTEXT_NAMES),
    variant_precisions=_NEEDED,
    variant=_context,
    physics_s=_context_s,
    features=_context_features,
    backward_s=_context_backward_s,
    libraries=LIBRARIES,
    library=context_library,
    shrinkage=_SHRINKAGE,
    unseen=_heads,
)
"""Attention with many queries per sequence, with a causal mask or without."""

DECODING = Family(
    name="decoding",
    constants=DECODING_CONSTANTS,
    feature_names=(*_SHARED_NAMES, *_DECODING_NAMES),
    variant_precisions=_NEEDED,
    variant=_decoding,
    physics_s=_decoding_s,
    features=_decoding_features,
    libraries=LIBRARIES,
    library=decoding_library,
    shrinkage=_SHRINKAGE,
    unseen=_heads,
)
"""Attention with one query per sequence, which reads a cache of keys and values."""

PYTORCH_ATTENTION = replace(
    ATTENTION,
    name="attention by PyTorch",
    learned_as="attention",
    generation="8.0",
    variant=_by_pytorch,
    physics_s=_flash_2_s,
    backward_s=_flash_2_backward_s,
    library=lambda operations, gpu: np.full(len(operations), FLASH),
)
"""Attention in half precision as PyTorch computes it: by FlashAttention 2, and by what came before it.

It was measured on an A100, where SGLang calls kernels like it.
"""
