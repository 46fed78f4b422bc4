"""Shape and FLOP rules of operations that read or write at positions given by an index or a mask, and of sorting."""

from __future__ import annotations

import math

from ..errors import InputError
from .rules import Attributes, Shape, Shapes, broadcast, dimension_of, size


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


def embedding_bag_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """One addition per element that is looked up."""
    return size(shapes[0]) * output[-1]


def scatter_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """One addition per element of the source if it is added to the values in place; none if it replaces them."""
    return size(shapes[1]) if attributes["accumulate"] else 0


def one_hot_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """One row of `num_classes` elements for each class index."""
    return (*shapes[0], attributes["num_classes"])


def topk_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The input with its dimension `dim` reduced to the k largest elements."""
    x = shapes[0]
    dim = dimension_of(x, attributes["dim"])
    if x and attributes["k"] > x[dim]:
        raise InputError(
            "there are fewer elements than the k largest",
            given=f"k={attributes['k']} of {x}",
            allowed=f"k up to {x[dim]}",
        )
    return (*x[:dim], attributes["k"], *x[dim + 1 :])


def row_length(shapes: Shapes, attributes: Attributes) -> int:
    """Number of elements of the input along `dim`."""
    x = shapes[0]
    return x[dimension_of(x, attributes["dim"])] if x else 1


def sort_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """About the least number of comparisons for sorting rows of n elements: log2 n per element."""
    return size(shapes[0]) * math.ceil(math.log2(max(row_length(shapes, attributes), 2)))
