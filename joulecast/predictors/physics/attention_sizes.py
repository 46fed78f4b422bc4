"""Attention as a product over the keys that a query sees: its sizes, FLOPs and bytes, which no GPU changes."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.rules import visible_pairs
from ...system.caches import OPERATION_BYTES, remembered


class Attention(NamedTuple):
    """Columns of `Work` of attention operations; arrays of shape (operations,).

    Args:
        decodes: Whether each sequence has a single query, which reads a cache of keys and values.
        forward: Columns of the forward. Heads that share keys are rows of one product; results have at least 16 bits
            per element, and what no query sees is not counted.
        backward: Columns of the backward that differ: the scores again, and the gradients of values, scores, queries
            and keys. Kernels of their own before and after it read results and their gradients, set the sums of the
            gradients of queries in fp32 to zero, and convert them (Dao, arXiv 2307.08691, algorithm 2;
            flash_bwd_preprocess_kernel.h).
    """

    decodes: Any
    forward: dict[str, Any]
    backward: dict[str, Any]


def attention_columns(operations: OperationList) -> Attention:
    """Columns of operations of kind attention."""
    sequences, heads, cached_heads, queries, keys, key_size, value_size, causal, window, width, cache_bytes = np.array(
        [_sizes(operation) for operation in operations], dtype=float
    ).T
    pairs: FloatArray = np.asarray(visible_pairs(queries, keys, causal > 0, window))
    results = sequences * heads * queries
    read = np.minimum(keys, window + queries - 1)
    cached = sequences * cached_heads * read * cache_bytes * (key_size + value_size)
    written = np.maximum(width, ELEMENT_BYTES["bf16"]) * value_size
    flops = 2 * sequences * heads * pairs * (key_size + value_size)
    sums = 2 * ELEMENT_BYTES["fp32"] + width
    forward = {
        "flops": flops,
        "batch": sequences * cached_heads,
        "rows": queries * heads / cached_heads,
        "columns": key_size + value_size,
        "reduction": pairs / queries,
        "exponentials": np.ones(len(queries)),
        "loads_rows": np.zeros(len(queries)),
        "in_bytes": np.minimum(width, cache_bytes),
        "moved_bytes": results * (width * key_size + written) + cached,
        "held_bytes": cached,
        "sharing": heads / cached_heads,
        "span": keys,
        "window": np.minimum(window, keys),
        "causal": causal,
    }
    backward = {
        "columns": 3 * key_size + 2 * value_size,
        "flops": 2.5 * flops,
        "passed_bytes": results * (2 * width * value_size + sums * key_size),
    }
    return Attention((queries == 1) & (keys > 1), forward, backward)


@remembered(lambda found: OPERATION_BYTES)
def _sizes(operation: Operation) -> tuple[float, ...]:
    """The sizes that `attention_columns` takes apart; the last query stands at the position of the last key."""
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
