"""The table of ONNX operators: which operator is converted to which kind of operation.

The conversion looks only at shapes. ONNX has no views, so operators that PyTorch performs by strides (Transpose, Slice,
Split) create a new tensor here. Definitions: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...operations.rules import Shape, size
from . import onnx_tensors
from .onnx_tensors import Call, Converted


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
    causal = bool(call.attributes.get("is_causal", 0))
    if len(q) == 3:
        heads, shared = call.attributes["q_num_heads"], call.attributes["kv_num_heads"]
        q, k, v = ((s[0], n, s[1], s[2] // n) for s, n in ((q, heads), (k, shared), (v, shared)))
    return "attention", [q, k, v], {"causal": causal}


def _rows(kind: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x = call.inputs[0]
        return kind, [x], {"normalized_shape": x[call.attributes.get("axis", -1) :], "affine": True}

    return convert


def _group_norm(call: Call) -> Converted:
    x = call.inputs[0]
    return "group_norm", [x], {"num_groups": call.attributes.get("num_groups", x[1]), "affine": True}


def _unary(kind: str) -> Callable[[Call], Converted]:
    return lambda call: (kind, [call.inputs[0]], {})


def _binary(kind: str) -> Callable[[Call], Converted]:
    return lambda call: (kind, onnx_tensors.large(call.inputs[:2]), {})


def _clip(call: Call) -> Converted:
    six = call.numbers.get(1) == (0.0,) and call.numbers.get(2) == (6.0,)
    return "relu6" if six else "clamp", [call.inputs[0]], {}


def _pool(kind: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x, attributes = _window(call, len(call.inputs[0]) - 2)
        if len(x) not in (4, 5):
            raise KeyError(kind)
        if kind == "avg_pool":
            del attributes["dilation"]
        return f"{kind}{len(x) - 2}d", [x], {**attributes, "ceil_mode": bool(call.attributes.get("ceil_mode", 0))}

    return convert


def _global_pool(call: Call) -> Converted:
    x = call.inputs[0]
    if len(x) == 4:
        return "adaptive_avg_pool2d", [x], {"output_size": 1}
    return "mean", [x], onnx_tensors.spatial(x)


def _reduction(kind: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        axes = call.attributes.get("axes") or tuple(map(int, call.numbers.get(1, ()))) or None
        return kind, [call.inputs[0]], {"dim": axes, "keepdim": bool(call.attributes.get("keepdims", 1))}

    return convert


def _gather(call: Call) -> Converted:
    table, indices = call.inputs[:2]
    if call.weights[0] and len(table) == 2 and call.attributes.get("axis", 0) == 0 and indices:
        return "embedding", [indices], {"num_embeddings": table[0], "embedding_dim": table[1]}
    return onnx_tensors.along("index_select", 2)(call)


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
}

OPERATORS: Mapping[str, Callable[[Call], Converted]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Attention": _attention,
    "BatchNormalization": lambda call: ("batch_norm", [call.inputs[0]], {"affine": True}),
    "LayerNormalization": _rows("layer_norm"),
    "RMSNormalization": _rows("rms_norm"),
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
    **{name: _unary(name.lower()) for name in _NAMED_AS_KINDS},
    **{name: _unary(kind) for kind, names in _ALIKE.items() for name in names},
    "Clip": _clip,
    **{name: _binary(name.lower()) for name in ("Add", "Sub", "Mul", "Div", "Pow")},
    **dict.fromkeys(
        ("Softmax", "LogSoftmax"), lambda call: ("softmax", [call.inputs[0]], {"dim": call.attributes.get("axis", -1)})
    ),
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "GlobalAveragePool": _global_pool,
    "ReduceMean": _reduction("mean"),
    "ReduceSum": _reduction("sum"),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), _reduction("norm")),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _reduction("max")),
    "ReduceProd": _reduction("prod"),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), _reduction("logsumexp")),
    **dict.fromkeys(("Max", "Min", "Mod"), _binary("mul")),
    "Concat": lambda call: ("cat", [x for x in call.inputs if size(x)], {"dim": call.attributes["axis"]}),
    "Gather": _gather,
    "Split": lambda call: ("copy", [call.inputs[0]], {}),  # all parts together
    **onnx_tensors.OPERATORS,
    **dict.fromkeys(
        (
            *("Transpose", "Slice", "Expand", "Tile", "Pad", "Cast", "GatherND", "Trilu"),
            *("DepthToSpace", "SpaceToDepth", "ReverseSequence"),
        ),
        lambda call: ("copy", [call.outputs[0] or (1,)], {}),
    ),
}

FREE: frozenset[str] = frozenset(
    {"Constant", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"}
)
"""Operators that launch no kernel: views, and values that are known before the model runs."""
