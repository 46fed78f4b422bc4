"""Calls of PyTorch's operators, and which operations they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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


def counted_from_front(bound: Bound, rank: int) -> Bound:
    """The arguments of an operator on complex tensors, whose real views have one more dimension at the end."""
    dim = bound.get("dim")
    if isinstance(dim, int):
        return {**bound, "dim": dim % max(1, rank)}
    return {**bound, "dim": [each % max(1, rank) for each in dim]} if isinstance(dim, list | tuple) else bound


def first_of(bound: Bound) -> Any:
    """The first argument, whose name differs between an operator and its in-place form."""
    return next(iter(bound.values()))


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor, not a number."""
    return hasattr(value, "shape")


def result_of(bound: Bound) -> Any:
    """The first tensor that an operator returns."""
    result = bound["<output>"]
    return result if is_tensor(result) else result[0]


def large(*values: Any) -> list[Shape]:
    """The shapes of the tensors among some arguments; one of a single element works as a number does."""
    return [shape for value in values if is_tensor(value) and size(shape := shape_of(value)) > 1]


_UNNAMED: Mapping[str, Callable[[Bound], Any]] = {"<first>": first_of, "<output>": result_of}


def call(kind: str, *inputs: str, **attributes: str | Callable[[Bound], Any]) -> Callable[[Bound], Converted]:
    """An operation of a kind whose input shapes are those of these arguments.

    "<first>" and "<output>" stand for tensors without a name. `attributes` are those of the operation: names of
    arguments, or functions of all arguments.
    """

    def convert(bound: Bound) -> Converted:
        tensors = (_UNNAMED[name](bound) if name in _UNNAMED else bound[name] for name in inputs)
        values = {name: bound[how] if isinstance(how, str) else how(bound) for name, how in attributes.items()}
        return kind, [shape_of(tensor) for tensor in tensors], values

    return convert


def given(name: str) -> Callable[[Bound], bool]:
    """Whether an optional argument is given, such as a bias."""
    return lambda bound: bound[name] is not None


def reduction(kind: str) -> Callable[[Bound], Converted]:
    """A reduction over some dimensions, or over all."""
    return call(
        kind,
        "self",
        dim=lambda bound: bound.get("dim") if bound.get("dim") not in ([], ()) else None,
        keepdim=lambda bound: bound.get("keepdim", False),
    )


def convolution(bound: Bound) -> Converted:
    """A convolution of any dimension, or a transposed one, which an argument or the name of the operator says."""
    weight, groups, transposed = shape_of(bound["weight"]), bound["groups"], bound.get("transposed", False)
    names = ("stride", "padding", "dilation", *(("output_padding",) if transposed else ()))
    attributes: dict[str, Any] = {
        "out_channels": weight[1] * groups if transposed else weight[0],
        "kernel_size": weight[2:],
        "bias": bound["bias"] is not None,
        "groups": groups,
        **{name: bound[name] for name in names},
    }
    return f"{'conv_transpose' if transposed else 'conv'}{len(weight) - 2}d", [shape_of(bound["input"])], attributes


def _parts(tensor: Any) -> int:
    """Real numbers that an element consists of."""
    return 2 if tensor.dtype.is_complex else 1


# A product of complex matrices is four of real ones: [A, B] [[C, D], [-D, C]], with real and imaginary parts.


def matmul(first: str, second: str) -> Callable[[Bound], Converted]:
    """A product of the two arguments with these names, of which vectors are matrices of one row or column."""

    def convert(bound: Bound) -> Converted:
        a, b, parts = tuple(bound[first].shape), tuple(bound[second].shape), _parts(bound[first])
        a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
        return "matmul", [(*a[:-1], parts * a[-1]), (*b[:-2], parts * b[-2], parts * b[-1])], {}

    return convert


def linear(first: str, second: str, outputs: int, bias: Callable[[Bound], bool]) -> Callable[[Bound], Converted]:
    """A product with a matrix of weights, whose dimension `outputs` is that of the features."""

    def convert(bound: Bound) -> Converted:
        x, parts = bound[first], _parts(bound[first])
        attributes = {"out_features": parts * bound[second].shape[outputs], "bias": bias(bound)}
        return "linear", [(*x.shape[:-1], parts * x.shape[-1])], attributes

    return convert


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


def binary(kind: str, of_complex: str | None = None) -> Callable[[Bound], Converted]:
    """A function of two tensors, or of a tensor and a number; the product of two complex tensors may be another."""

    def convert(bound: Bound) -> Converted:
        operands = [value for value in list(bound.values())[:2] if is_tensor(value)]
        if any(value.dtype.is_complex for value in operands):
            # A real operand is broadcast to the real and the imaginary part.
            pairs = [shape_of(v) if v.dtype.is_complex else (*shape_of(v), 1) for v in operands if v.numel() > 1]
            both = len(pairs) == 2 and all(shape[-1] == 2 for shape in pairs)
            return of_complex if both and of_complex else kind, pairs or [(2,)], {}
        return kind, large(*operands) or [shape_of(operands[0])], {}

    return convert


def addcmul(bound: Bound) -> Converted:
    """One kernel: input + first * second. Usually only one of the three is as large as the output."""
    shapes = sorted((shape_of(bound[name]) for name in ("self", "tensor1", "tensor2")), key=size)
    return "mul", [shape_of(bound["<output>"]), shapes[-2]], {}


def lerp(bound: Bound) -> Converted:
    """One kernel: start + weight * (end - start)."""
    shapes = [shape_of(bound[name]) for name in ("self", "end", "weight") if is_tensor(bound[name])]
    return "mul", sorted(shapes, key=size)[-2:], {}


def dropout(bound: Bound) -> Converted:
    """Dropout, which does nothing outside of training."""
    if not bound["train"] or bound["p"] == 0:
        return None
    return "dropout", [shape_of(first_of(bound))], {"p": float(bound["p"])}


def where(bound: Bound) -> Converted:
    """A mask, and those of the two values that are not single numbers."""
    if "self" not in bound:
        return None  # the form that returns indices, whose number depends on values
    return "where", [shape_of(bound["condition"]), *large(bound["self"], bound["other"])], {}


def comparison(bound: Bound) -> Converted:
    """A comparison of one or two tensors, whose result is a truth value per element."""
    return "compare", large(*list(bound.values())[:2]) or [(1,)], {}


def extreme(bound: Bound) -> Converted:
    """The maximum or minimum of a tensor or along a dimension; for two tensors, element by element."""
    if "other" in bound:
        return "mul", large(first_of(bound), bound["other"]) or [(1,)], {}
    attributes = {"dim": bound.get("dim"), "keepdim": bound.get("keepdim", False)}
    return "max", [shape_of(first_of(bound))], attributes


def stack(bound: Bound) -> Converted:
    """Tensors put together along a new dimension."""
    shapes = [shape_of(tensor) for tensor in bound["tensors"]]
    dim = bound["dim"] % (len(shapes[0]) + 1)
    return "cat", [(*s[:dim], 1, *s[dim:]) for s in shapes], {"dim": dim}


def _numel(tensor: Any) -> int:
    return size(tuple(tensor.shape))


def scatter(*, accumulate: bool) -> Callable[[Bound], Converted]:
    """One element of the source is written, or added, for each element of the index."""

    def convert(bound: Bound) -> Converted:
        x, places = shape_of(result_of(bound)), shape_of(bound["index"])
        return "scatter", [x, places, places], {"accumulate": accumulate or bound.get("reduce") is not None}

    return convert


def slices(*, accumulate: bool) -> Callable[[Bound], Converted]:
    """Slices of the source are added to those that the index selects, or replace them."""

    def convert(bound: Bound) -> Converted:
        x, places = result_of(bound), shape_of(bound["index"])
        row = _numel(x) // x.shape[bound["dim"]] if x.ndim else 1
        return "scatter", [shape_of(x), (size(places), row), places], {"accumulate": accumulate}

    return convert


def index_put(bound: Bound) -> Converted:
    """x[i, j] = values."""
    x = result_of(bound)
    used = {dim: index for dim, index in enumerate(bound["indices"]) if index is not None}
    masks = [dim for dim, index in used.items() if str(index.dtype) in ("torch.bool", "torch.uint8")]
    if masks:
        # The dimensions of the input that the first mask does not cover are ones.
        leading = (*(1,) * masks[0], *used[masks[0]].shape)
        return "masked_fill", [shape_of(x), (*leading, *(1,) * (x.ndim - len(leading)))], {}
    rank = max(index.ndim for index in used.values())
    padded = [(1,) * (rank - index.ndim) + tuple(index.shape) for index in used.values()]
    places = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    row = _numel(x) // math.prod(x.shape[dim] for dim in used)
    return "scatter", [shape_of(x), (size(places), row), places], {"accumulate": bound["accumulate"]}


def embedding_bag(bound: Bound) -> Converted:
    """The sum, mean or maximum of the rows of each bag."""
    rows, columns = shape_of(bound["weight"])
    shapes: list[Shape] = [(_numel(bound["indices"]),), (result_of(bound).shape[0],)]
    return "embedding_bag", shapes, {"num_embeddings": rows, "embedding_dim": columns}


def labelled(bound: Bound) -> Converted:
    """The value of the target class in every row."""
    x = shape_of(bound["self"])
    rows, classes = (1, x[0]) if len(x) == 1 else (x[0], x[1])
    return "gather", [(rows, classes), (rows, 1)], {"dim": 1}
