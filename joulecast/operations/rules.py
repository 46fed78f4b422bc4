"""Shape, FLOP and parameter rules of operation kinds: pure functions that rows of the table of kinds refer to.

Each rule takes the input shapes and all attributes of an operation, including those with default values. FLOP rules
take the output shape as well. Shape rules raise InputError if inputs and attributes do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Attributes = Mapping[str, Any]


class Product(NamedTuple):
    """A batch of matrix products [rows, reduction] x [reduction, columns]."""

    batch: int
    rows: int
    columns: int
    reduction: int


def size(shape: Shape) -> int:
    """Number of elements of a tensor of this shape."""
    return math.prod(shape)


def same(shapes: Shapes, attributes: Attributes) -> Shape:
    """The output has the shape of the first input."""
    return shapes[0]


def broadcast(*shapes: Shape) -> Shape:
    """The shape that tensors of these shapes broadcast to. Raises InputError: they do not broadcast."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise InputError(
                "these shapes do not broadcast",
                given=", ".join(map(str, shapes)),
                allowed="sizes that are equal or 1 in each dimension, counted from the last",
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def broadcast_inputs(shapes: Shapes, attributes: Attributes) -> Shape:
    """The output has the shape that the inputs broadcast to."""
    return broadcast(*shapes)


def per_output_element(count: int) -> Callable[[Shapes, Attributes, Shape], int]:
    """FLOP rule: this number of FLOPs for each element of the output."""
    return lambda shapes, attributes, output: count * size(output)


def per_input_element(count: int) -> Callable[[Shapes, Attributes, Shape], int]:
    """FLOP rule: this number of FLOPs for each element of the first input."""
    return lambda shapes, attributes, output: count * size(shapes[0])


def dimension_of(shape: Shape, dim: int) -> int:
    """A dimension as a number from 0; negative dimensions count from the end. Raises InputError: there is none such."""
    rank = len(shape)
    if not -rank <= dim < rank:
        raise InputError(
            "the input has no such dimension", given=f"dim={dim} of {shape}", allowed=f"{-rank} to {rank - 1}"
        )
    return dim % rank


def same_along_dimension(shapes: Shapes, attributes: Attributes) -> Shape:
    """The output has the shape of the first input, which has the dimension `dim`."""
    dimension_of(shapes[0], attributes["dim"])
    return shapes[0]


def linear_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The last dimension becomes out_features."""
    return (*shapes[0][:-1], attributes["out_features"])


def linear_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """Weights and bias of a linear layer."""
    features: int = attributes["out_features"]
    return features * (shapes[0][-1] + (1 if attributes["bias"] else 0))


def linear_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """A multiply-add per input element and output feature."""
    features: int = attributes["out_features"]
    return 2 * size(shapes[0]) * features


def linear_product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
    """The product of all rows of the input with the weights."""
    return Product(1, size(output[:-1]), output[-1], shapes[0][-1])


def matmul_product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
    """A batch of products of the last two dimensions; for an attention, the columns are those of the values."""
    return Product(size(output[:-2]), output[-2], output[-1], shapes[0][-1])


def matmul_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """[..., M, K] x [..., K, N] gives [..., M, N]."""
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise InputError(
            "the inner dimensions of a matrix product differ",
            given=f"{a} and {b}",
            allowed="[..., M, K] and [..., K, N]",
        )
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def experts_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """Weights of all experts, and their biases if there are any."""
    each = attributes["out_features"] * (shapes[0][-1] + (1 if attributes["bias"] else 0))
    return int(attributes["num_experts"] * each)


def attention_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """One value vector per query; several heads of queries may share a head of keys and values."""
    q, k, v = shapes
    if min(map(len, shapes)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise InputError(
            "query, key and value do not fit", given=f"{q}, {k}, {v}", allowed="[..., L, E], [..., S, E], [..., S, D]"
        )
    if min(map(len, shapes)) > 2 and q[-3] % k[-3] and k[-3] % q[-3]:
        raise InputError(
            "the heads of queries do not divide into those of keys",
            given=f"{q[-3]} heads of queries, {k[-3]} of keys",
            allowed="as many heads of queries for each head of keys and values",
        )
    window = attributes["window"]
    if window is not None and window > k[-2]:
        raise InputError(
            "the window of an attention does not fit its keys",
            given=window,
            allowed=f"1 to {k[-2]} keys, or None",
            hint="leave the window out where every query sees all keys",
        )
    return (*q[:-1], v[-1])


def attention_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """The product of queries and keys, and of scores and values, for all pairs of a query and a key that it sees.

    A causal mask and a window reduce the FLOPs, because kernels skip what they hide. (`torch.utils.flop_counter` counts
    all pairs.)
    """
    q, k, v = shapes
    pairs = visible_pairs(q[-2], k[-2], attributes["causal"], attributes["window"])
    flops: int = 2 * size(q[:-2]) * pairs * (q[-1] + v[-1])
    return flops


def visible_pairs(queries: Any, keys: Any, causal: Any, window: Any = None) -> Any:
    """Number of pairs of a query and a key that it sees, in one head of one sequence; integers, or arrays of one shape.

    If causal, and there are several queries and as many keys or more, a query sees no later key: the last query stands
    at the position of the last key. The window is the number of keys that a query sees at most, including its own; None
    for all.
    """
    least, most = (min, max) if isinstance(queries, int) and isinstance(keys, int) else (np.minimum, np.maximum)
    seen = keys if window is None else least(keys, window)
    # Each query sees one key more than the query before it, until the window is full.
    growing = most(seen - keys + queries, 0)
    hidden = queries * seen - growing * (keys - queries + 1 + seen) // 2 - (queries - growing) * seen
    return queries * seen - hidden * (causal & (queries > 1) & (queries <= keys))


def reduction_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The dimensions `dim` (None for all) are removed, or become 1 with `keepdim`."""
    rank = len(shapes[0])
    dims = attributes["dim"]
    dims = tuple(range(rank)) if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    reduced = {dimension_of(shapes[0], dim) for dim in dims}
    if len(reduced) < len(dims):
        raise InputError(
            "a dimension is named twice", given=f"dim={list(dims)} of {list(shapes[0])}", allowed="each dimension once"
        )
    if attributes["keepdim"]:
        return tuple(1 if i in reduced else n for i, n in enumerate(shapes[0]))
    return tuple(n for i, n in enumerate(shapes[0]) if i not in reduced)


def cat_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The inputs concatenated along `dim`."""
    first = shapes[0]
    dim = dimension_of(first, attributes["dim"])
    if any(len(s) != len(first) or s[:dim] + s[dim + 1 :] != first[:dim] + first[dim + 1 :] for s in shapes):
        raise InputError(
            "shapes to concatenate differ in another dimension",
            given=", ".join(map(str, shapes)),
            allowed=f"shapes that differ in dimension {dim} only",
        )
    return (*first[:dim], sum(shape[dim] for shape in shapes), *first[dim + 1 :])


def group_norm_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The output has the shape of the input, whose channels divide into the groups."""
    if len(shapes[0]) < 2 or shapes[0][1] % attributes["num_groups"]:
        raise InputError(
            "the channels of a group norm do not divide into its groups",
            given=f"{attributes['num_groups']} groups of {shapes[0]}",
            allowed="[batch, channels, ...] with channels a multiple of num_groups",
        )
    return shapes[0]


def channel_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """A scale and a shift per channel."""
    if len(shapes[0]) < 2:
        raise InputError(
            "the input needs a batch and a channel dimension", given=shapes[0], allowed="[batch, channels, ...]"
        )
    return 2 * shapes[0][1] if attributes["affine"] else 0


def row_parameters(tensors: int) -> Callable[[Shapes, Attributes], int]:
    """Parameter rule: this number of tensors of shape normalized_shape."""

    def parameters(shapes: Shapes, attributes: Attributes) -> int:
        normalized = tuple(attributes["normalized_shape"])
        if shapes[0][-len(normalized) :] != normalized:
            raise InputError(
                "normalized_shape is not the end of the input shape",
                given=f"{normalized} of {shapes[0]}",
                allowed=f"such as {shapes[0][-1:]}",
            )
        return tensors * size(normalized) if attributes["affine"] else 0

    return parameters


def gather_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """One element of the input for each element of the index, along `dim` (torch.gather)."""
    x, index = shapes
    dim = dimension_of(x, attributes["dim"])
    if len(index) != len(x) or any(n > m for i, (n, m) in enumerate(zip(index, x, strict=True)) if i != dim):
        raise InputError(
            "this index does not fit the input of a gather",
            given=f"index {index}, input {x}",
            allowed="as many dimensions, none longer than the input's but along dim",
        )
    return index


def index_select_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """One slice of the input for each element of the index; the dimensions of the index replace dimension `dim`."""
    x, index = shapes
    dim = dimension_of(x, attributes["dim"])
    return (*x[:dim], *index, *x[dim + 1 :])


def scatter_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """Shape of the input, which is changed in place; each element of the index says where a part of the source goes."""
    x, source, index = shapes
    if size(source) % size(index):
        raise InputError(
            "the source of a scatter does not divide into the elements of its index",
            given=f"source {source}, index {index}",
            allowed="a source of as many elements as the index has, or a multiple of it",
        )
    return x


def masked_fill_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """Shape of the input, which is changed in place; the mask has to broadcast to it."""
    if broadcast(*shapes) != shapes[0]:
        raise InputError(
            "a mask does not broadcast to the input",
            given=f"mask {shapes[1]}, input {shapes[0]}",
            allowed=f"a shape that broadcasts to {shapes[0]}",
        )
    return shapes[0]


def embedding_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """Elements of the table in which rows are looked up."""
    rows: int = attributes["num_embeddings"]
    columns: int = attributes["embedding_dim"]
    return rows * columns


def embedding_bag_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """One vector per bag. The inputs are the indices of all bags, and the position at which each bag begins."""
    indices, offsets = shapes
    if len(indices) != 1 or len(offsets) != 1:
        raise InputError(
            "an embedding bag takes indices and offsets in a row each",
            given=f"{indices} and {offsets}",
            allowed="[number of indices] and [number of bags]",
        )
    return (offsets[0], attributes["embedding_dim"])


def topk_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The input with its dimension `dim` reduced to the k largest elements."""
    x = shapes[0]
    dim = dimension_of(x, attributes["dim"])
    if attributes["k"] > x[dim]:
        raise InputError(
            "there are fewer elements than the k largest",
            given=f"k={attributes['k']} of {x}",
            allowed=f"k up to {x[dim]}",
        )
    return (*x[:dim], attributes["k"], *x[dim + 1 :])


def row_length(shapes: Shapes, attributes: Attributes) -> int:
    """Number of elements of the input along `dim`."""
    return shapes[0][dimension_of(shapes[0], attributes["dim"])]
