"""How operations are done: as a few kernels each, in columns that do not depend on the GPU.

A product, whatever it is called, is a batch of matrix products [rows, reduction] x [reduction, columns]. A library cuts
it into tiles. Attention is one as well: its rows are queries, its reduction runs over the keys that a query sees, and
its columns are the elements of a key and a value. A convolution is the product that it implies, with the bytes of its
images. All other kernels move bytes.

Training adds a kernel to attention, of five products where the forward has two, because it computes the scores again
(Dao et al., "FlashAttention", 2022). Masks and windows are work: what no query sees is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES, HALF_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.rules import visible_pairs
from ...system.caches import OPERATION_BYTES, remembered
from ..physics.operation_numbers import KIND_PLACES, numbers_of

GROUPS: tuple[str, ...] = ("product", "attention", "decoding", "experts", "convolution", "stream")
"""Kinds of kernels that are alike enough to share the constants of physics."""

PRODUCT, ATTENTION, DECODING, EXPERTS, CONVOLUTION, STREAM = range(len(GROUPS))

PASSES: tuple[str, ...] = ("forward", "input gradient", "weight gradient", "backward")
_FORWARD, _INPUT, _WEIGHT, BACKWARD = range(len(PASSES))

IMPLEMENTATIONS: tuple[str, ...] = ("pytorch", "sglang", "tensorrt_llm", "vllm", "flashinfer", "cudnn", "triton")
"""Programs whose kernels an operation calls; others are taken for PyTorch."""

WIDTHS: tuple[str, ...] = ("fp32", "half", "half with fp8 cache", "fp8", "fp8 in blocks", "nvfp4")
"""Widths of the numbers that kernels compute with. fp16 and bf16 have the same rates on tensor cores."""

_WIDTH_OF = {"fp16": "half", "bf16": "half", "fp8": "fp8", "nvfp4": "nvfp4"}

_ODD_LOADS = 8.0  # Eight elements of 2 bytes one by one, instead of 16 bytes at once.
_SKEW = {"power_law_1.01": 1.01, "power_law_1.2": 1.2}  # Distribution of tokens over experts -> exponent.


class Work(NamedTuple):
    """Kernels of operations, as arrays of shape (kernels,).

    Args:
        place: Index of the operation that a kernel belongs to.
        group: Index into GROUPS.
        part: Index into PASSES.
        flops: FLOPs that run.
        batch, rows, columns, reduction: Sizes of the product; 0 for kernels that only move bytes.
        loads_rows: 1 if tiles load their rows from memory, 0 if they are computed on the way (attention's scores).
        saved: How many times fewer multiplications Winograd's transforms need where they apply, otherwise 1. Libraries
            gain about the square root of it.
        exponentials: Exponentials for each row and step of the reduction: 1 in attention, otherwise 0.
        in_bytes: Bytes of an element of a factor of the product, or of an element that is moved.
        moved_bytes: Least bytes to and from memory.
        held_bytes: Those of them that a loop of measurements, or a network, holds several of: weights.
        passed_bytes: Bytes that point-wise kernels before and after the product read and write.
        sharing: Heads of queries that share a head of keys, or experts that a token chooses; otherwise 1.
        span: Keys of a sequence, masked or not, or experts that share the tokens; otherwise 1.
        window: Most keys that a query of attention sees.
        causal: 1 if a query of attention sees no later key.
        skew: Exponent by which some experts get more tokens than others; 0 where all get as many.
        launches: Kernels that run one after the other.
        width: Index into WIDTHS.
        precision: Index into PRECISIONS.
        implementation: Index into IMPLEMENTATIONS.
    """

    place: NDArray[np.int64]
    group: NDArray[np.int64]
    part: NDArray[np.int64]
    flops: FloatArray
    batch: FloatArray
    rows: FloatArray
    columns: FloatArray
    reduction: FloatArray
    loads_rows: FloatArray
    saved: FloatArray
    exponentials: FloatArray
    in_bytes: FloatArray
    moved_bytes: FloatArray
    held_bytes: FloatArray
    passed_bytes: FloatArray
    sharing: FloatArray
    span: FloatArray
    window: FloatArray
    causal: FloatArray
    skew: FloatArray
    launches: FloatArray
    width: NDArray[np.int64]
    precision: NDArray[np.int64]
    implementation: NDArray[np.int64]

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Self:
        """The kernels of operations."""
        return cls(*OperationList.of(operations).derived(_work))

    def asked_of(self, *libraries: str) -> NDArray[np.bool_]:
        """Whether one of these libraries, named as in IMPLEMENTATIONS, was asked for each kernel."""
        asked: NDArray[np.bool_] = np.logical_or.reduce(
            [self.implementation == IMPLEMENTATIONS.index(library) for library in libraries]
        )
        return asked

    def some(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """The kernels at these indices."""
        return type(self)(*(column[places] for column in self))  # type: ignore[arg-type]


class _Kernels:
    """Collects kernels of operations, pass by pass."""

    def __init__(
        self, n: Any, implementation: NDArray[np.int64], width: NDArray[np.int64], back: NDArray[np.bool_]
    ) -> None:
        self.n, self.implementation, self.width, self.back = n, implementation, width, back
        self.found: list[FloatArray] = []

    def add(self, places: NDArray[np.int64], group: int | NDArray[np.int64], part: int, **columns: Any) -> None:
        """Add a kernel for each of the operations at some places; columns that are left out are 0."""
        n = self.n
        given = {
            "place": places,
            "group": group,
            "part": part,
            "in_bytes": n.element_bytes[places],
            "width": self.width[places],
            "precision": n.precision[places].astype(np.int64),
            "implementation": self.implementation[places],
            "launches": 1.0,
            "loads_rows": 1.0,
            "sharing": 1.0,
            "span": 1.0,
            "saved": 1.0,
            **columns,
        }
        table = np.zeros((len(Work._fields), len(places)))
        for name, values in given.items():
            table[Work._fields.index(name)] = values
        self.found.append(table)

    def work(self) -> Work:
        table = np.concatenate(self.found, axis=1)
        table = table.take(np.argsort(table[0], kind="stable"), axis=1)
        whole = ("place", "group", "part", "width", "precision", "implementation")
        columns = zip(Work._fields, table, strict=True)
        return Work(*(column.astype(np.int64) if name in whole else column for name, column in columns))


def _work(operations: OperationList) -> Work:
    n = numbers_of(operations)
    kernels = _Kernels(
        n, operations.derived(_implementations), operations.derived(_widths), operations.derived(_backwards)
    )
    kind, works = n.kind.astype(np.int64), n.is_identity == 0
    attention, experts = kind == KIND_PLACES["attention"], kind == KIND_PLACES["experts"]
    product = (n.is_product > 0) & works & ~attention & ~experts & (n.reduction > 1)
    convolution = product & (n.is_convolution > 0)
    _add_products(kernels, np.flatnonzero(product & ~convolution))
    _add_convolutions(kernels, np.flatnonzero(convolution), operations)
    _add_attention(kernels, np.flatnonzero(attention & works), operations)
    _add_experts(kernels, np.flatnonzero(experts & works), operations)
    _add_others(kernels, np.flatnonzero(works & ~product & ~attention & ~experts))
    return kernels.work()


def _implementations(operations: OperationList) -> NDArray[np.int64]:
    known = {name: place for place, name in enumerate(IMPLEMENTATIONS)}
    return np.array([known.get(o.attributes.get("implementation", "pytorch"), 0) for o in operations], np.int64)


def _widths(operations: OperationList) -> NDArray[np.int64]:
    return np.array([WIDTHS.index(width_of(operation)) for operation in operations], np.int64)


def width_of(operation: Operation) -> str:
    """Name of the width of the numbers that an operation computes with: one of WIDTHS."""
    width = _WIDTH_OF.get(operation.precision, "fp32")
    cache = _WIDTH_OF.get(operation.attributes.get("cache_precision") or operation.precision, width)
    more = (
        f" with {cache} cache" if cache != width else " in blocks" if operation.attributes.get("block_scaled") else ""
    )
    return width + more if width + more in WIDTHS else width


def _backwards(operations: OperationList) -> NDArray[np.bool_]:
    """Whether training computes the gradients of inputs, shape (operations,)."""
    return np.array([o.has_backward and o.gradients in ("all", "inputs") for o in operations], bool)


def _add_products(kernels: _Kernels, places: NDArray[np.int64]) -> None:
    """Linear layers and products of two tensors; those of training are operations of their own (parts.py)."""
    n = kernels.n
    batch, m, c, k = (column[places] for column in (n.batch, n.rows, n.columns, n.reduction))
    width = n.element_bytes[places]
    weights = n.parameters[places] > 0  # The second factor is a layer's own, so a loop holds several of them.
    out = np.maximum(width, HALF_BYTES)
    passed = np.where(width < HALF_BYTES, batch * m * k * (HALF_BYTES + width), 0.0)
    flops = 2.0 * batch * m * c * k
    moved = batch * (width * k * (m + c) + out * m * c)
    held = np.where(weights, width * batch * k * c, 0.0)
    # Tensor cores are fed in pieces of 16 bytes. The rows of a matrix with an odd number of columns, such as the scores
    # of attention over 197 tokens, begin anywhere, and are loaded element by element, but for products with a vector:
    # those load all of a row at once.
    odd = ~weights & (width == HALF_BYTES) & ((c % 2 > 0) | (k % 2 > 0)) & (m > 1) & (c > 1)
    loaded = width * np.where(odd, _ODD_LOADS, 1.0)
    sizes = {"batch": batch, "rows": m, "columns": c, "reduction": k, "flops": flops}
    kernels.add(
        places,
        PRODUCT,
        _FORWARD,
        moved_bytes=moved,
        held_bytes=held,
        in_bytes=loaded,
        passed_bytes=passed,
        **sizes,
    )


def _add_convolutions(kernels: _Kernels, places: NDArray[np.int64], operations: OperationList) -> None:
    """Convolutions as the products that they imply, with the bytes of their images.

    In a gradient of the input with a stride above one, each position meets only a part of the window.
    """
    n = kernels.n
    directions = [operations[place].attributes.get("direction", "forward") for place in places.tolist()]
    part = np.array([("forward", "input_gradient", "weight_gradient").index(d) for d in directions], np.int64)
    groups = np.maximum(n.groups[places], 1.0)
    m, c, k = n.rows[places], n.channels_out[places] / groups, n.reduction[places]
    inputs = n.channels_in[places] / groups
    window = np.maximum(k / np.maximum(inputs, 1.0), 1.0)
    positions = n.input_size[places] / np.maximum(n.channels_in[places], 1.0)
    moved = n.element_bytes[places] * (n.input_size[places] + n.output_size[places] + n.parameters[places])
    common = {
        "flops": 2.0 * groups * m * c * k,
        "batch": groups,
        "moved_bytes": moved,
        "held_bytes": n.element_bytes[places] * n.parameters[places],
    }
    met = c * np.maximum(window / n.stride[places] ** 2, 1.0)
    sizes = {
        _FORWARD: {"rows": m, "columns": c, "reduction": k, "saved": n.winograd[places]},
        _INPUT: {"rows": positions, "columns": inputs, "reduction": met, "saved": n.winograd[places]},
        _WEIGHT: {"rows": c, "columns": k, "reduction": m},
    }
    for which, of_pass in sizes.items():
        some = np.flatnonzero(part == which)
        kernels.add(places[some], CONVOLUTION, which, **{name: v[some] for name, v in {**common, **of_pass}.items()})


def _add_attention(kernels: _Kernels, places: NDArray[np.int64], operations: OperationList) -> None:
    """Attention: a product over the keys that a query sees, with the heads that share keys as rows of one product.

    Results have at least 16 bits per element, and what no query sees is not counted. The backward computes the scores
    again, and the gradients of values, scores, queries and keys. Kernels of their own before and after it read results
    and their gradients, set the sums of the gradients of queries in fp32 to zero, and convert them (Dao, arXiv
    2307.08691, algorithm 2; flash_bwd_preprocess_kernel.h).
    """
    if not len(places):
        return
    sequences, heads, cached_heads, queries, keys, key_size, value_size, causal, window, width, cache_bytes = np.array(
        [_attention_sizes(operations[place]) for place in places.tolist()], dtype=float
    ).T
    pairs: FloatArray = np.asarray(visible_pairs(queries, keys, causal > 0, window))
    results = sequences * heads * queries
    cached = sequences * cached_heads * np.minimum(keys, window + queries - 1) * cache_bytes * (key_size + value_size)
    written = np.maximum(width, ELEMENT_BYTES["bf16"]) * value_size
    forward = {
        "flops": 2 * sequences * heads * pairs * (key_size + value_size),
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
    backward = forward | {
        "columns": 3 * key_size + 2 * value_size,
        "flops": 2.5 * forward["flops"],
        "passed_bytes": results * (2 * width * value_size + (2 * ELEMENT_BYTES["fp32"] + width) * key_size),
    }
    # A sequence with a single query reads a cache of keys and values.
    group = np.where((queries == 1) & (keys > 1), DECODING, ATTENTION)
    kernels.add(places, group, _FORWARD, **forward)
    some = np.flatnonzero(kernels.back[places])
    kernels.add(places[some], group[some], BACKWARD, **{name: column[some] for name, column in backward.items()})


@remembered(lambda found: OPERATION_BYTES)
def _attention_sizes(operation: Operation) -> tuple[float, ...]:
    """The sizes that `_add_attention` takes apart; the last query stands at the position of the last key."""
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


def _add_experts(kernels: _Kernels, places: NDArray[np.int64], operations: OperationList) -> None:
    """A fused layer of experts: two products for each expert that gets a token."""
    if not len(places):
        return
    names = ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel")
    rows = [[operations[place].attributes[name] for name in names] for place in places.tolist()]
    inner, top_k, experts, parts, sharing = np.array(rows, dtype=float).T
    skew = np.array([_SKEW.get(operations[place].attributes["distribution"], 0.0) for place in places.tolist()])
    n, hidden = kernels.n, kernels.n.last_size[places]
    tokens, inner = n.input_size[places] / hidden, inner / parts
    busy = np.maximum(experts / sharing * (1 - (1 - top_k / experts) ** tokens), 1.0)
    each = np.maximum(tokens * top_k / sharing / busy, 1.0)
    width, sent = n.element_bytes[places], busy * each
    everywhere = np.where(kernels.implementation[places] == IMPLEMENTATIONS.index("flashinfer"), sent, tokens * top_k)
    zeros = (everywhere - np.minimum(sent, everywhere)) * HALF_BYTES
    quantized = np.where(width < HALF_BYTES, tokens * hidden * (HALF_BYTES + width), 0.0)
    for columns, reduction, passed in (
        (2 * inner, hidden, quantized + 2 * zeros * inner),
        (hidden, inner, everywhere * inner * (2 * HALF_BYTES + width) + (zeros + everywhere * HALF_BYTES) * hidden),
    ):
        held = width * busy * columns * reduction
        kernels.add(
            places,
            EXPERTS,
            _FORWARD,
            flops=2 * sent * columns * reduction,
            batch=busy,
            rows=each,
            columns=columns,
            reduction=reduction,
            held_bytes=held,
            passed_bytes=passed,
            launches=2.0,
            sharing=top_k,
            span=experts / sharing,
            skew=skew,
            moved_bytes=held + sent * (width * reduction + HALF_BYTES * columns),
        )


def _add_others(kernels: _Kernels, places: NDArray[np.int64]) -> None:
    """Kernels that move bytes: norms, softmax, point-wise operations, pooling, copies, look-ups, optimizers."""
    n = kernels.n
    kernels.add(
        places,
        STREAM,
        _FORWARD,
        moved_bytes=n.bytes_read[places] + n.bytes_written[places],
        flops=n.flops[places],
        launches=np.maximum(n.kernels[places], 1.0),
    )
