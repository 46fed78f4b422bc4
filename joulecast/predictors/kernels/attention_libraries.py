"""The libraries of attention kernels that engines call, and what each of them computes.

Measured by aiconfigurator (commit 095f58a), which names the kernels that were called:

- SGLang calls FlashAttention or FlashInfer, on Blackwell the kernels of TensorRT-LLM. Where these do not support an
  operation, it calls Triton's. cuDNN is assumed to be as quick as FlashAttention.
- TensorRT-LLM calls kernels of its own. With many queries, kernels before them write queries and keys to memory once
  more. In decoding before Blackwell, they share keys among 2 to 32 heads; for other groups, each head reads its keys by
  itself ("masked multi-head attention").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..physics.attention_sizes import AttentionSizes, attention_sizes
from ..physics.cached import cached
from .basis import generation_of

LIBRARIES: tuple[str, ...] = ("flash", "tensorrt_llm", "triton", "each head by itself")
"""Names of the libraries."""

FLASH, TENSORRT_LLM, TRITON, EACH_HEAD = range(len(LIBRARIES))
"""Index of each library in LIBRARIES."""

_HOPPER, _BLACKWELL = "9.0", "10.0"
# GPUs without the asynchronous products of Hopper and data-center Blackwell, for which SGLang calls Triton if a model
# has images, attention sinks (heads of 64) or heads of 192. Measured on the L40S (8.9); 12.0 has the same instructions.
_TRITON_OFTEN = ("8.9", "12.0")
# FlashAttention 2 is 1.3 to 2.5 times as quick as the first FlashAttention in Triton (arXiv 2307.08691, 4.1): the
# geometric mean.
_FIRST_IN_TRITON = 1.8
# Older GPUs run the memory-efficient kernels of xformers. On the same GPU these take 1.2 to 1.7 times as long as
# FlashAttention 2 in the forward, and 1.9 to 3.5 times in the backward (flash-attention issue 416): geometric means.
_FLASH_FROM = 8.0
_EFFICIENT_FORWARD, _EFFICIENT_BACKWARD = 1.5, 2.4
_LARGEST_SHARING_GROUP = 32  # Measured: groups of 48 heads take 6 to 7 times as long as groups of 32.


@cached
def context_library(operations: OperationList, gpu: GPU) -> NDArray[np.int64]:
    """Index of the library for each operation with many queries, shape (operations,)."""
    sizes, (by_tensorrt_llm, by_others, causal) = attention_sizes(operations), operations.derived(_flags)
    generation, head, narrow_cache = generation_of(gpu), sizes.key_size, sizes.cache_bytes < sizes.element_bytes
    by_triton = _needs_triton(sizes, generation)
    if generation in _TRITON_OFTEN:
        by_triton |= ~causal | (sizes.element_bytes == 1)
    elif generation == _HOPPER:
        by_triton |= narrow_cache
    elif generation == _BLACKWELL:
        by_triton |= narrow_cache & (head != 128)
    found: NDArray[np.int64] = np.where(by_tensorrt_llm, TENSORRT_LLM, np.where(by_triton & ~by_others, TRITON, FLASH))
    return found


@cached
def decoding_library(operations: OperationList, gpu: GPU) -> NDArray[np.int64]:
    """Index of the library for each operation with one query, shape (operations,)."""
    sizes, (by_tensorrt_llm, by_others, _) = attention_sizes(operations), operations.derived(_flags)
    generation = generation_of(gpu)
    by_triton = _needs_triton(sizes, generation) & ~by_others
    if generation == _BLACKWELL:
        own: NDArray[np.int64] = np.full(len(operations), FLASH)
    else:
        shared = (sizes.group > 1) & (sizes.group <= _LARGEST_SHARING_GROUP)
        own = np.where(shared, TENSORRT_LLM, EACH_HEAD)
    found: NDArray[np.int64] = np.where(by_tensorrt_llm, own, np.where(by_triton, TRITON, FLASH))
    return found


def _needs_triton(sizes: AttentionSizes, generation: str) -> NDArray[np.bool_]:
    head = sizes.key_size
    if generation in _TRITON_OFTEN:
        found: NDArray[np.bool_] = (head == 64) | (head == 192)
    elif generation == _HOPPER:
        found = (head == 512) | ((head == 256) & (sizes.window < sizes.keys))
    else:
        found = (head == 192) & (generation == _BLACKWELL)
    return found


def context_work(sizes: AttentionSizes, operations: OperationList, gpu: GPU) -> AttentionSizes:
    """The sizes that kernels for many queries compute: those that cannot skip what is outside a window compute it.

    Measured: with a window of 128 keys, Triton's kernels take as long as without one, and so do FlashInfer's on an
    L40S.
    """
    library, (_, by_others, _) = context_library(operations, gpu), operations.derived(_flags)
    skips = (library == TENSORRT_LLM) | by_others
    if generation_of(gpu) in (_HOPPER, _BLACKWELL):
        skips |= library == FLASH
    return sizes._replace(window=np.where(skips, sizes.window, sizes.keys))


def decoding_work(sizes: AttentionSizes, operations: OperationList, gpu: GPU) -> AttentionSizes:
    """The sizes that kernels for one query compute, with as many heads of keys as are read."""
    by_itself = decoding_library(operations, gpu) == EACH_HEAD
    return sizes._replace(cached_heads=np.where(by_itself, sizes.heads, sizes.cached_heads))


def _flags(operations: OperationList) -> NDArray[np.bool_]:
    """Whether TensorRT-LLM computes each operation, whether vLLM or cuDNN does, and whether it is causal.

    Shape (3, operations).
    """
    attributes = [operation.attributes for operation in operations]
    rows = [
        (a["implementation"] == "tensorrt_llm", a["implementation"] in ("vllm", "cudnn"), a["causal"])
        for a in attributes
    ]
    return np.array(rows, dtype=bool).T


def over_flash_2(operations: OperationList, gpu: GPU, *, backward: bool) -> FloatArray:
    """Time of pairs of query and key in the kernels that run, over that in FlashAttention 2, shape (operations,)."""
    in_triton = np.array([operation.attributes["implementation"] == "triton" for operation in operations])
    efficient = _EFFICIENT_BACKWARD if backward else _EFFICIENT_FORWARD
    has_flash = not gpu.is_nvidia or gpu.generation >= _FLASH_FROM
    return np.where(in_triton, _FIRST_IN_TRITON, 1.0 if has_flash else efficient)
