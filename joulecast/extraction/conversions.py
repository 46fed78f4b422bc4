"""Calls of PyTorch's operators, and which operations they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..operations.rules import Shape, size

Bound = Mapping[str, Any]
"""Name of an argument in the operator's schema -> its value, and "<output>" -> the result."""

Converted = tuple[str, list[Shape], dict[str, Any]] | None
"""Kind, input shapes and attributes of an operation; None if the call does no work."""

CustomOperators = Mapping[str, str | Callable[[Bound], Converted]]
"""Operator as "namespace.name" -> its kind, or a function from its arguments to kind, input shapes and attributes."""


def shape_of(tensor: Any) -> Shape:
    """The shape of a tensor; for a complex tensor, the shape of its real view."""
    shape = tuple(tensor.shape)
    return (*shape, 2) if tensor.dtype.is_complex else shape


def first_of(bound: Bound) -> Any:
    """The first argument, whose name differs between an operator and its in-place form."""
    return next(iter(bound.values()))


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor, not a number."""
    return hasattr(value, "shape")


def plain(value: Any) -> Any:
    """An argument as the value of an attribute: lists become tuples."""
    return tuple(value) if isinstance(value, list | tuple) else value


def result_of(bound: Bound) -> Any:
    """The first tensor that an operator returns."""
    result = bound["<output>"]
    return result if is_tensor(result) else result[0]


def call(kind: str, *inputs: str, **attributes: str) -> Callable[[Bound], Converted]:
    """An operation of a kind whose input shapes are those of these arguments; `attributes` maps names to arguments.

    "<first>" and "<output>" stand for tensors without a name.
    """

    def convert(bound: Bound) -> Converted:
        tensors = (_UNNAMED[name](bound) if name in _UNNAMED else bound[name] for name in inputs)
        values = {attribute: plain(bound[argument]) for attribute, argument in attributes.items()}
        return kind, [shape_of(tensor) or (1,) for tensor in tensors], values

    return convert


_UNNAMED: Mapping[str, Callable[[Bound], Any]] = {"<first>": first_of, "<output>": result_of}


def convolution(transposed: bool) -> Callable[[Bound], Converted]:
    """A convolution of any dimension, or a transposed one."""

    def convert(bound: Bound) -> Converted:
        x, weight = bound["input"], shape_of(bound["weight"])
        dimensions = len(weight) - 2
        groups = bound["groups"]
        names = ("stride", "padding", "dilation", *(("output_padding",) if transposed else ()))
        given = {name: bound[name] for name in names}
        attributes: dict[str, Any] = {
            "out_channels": weight[1] * groups if transposed else weight[0],
            "kernel_size": weight[2:],
            "bias": bound["bias"] is not None,
            **{n: v if isinstance(v, str) else tuple(v) * (dimensions if len(v) == 1 else 1) for n, v in given.items()},
            "groups": groups,
        }
        name = "conv_transpose" if transposed else "conv"
        return f"{name}{dimensions}d", [shape_of(x)], attributes

    return convert


def any_convolution(bound: Bound) -> Converted:
    """A convolution of an exported program, in which an argument says whether it is transposed."""
    return convolution(bound["transposed"])(bound)


def linear(bound: Bound) -> Converted:
    """A product with weights, with or without a bias."""
    weight = shape_of(bound["weight"])
    return "linear", [shape_of(bound["input"])], {"out_features": weight[0], "bias": bound["bias"] is not None}


def addmm(bound: Bound) -> Converted:
    """A product and a sum in one kernel."""
    # A product with a bias is a linear layer, such as GPT-2's Conv1D.
    return "linear", [shape_of(bound["mat1"])], {"out_features": shape_of(bound["mat2"])[1], "bias": True}


def scaled_product(bound: Bound) -> Converted:
    """A product of quantized matrices, with one scale per tensor, per row, or per block of a row."""
    scale = shape_of(bound["scale_a"])
    attributes = {
        "out_features": shape_of(bound["mat2"])[1],
        "bias": bound["bias"] is not None,
        "block_scaled": len(scale) == 2 and scale[1] > 1,
    }
    return "linear", [shape_of(bound["self"])], attributes


def matmul(first: str, second: str) -> Callable[[Bound], Converted]:
    """A product of the two arguments with these names."""

    def convert(bound: Bound) -> Converted:
        a, b = shape_of(bound[first]), shape_of(bound[second])
        a = (1, *a) if len(a) == 1 else a
        b = (*b, 1) if len(b) == 1 else b
        return "matmul", [a, b], {}

    return convert


_GRID_MODES = ("linear", "nearest", "cubic")  # As torch.ops.aten.grid_sampler numbers them.


def fourier(form: str) -> Callable[[Bound], Converted]:
    """A Fourier transform of complex numbers ("c2c"), or one whose input or output is real ("r2c", "c2r")."""

    def convert(bound: Bound) -> Converted:
        x = bound["self"]
        attributes = {"dim": tuple(dim % x.ndim for dim in bound["dim"]), "form": form}
        if form == "c2r":
            attributes["last_size"] = bound["last_dim_size"]
        return "fft", [shape_of(x)], attributes

    return convert


def interpolation(mode: str) -> Callable[[Bound], Converted]:
    """Interpolation that resizes the spatial dimensions."""

    def convert(bound: Bound) -> Converted:
        output = result_of(bound).shape
        return "interpolate", [shape_of(first_of(bound))], {"output_size": tuple(output[2:]), "mode": mode}

    return convert


def grid_sample(bound: Bound) -> Converted:
    """The input sampled at the points of a grid."""
    mode = _GRID_MODES[bound["interpolation_mode"]]
    return "grid_sample", [shape_of(bound["input"]), shape_of(bound["grid"])], {"mode": mode}


def roi_align(bound: Bound) -> Converted:
    """Boxes cut out of an image. An adaptive number of samples is taken to be 2 x 2 per cell, as detectors use."""
    attributes = {
        "boxes": shape_of(bound["rois"])[0],
        "output_size": (bound["pooled_height"], bound["pooled_width"]),
        "sampling_ratio": bound["sampling_ratio"] if bound["sampling_ratio"] > 0 else 2,
    }
    return "roi_align", [shape_of(bound["input"])], attributes


def distances(bound: Bound) -> Converted:
    """Distances between all pairs of points.

    For many points and p = 2, PyTorch computes them by a matrix product, which is about the same amount of work.
    """
    return "cdist", [shape_of(bound["x1"]), shape_of(bound["x2"])], {"p": float(bound.get("p", 2.0))}


def grouped_product(bound: Bound) -> Converted:
    """A matrix product for each group of rows, in which every group has a matrix of its own."""
    x, weights = shape_of(bound["self"]), shape_of(bound["mat2"])
    if len(x) == 2 and len(weights) == 3:
        attributes = {"out_features": weights[-1], "num_experts": weights[0], "bias": bound["bias"] is not None}
        return "grouped_linear", [x], attributes
    if len(x) == 3 and len(weights) == 3:
        return "matmul", [x, weights], {}
    # The groups divide the columns or the reduction, so their work is that of a single product.
    return "matmul", [(x[-2], x[-1]), (x[-1], weights[-1])], {}


def vectors(bound: Bound) -> Converted:
    """The product of a matrix and a vector, or of two vectors."""
    first, second = list(bound.values())[:2]
    a, b = shape_of(first), shape_of(second)
    return "matmul", [a if len(a) == 2 else (1, *a), (*b, 1)], {}


def recurrent(kind: str) -> Callable[[Bound], Converted]:
    """nn.LSTM, nn.GRU or nn.RNN. A projection makes the hidden state of an LSTM smaller than its cell state."""

    def convert(bound: Bound) -> Converted:
        if "batch_sizes" in bound:  # a packed sequence: rows of all steps, with fewer rows in later steps
            rows, features = bound["data"].shape
            steps = bound["batch_sizes"].shape[0]
            shape = (steps, -(-rows // steps), features)
        else:
            first, second, features = bound["input"].shape
            shape = (second, first, features) if bound["batch_first"] else (first, second, features)
        hidden, cells = bound["hx"] if kind == "lstm" else (bound["hx"], bound["hx"])
        projected = hidden.shape[-1] if hidden.shape[-1] != cells.shape[-1] else 0
        attributes = {
            "hidden_size": cells.shape[-1],
            "num_layers": bound["num_layers"],
            "bidirectional": bound["bidirectional"],
            "bias": bound["has_biases"],
            **({"proj_size": projected} if kind == "lstm" else {}),
        }
        return kind, [shape], attributes

    return convert


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


def slices(*, accumulate: bool) -> Callable[[Bound], Converted]:
    """Slices of the source are added to those that the index selects, or replace them."""

    def convert(bound: Bound) -> Converted:
        x, places = result_of(bound), shape_of(bound["index"]) or (1,)
        row = _numel(x) // x.shape[bound["dim"]] if x.ndim else 1
        return _scattered(x, (size(places), row), places, accumulate)

    return convert


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
