"""Conversion of PyTorch's operators for look-ups, scattering, masks and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..operations.rules import Shape, size
from .conversions import Bound, Converted, first_of, is_tensor, result_of, shape_of


def _numel(tensor: Any) -> int:
    return size(tuple(tensor.shape))


def _is_mask(index: Any) -> bool:
    return index is not None and str(index.dtype) in ("torch.bool", "torch.uint8")


def _mask_shape(indices: Sequence[Any], rank: int) -> Shape:
    """Shape of the first mask among indices, with ones for the dimensions of the input that it does not cover."""
    place = next(i for i, index in enumerate(indices) if _is_mask(index))
    leading = (*(1,) * place, *indices[place].shape)
    return (*leading, *(1,) * (rank - len(leading)))


def where(bound: Bound) -> Converted:
    """A mask, and those of the two values that are not single numbers."""
    if "self" not in bound:
        return None  # the form that returns indices, whose number depends on values
    values = (shape_of(value) for value in (bound["self"], bound["other"]) if is_tensor(value))
    return "where", [shape_of(bound["condition"]) or (1,), *(shape for shape in values if size(shape) > 1)], {}


def comparison(bound: Bound) -> Converted:
    """A comparison of one or two tensors, whose result is a truth value per element."""
    operands = [shape_of(value) for value in list(bound.values())[:2] if is_tensor(value)]
    return "compare", [shape for shape in operands if size(shape) > 1] or [(1,)], {}


def _broadcast(indices: Any) -> Shape:
    shapes = [tuple(i.shape) for i in indices if i is not None]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True)) or (1,)


def _scattered(x: Any, source: Shape, index: Shape, accumulate: bool) -> Converted:
    return "scatter", [shape_of(x) or (1,), source, index or (1,)], {"accumulate": accumulate}


def scatter(bound: Bound) -> Converted:
    """One element of the source is written for each element of the index."""
    places = shape_of(bound["index"]) or (1,)
    return _scattered(result_of(bound), places, places, bound.get("reduce") is not None)


def scatter_add(bound: Bound) -> Converted:
    """One element of the source is added in place for each element of the index."""
    places = shape_of(bound["index"]) or (1,)
    return _scattered(result_of(bound), places, places, accumulate=True)


def _slices(bound: Bound, *, accumulate: bool) -> Converted:
    x, places = result_of(bound), shape_of(bound["index"]) or (1,)
    row = _numel(x) // x.shape[bound["dim"]] if x.ndim else 1
    return _scattered(x, (size(places), row), places, accumulate)


def index_add(bound: Bound) -> Converted:
    """Slices of the source are added to those that the index selects."""
    return _slices(bound, accumulate=True)


def index_copy(bound: Bound) -> Converted:
    """Slices of the source replace those that the index selects."""
    return _slices(bound, accumulate=False)


def index_put(bound: Bound) -> Converted:
    """x[i, j] = values."""
    x, indices = result_of(bound), [i for i in bound["indices"] if i is not None]
    if any(map(_is_mask, indices)):
        return "masked_fill", [shape_of(x) or (1,), _mask_shape(bound["indices"], x.ndim) or (1,)], {}
    places = _broadcast(indices)
    named = math.prod(x.shape[dim] for dim, i in enumerate(bound["indices"]) if i is not None)
    return _scattered(x, (size(places), _numel(x) // named), places, bound["accumulate"])


def embedding_bag(bound: Bound) -> Converted:
    """The sum, mean or maximum of the rows of each bag."""
    rows, columns = shape_of(bound["weight"])
    bags = result_of(bound).shape[0]
    shapes: list[Shape] = [(_numel(bound["indices"]),), (bags,)]
    return "embedding_bag", shapes, {"num_embeddings": rows, "embedding_dim": columns}


def one_hot(bound: Bound) -> Converted:
    """A row of zeros and a single one for each class index."""
    return "one_hot", [shape_of(bound["self"]) or (1,)], {"num_classes": result_of(bound).shape[-1]}


def extreme(elementwise: str) -> Callable[[Bound], Converted]:
    """The maximum or minimum of a tensor or along a dimension; for two tensors, element by element."""

    def convert(bound: Bound) -> Converted:
        x = shape_of(first_of(bound)) or (1,)
        if "other" in bound:
            other = shape_of(bound["other"]) or (1,)
            return elementwise, [shape for shape in (x, other) if size(shape) > 1] or [(1,)], {}
        return "max", [x], {"dim": bound.get("dim"), "keepdim": bound.get("keepdim", False)}

    return convert


def labelled(bound: Bound) -> Converted:
    """The value of the target class in every row."""
    x = shape_of(bound["self"])
    rows, classes = (1, x[0]) if len(x) == 1 else (x[0], x[1])
    return "gather", [(rows, classes), (rows, 1)], {"dim": 1}
