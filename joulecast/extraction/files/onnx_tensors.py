"""Conversion of ONNX operators that index, order, resize or transform tensors, and of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...operations.rules import Shape, size
from .onnx_calls import Call, Converted

_GRID_MODES = {
    "bilinear": "linear",
    "bicubic": "cubic",
}  # Names until opset 19. Since then they are "linear" and "cubic".


def _large(shapes: tuple[Shape, ...]) -> list[Shape]:
    # A tensor of one element works as a scalar.
    return [shape for shape in shapes if size(shape) > 1] or [(1,)]


def _compare(call: Call) -> Converted:
    return "compare", _large(call.inputs[:2]), {}


def _where(call: Call) -> Converted:
    return "where", [call.inputs[0] or (1,), *(shape for shape in call.inputs[1:3] if size(shape) > 1)], {}


def _gather_elements(call: Call) -> Converted:
    return "gather", list(call.inputs[:2]), {"dim": call.attributes.get("axis", 0)}


def index_select(call: Call) -> Converted:
    """Slices of a tensor along an axis."""
    return "index_select", [call.inputs[0], call.inputs[1] or (1,)], {"dim": call.attributes.get("axis", 0)}


def _scatter(call: Call) -> Converted:
    x, _, updates = call.inputs[:3]
    return "scatter", [x, updates, updates], {"accumulate": call.attributes.get("reduction", "none") != "none"}


def _scatter_slices(call: Call) -> Converted:
    x, places, updates = call.inputs[:3]
    return (
        "scatter",
        [x, updates, places[:-1] or (1,)],
        {"accumulate": call.attributes.get("reduction", "none") != "none"},
    )


def _topk(call: Call) -> Converted:
    axis = call.attributes.get("axis", -1)
    return "topk", [call.inputs[0]], {"k": call.outputs[0][axis], "dim": axis}


def _cumsum(call: Call) -> Converted:
    return "cumsum", [call.inputs[0]], {"dim": int(call.numbers[1][0])}


def _largest(call: Call) -> Converted:
    attributes = {"dim": call.attributes.get("axis", 0), "keepdim": bool(call.attributes.get("keepdims", 1))}
    return "argmax", [call.inputs[0]], attributes


def _one_hot(call: Call) -> Converted:
    indices, output = call.inputs[0], call.outputs[0]
    return "one_hot", [indices or (1,)], {"num_classes": size(output) // size(indices)}


def _resize(call: Call) -> Converted:
    x, output = call.inputs[0], call.outputs[0]
    if len(x) < 3 or x[:2] != output[:2]:
        return "copy", [output], {}
    return "interpolate", [x], {"output_size": output[2:], "mode": call.attributes.get("mode", "nearest")}


def _grid_sample(call: Call) -> Converted:
    mode = call.attributes.get("mode", "linear")
    return "grid_sample", list(call.inputs[:2]), {"mode": _GRID_MODES.get(mode, mode)}


def _global_max_pool(call: Call) -> Converted:
    x = call.inputs[0]
    return "max", [x], {"dim": tuple(range(2, len(x))), "keepdim": True}


def _recurrent(kind: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x, attributes = call.inputs[0], call.attributes
        if attributes.get("layout", 0):
            x = (x[1], x[0], x[2])
        return (
            kind,
            [x],
            {
                "hidden_size": attributes["hidden_size"],
                "bidirectional": attributes.get("direction", "forward") == "bidirectional",
                "bias": call.has(3),
            },
        )

    return convert


_COMPARISONS = (
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf"),
    *("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
)

OPERATORS: Mapping[str, Callable[[Call], Converted]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    "Where": _where,
    "GatherElements": _gather_elements,
    "ScatterElements": _scatter,
    "ScatterND": _scatter_slices,
    "TopK": _topk,
    "CumSum": _cumsum,
    **dict.fromkeys(("ArgMax", "ArgMin"), _largest),
    "OneHot": _one_hot,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "GridSample": _grid_sample,
    "GlobalMaxPool": _global_max_pool,
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("rnn"),
}
"""Name of an operator -> conversion to a kind."""
