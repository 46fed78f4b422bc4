"""The table of ONNX operators: which operator is converted to which kind of operation.

The conversion looks only at shapes. ONNX has no views, so operators that PyTorch performs by strides (Transpose, Slice,
Split) create a new tensor here. Definitions: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...operations.rules import Shape, size
from ..conversions import Converted


@dataclass(frozen=True)
class Call:
    """A node of a graph.

    The shape () stands for an input that is left out. `weights` says which inputs are parameters of the model, and
    `numbers` are the values of small constant inputs by their position.
    """

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    weights: tuple[bool, ...]
    numbers: Mapping[int, tuple[float, ...]]

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return len(self.inputs) > position and self.inputs[position] != ()


def _operation(
    kind: str, inputs: int = 1, **attributes: tuple[str, Any] | Callable[[Call], Any]
) -> Callable[[Call], Converted]:
    """An operation on the first inputs of a node.

    `attributes` are those of the operation: the name of an attribute of the node and its default, or a function of the
    node.
    """

    def convert(call: Call) -> Converted:
        values = {
            name: call.attributes.get(*how) if isinstance(how, tuple) else how(call) for name, how in attributes.items()
        }
        return kind, list(call.inputs[:inputs]), values

    return convert


def _element_by_element(kind: str) -> Callable[[Call], Converted]:
    """A function of the first two inputs, without those of single elements, which work as scalars."""
    return lambda call: (kind, [shape for shape in call.inputs[:2] if size(shape) > 1] or [(1,)], {})


def _window(call: Call, dimensions: int) -> tuple[Shape, dict[str, Any]]:
    """Input shape, stride, padding and dilation. Padding that differs between the sides is added to the input shape."""
    x = call.inputs[0]
    attributes = call.attributes
    stride = tuple(attributes.get("strides", (1,) * dimensions))
    dilation = tuple(attributes.get("dilations", (1,) * dimensions))
    pads = tuple(attributes.get("pads", (0,) * 2 * dimensions))
    kernel = tuple(attributes.get("kernel_shape", ()) or call.inputs[1][2:])
    if attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((out - 1) * s + d * (k - 1) + 1 - n, 0)
            for n, out, s, d, k in zip(x[2:], call.outputs[0][2:], stride, dilation, kernel, strict=True)
        ]
        pads = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
    before, after = pads[:dimensions], pads[dimensions:]
    if before != after:
        x = (*x[:2], *(n + low + high for n, low, high in zip(x[2:], before, after, strict=True)))
        before = (0,) * dimensions
    return x, {"kernel_size": kernel, "stride": stride, "padding": before, "dilation": dilation}


def _convolution(call: Call) -> Converted:
    weight = call.inputs[1]
    x, attributes = _window(call, len(weight) - 2)
    more = {"out_channels": weight[0], "groups": call.attributes.get("group", 1), "bias": call.has(2)}
    return f"conv{len(weight) - 2}d", [x], {**attributes, **more}


def _transposed(call: Call) -> Converted:
    weight, groups = call.inputs[1], call.attributes.get("group", 1)
    dimensions = len(weight) - 2
    _, attributes = _window(call, dimensions)
    extra = tuple(call.attributes.get("output_padding", (0,) * dimensions))
    more = {"out_channels": weight[1] * groups, "groups": groups, "bias": call.has(2), "output_padding": extra}
    return f"conv_transpose{dimensions}d", [call.inputs[0]], {**attributes, **more}


def _pool(kind: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x, attributes = _window(call, len(call.inputs[0]) - 2)
        if len(x) not in (4, 5):
            raise KeyError(kind)
        if kind == "avg_pool":
            del attributes["dilation"]
        return f"{kind}{len(x) - 2}d", [x], {**attributes, "ceil_mode": bool(call.attributes.get("ceil_mode", 0))}

    return convert


def _gemm(call: Call) -> Converted:
    rows, columns = call.inputs[:2]
    rows = rows[::-1] if call.attributes.get("transA", 0) else rows
    columns = columns[::-1] if call.attributes.get("transB", 0) else columns
    return "linear", [rows], {"out_features": columns[1], "bias": call.has(2)}


def _matmul(call: Call) -> Converted:
    a, b = call.inputs[:2]
    if call.weights[1] and len(b) == 2:
        # A third input is the bias that follows.
        return "linear", [a], {"out_features": b[1], "bias": call.has(2)}
    return "matmul", [a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)], {}


def _attention(call: Call) -> Converted:
    q, k, v = call.inputs[:3]
    if len(q) == 3:
        heads, shared = call.attributes["q_num_heads"], call.attributes["kv_num_heads"]
        q, k, v = ((s[0], n, s[1], s[2] // n) for s, n in ((q, heads), (k, shared), (v, shared)))
    return "attention", [q, k, v], {"causal": bool(call.attributes.get("is_causal", 0))}


def _recurrent(kind: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x, attributes = call.inputs[0], call.attributes
        if attributes.get("layout", 0):
            x = (x[1], x[0], x[2])
        both = attributes.get("direction", "forward") == "bidirectional"
        return kind, [x], {"hidden_size": attributes["hidden_size"], "bidirectional": both, "bias": call.has(3)}

    return convert


def _clip(call: Call) -> Converted:
    six = call.numbers.get(1) == (0.0,) and call.numbers.get(2) == (6.0,)
    return "relu6" if six else "clamp", [call.inputs[0]], {}


def _keepdim(call: Call) -> bool:
    return bool(call.attributes.get("keepdims", 1))


def _reduction(kind: str) -> Callable[[Call], Converted]:
    return _operation(
        kind,
        dim=lambda call: call.attributes.get("axes") or tuple(map(int, call.numbers.get(1, ()))) or None,
        keepdim=_keepdim,
    )


# Over all dimensions behind batch and channels.
_SPATIAL: Mapping[str, Any] = {
    "dim": lambda call: tuple(range(2, len(call.inputs[0]))),
    "keepdim": lambda call: True,
}


def _global_mean(call: Call) -> Converted:
    if len(call.inputs[0]) == 4:
        return "adaptive_avg_pool2d", [call.inputs[0]], {"output_size": 1}
    return _operation("mean", **_SPATIAL)(call)


def _gather(call: Call) -> Converted:
    table, indices = call.inputs[:2]
    if call.weights[0] and len(table) == 2 and call.attributes.get("axis", 0) == 0 and indices:
        return "embedding", [indices], {"num_embeddings": table[0], "embedding_dim": table[1]}
    return _operation("index_select", 2, dim=("axis", 0))(call)


def _scatter(slices: bool) -> Callable[[Call], Converted]:
    """Updates of single elements, or of slices, whose last index dimension says where they begin."""

    def convert(call: Call) -> Converted:
        x, places, updates = call.inputs[:3]
        accumulates = call.attributes.get("reduction", "none") != "none"
        return "scatter", [x, updates, places[:-1] if slices else updates], {"accumulate": accumulates}

    return convert


def _resize(call: Call) -> Converted:
    x, output = call.inputs[0], call.outputs[0]
    if len(x) < 3 or x[:2] != output[:2]:
        return "copy", [output], {}
    return "interpolate", [x], {"output_size": output[2:], "mode": call.attributes.get("mode", "nearest")}


def _grid_mode(call: Call) -> str:
    mode: str = call.attributes.get("mode", "linear")
    return {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)  # names until opset 19


_NAMED_AS_KINDS = (
    *("Relu", "PRelu", "Elu", "Gelu", "Mish", "Softplus", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"),
    *("Exp", "Log", "Sqrt", "Abs", "Neg", "Sin", "Cos"),
)
# Kind -> operators that are of this kind under another name, or cost about as much.
_ALIKE: Mapping[str, tuple[str, ...]] = {
    "leaky_relu": ("LeakyRelu",),
    "silu": ("Swish",),
    "div": ("Reciprocal",),
    "neg": ("Floor", "Ceil", "Round", "Sign"),
    "hardtanh": ("Shrink", "ThresholdedRelu"),
    "exp": ("Sinh", "Cosh"),
    "sin": ("Tan",),
    "tanh": ("Erf", "Atan", "Asin", "Acos", "Atanh", "Asinh", "Acosh"),
    "elu": ("Celu", "Selu"),
    "softplus": ("Softsign",),
    "copy": ("Split",),  # all parts together
}
_COMPARISONS = (
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf"),
    *("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
)
_COPIES = (
    *("Transpose", "Slice", "Expand", "Tile", "Pad", "Cast", "GatherND", "Trilu"),
    *("DepthToSpace", "SpaceToDepth", "ReverseSequence"),
)


def _rows(kind: str) -> Callable[[Call], Converted]:
    return _operation(kind, normalized_shape=lambda call: call.inputs[0][call.attributes.get("axis", -1) :])


_GROUPS = _operation("group_norm", num_groups=lambda call: call.attributes.get("num_groups", call.inputs[0][1]))

OPERATORS: Mapping[str, Callable[[Call], Converted]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Attention": _attention,
    "BatchNormalization": _operation("batch_norm"),
    "LayerNormalization": _rows("layer_norm"),
    "RMSNormalization": _rows("rms_norm"),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), _GROUPS),
    **{name: _operation(name.lower()) for name in _NAMED_AS_KINDS},
    **{name: _operation(kind) for kind, names in _ALIKE.items() for name in names},
    "Clip": _clip,
    **{name: _element_by_element(name.lower()) for name in ("Add", "Sub", "Mul", "Div", "Pow")},
    **dict.fromkeys(("Max", "Min", "Mod"), _element_by_element("mul")),
    **dict.fromkeys(_COMPARISONS, _element_by_element("compare")),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _operation("softmax", dim=("axis", -1))),
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "GlobalAveragePool": _global_mean,
    "GlobalMaxPool": _operation("max", **_SPATIAL),
    "ReduceMean": _reduction("mean"),
    "ReduceSum": _reduction("sum"),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), _reduction("norm")),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _reduction("max")),
    "ReduceProd": _reduction("prod"),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), _reduction("logsumexp")),
    **dict.fromkeys(("ArgMax", "ArgMin"), _operation("argmax", dim=("axis", 0), keepdim=_keepdim)),
    "Concat": lambda call: ("cat", [x for x in call.inputs if size(x)], {"dim": call.attributes["axis"]}),
    "Gather": _gather,
    "GatherElements": _operation("gather", 2, dim=("axis", 0)),
    "ScatterElements": _scatter(slices=False),
    "ScatterND": _scatter(slices=True),
    "Where": lambda call: ("where", [call.inputs[0], *(x for x in call.inputs[1:3] if size(x) > 1)], {}),
    "TopK": _operation("topk", k=lambda call: call.outputs[0][call.attributes.get("axis", -1)], dim=("axis", -1)),
    "CumSum": _operation("cumsum", dim=lambda call: int(call.numbers[1][0])),
    "OneHot": _operation("one_hot", num_classes=lambda call: size(call.outputs[0]) // size(call.inputs[0])),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "GridSample": _operation("grid_sample", 2, mode=_grid_mode),
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("rnn"),
    **dict.fromkeys(_COPIES, lambda call: ("copy", [call.outputs[0]], {})),
}

FREE: frozenset[str] = frozenset(
    {"Constant", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"}
)
"""Operators that launch no kernel: views, and values that are known before the model runs."""
