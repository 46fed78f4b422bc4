"""Attention operations as numbers that do not depend on the GPU: sizes, visible pairs of query and key, and bytes."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.rules import visible_pairs
from .cached import cached_by_operation


class AttentionSizes(NamedTuple):
    """Sizes of attention operations, as arrays of shape (operations,).

    Args:
        sequences: Number of sequences (batch size).
        heads: Number of query heads.
        cached_heads: Number of heads of keys and values; each serves heads / cached_heads query heads.
        queries, keys: Number of queries and of keys in one sequence.
        key_size, value_size: Elements of one key, and of one value, per head.
        causal: 1 where a query sees no later key, else 0; the last query stands at the position of the last key.
        window: Largest number of keys that a query sees, including the key at its own position.
        element_bytes, cache_bytes: Bytes of one element of queries, and of one element of keys and values.
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

    @property
    def group(self) -> FloatArray:
        """Number of query heads that share one head of keys and values."""
        return self.heads / self.cached_heads

    @property
    def query_bytes(self) -> FloatArray:
        """Bytes of queries and results; results have at least 16 bits per element."""
        written = np.maximum(self.element_bytes, ELEMENT_BYTES["bf16"]) * self.value_size
        return self.sequences * self.heads * self.queries * (self.element_bytes * self.key_size + written)

    @property
    def cached_bytes(self) -> FloatArray:
        """Bytes of keys and values that are read."""
        seen = np.minimum(self.keys, self.window + self.queries - 1)
        return self.sequences * self.cached_heads * seen * self.key_bytes

    @property
    def moved_bytes(self) -> FloatArray:
        """Bytes of queries, results, keys and values together, each moved once."""
        return self.query_bytes + self.cached_bytes

    @property
    def key_bytes(self) -> FloatArray:
        """Bytes of one key and its value in one head."""
        return self.cache_bytes * (self.key_size + self.value_size)

    @property
    def pairs(self) -> FloatArray:
        """Number of pairs of a query and a key that it sees, in one head of one sequence."""
        return np.asarray(visible_pairs(self.queries, self.keys, self.causal > 0, self.window))

    @property
    def flops(self) -> FloatArray:
        """FLOPs for all visible pairs of query and key; a multiply-add is two."""
        return 2 * self.sequences * self.heads * self.pairs * (self.key_size + self.value_size)

    @property
    def backward_flops(self) -> FloatArray:
        """FLOPs that run in the backward pass: the scores again, and the gradients of values, scores, queries, keys."""
        return 2 * self.sequences * self.heads * self.pairs * (3 * self.key_size + 2 * self.value_size)

    @property
    def gradient_bytes(self) -> FloatArray:
        """Bytes that the backward pass moves in kernels of their own, before and after that of the products.

        One reads results and their gradients. The gradients of queries are summed in fp32: one kernel sets the sums to
        zero, and one converts them (Dao, arXiv 2307.08691, algorithm 2; flash_bwd_preprocess_kernel.h).
        """
        sums = 2 * ELEMENT_BYTES["fp32"] + self.element_bytes
        each = 2 * self.element_bytes * self.value_size + sums * self.key_size
        return self.sequences * self.heads * self.queries * each


def attention_sizes(operations: OperationList) -> AttentionSizes:
    """The sizes of operations of kind attention, to be read only."""
    return operations.derived(_attention_sizes)


def _attention_sizes(operations: OperationList) -> AttentionSizes:
    columns = np.array([_sizes(operation) for operation in operations], dtype=float).T
    columns.flags.writeable = False
    return AttentionSizes(*columns)


@cached_by_operation(most_bytes=75_000_000)
def _sizes(operation: Operation) -> tuple[float, ...]:
    q, k, v = operation.input_shapes
    return (
        prod(q[:-3]),
        q[-3] if len(q) > 2 else 1,
        k[-3] if len(k) > 2 else 1,
        q[-2],
        k[-2],
        q[-1],
        v[-1],
        operation.attributes["causal"] and 1 < q[-2] <= k[-2],
        operation.attributes["window"] or k[-2],
        ELEMENT_BYTES[operation.precision],
        ELEMENT_BYTES[operation.attributes["cache_precision"] or operation.precision],
    )
