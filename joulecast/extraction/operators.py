"""The whitelist in terms of PyTorch: which of its operators is which kind of operation.

To find a kind in models, add a row to OPERATORS. An operator that stands in none of the tables and that PyTorch
defines by others is broken down into those; what is left then is reported as dropped, never lost in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..operations.kinds import KINDS
from ..operations.rules import Shape, size

Bound = Mapping[str, Any]
"""Arguments of an operator call by their names in its schema; tensors as they are."""

Converted = tuple[str, list[Shape], dict[str, Any]] | None
"""Kind, input shapes and attributes; None where nothing is done."""

WHITELIST: frozenset[str] = frozenset(KINDS)
"""The kinds that extraction keeps unless told otherwise: all of them."""


def _shape(tensor: Any) -> Shape:
    return tuple(tensor.shape)


def _first(bound: Bound) -> Any:
    # Its name differs between an operator and its in-place form.
    return next(iter(bound.values()))


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape")


def _convolution(transposed: bool) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        x, weight = bound["input"], _shape(bound["weight"])
        dimensions = len(weight) - 2
        groups = bound["groups"]
        attributes: dict[str, Any] = {
            "out_channels": weight[1] * groups if transposed else weight[0],
            "kernel_size": weight[2:],
            "bias": bound["bias"] is not None,
            **{
                name: _per_dimension(bound[name], dimensions)
                for name in ("stride", "padding", "dilation", *(("output_padding",) if transposed else ()))
            },
            "groups": groups,
        }
        name = "conv_transpose" if transposed else "conv"
        return f"{name}{dimensions}d", [_shape(x)], attributes

    return convert


def _any_convolution(bound: Bound) -> Converted:
    return _convolution(bound["transposed"])(bound)


def _per_dimension(value: Any, dimensions: int) -> Any:
    if isinstance(value, str):
        return value
    return tuple(value) * dimensions if len(value) == 1 else tuple(value)


def _linear(bound: Bound) -> Converted:
    weight = _shape(bound["weight"])
    return "linear", [_shape(bound["input"])], {"out_features": weight[0], "bias": bound["bias"] is not None}


def _addmm(bound: Bound) -> Converted:
    # A product with a bias is a linear layer, whatever a model calls it (GPT-2's Conv1D).
    return "linear", [_shape(bound["mat1"])], {"out_features": _shape(bound["mat2"])[1], "bias": True}


def _scaled_product(bound: Bound) -> Converted:
    """A product of quantized matrices: scales of single numbers or of rows, or of blocks along each row."""
    scale = _shape(bound["scale_a"])
    attributes = {
        "out_features": _shape(bound["mat2"])[1],
        "bias": bound["bias"] is not None,
        "block_scaled": len(scale) == 2 and scale[1] > 1,
    }
    return "linear", [_shape(bound["self"])], attributes


def _matmul(first: str, second: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        a, b = _shape(bound[first]), _shape(bound[second])
        a = (1, *a) if len(a) == 1 else a
        b = (*b, 1) if len(b) == 1 else b
        return "matmul", [a, b], {}

    return convert


def _attention(bound: Bound) -> Converted:
    return "attention", [_shape(bound[name]) for name in ("query", "key", "value")], {"causal": bound["is_causal"]}


def _affine(kind: str, **attributes: str) -> Callable[[Bound], Converted]:
    """A normalization; `attributes` maps its attributes to the operator's arguments."""

    def convert(bound: Bound) -> Converted:
        values = {name: _plain(bound[argument]) for name, argument in attributes.items()}
        return kind, [_shape(bound["input"])], {**values, "affine": bound["weight"] is not None}

    return convert


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _unary(kind: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        return kind, [_shape(_first(bound))], {}

    return convert


def _binary(kind: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        operands = [value for value in list(bound.values())[:2] if _is_tensor(value)]
        # A tensor of one element works as a scalar does.
        large = [_shape(value) for value in operands if size(_shape(value)) > 1] or [_shape(operands[0])]
        return kind, [shape if shape else (1,) for shape in large], {}

    return convert


def _addcmul(bound: Bound) -> Converted:
    # One kernel: input + first * second. Where one of them is as large as the output, the others mostly are not.
    shapes = sorted((_shape(bound[name]) for name in ("self", "tensor1", "tensor2")), key=size)
    return "mul", [_shape(bound["<output>"]) or (1,), shapes[-2] or (1,)], {}


def _dropout(bound: Bound) -> Converted:
    if not bound["train"] or bound["p"] == 0:
        return None
    return "dropout", [_shape(_first(bound))], {"p": float(bound["p"])}


def _pool(kind: str, *names: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        attributes = {name: _plain(bound[name]) for name in names}
        attributes["stride"] = attributes["stride"] or attributes["kernel_size"]
        return kind, [_shape(bound["self"])], attributes

    return convert


def _adaptive_pool(bound: Bound) -> Converted:
    return "adaptive_avg_pool2d", [_shape(bound["self"])], {"output_size": _plain(bound["output_size"])}


def _reduction(kind: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        dim = _plain(bound.get("dim"))
        return kind, [_shape(bound["self"])], {"dim": dim or None, "keepdim": bound.get("keepdim", False)}

    return convert


def _softmax(bound: Bound) -> Converted:
    return "softmax", [_shape(bound["self"])], {"dim": bound["dim"]}


def _cat(bound: Bound) -> Converted:
    # PyTorch skips legacy empty tensors here, and so do we.
    return "cat", [_shape(t) for t in bound["tensors"] if t.numel()], {"dim": bound["dim"]}


def _stack(bound: Bound) -> Converted:
    shapes = [_shape(t) for t in bound["tensors"]]
    dim = bound["dim"] % (len(shapes[0]) + 1)
    return "cat", [(*s[:dim], 1, *s[dim:]) for s in shapes], {"dim": dim}


def _embedding(bound: Bound) -> Converted:
    rows, columns = _shape(bound["weight"])
    return "embedding", [_shape(bound["indices"])], {"num_embeddings": rows, "embedding_dim": columns}


def _copy(bound: Bound) -> Converted:
    return "copy", [_shape(bound["<output>"]) or (1,)], {}


OPERATORS: Mapping[str, Callable[[Bound], Converted]] = {
    **{f"conv{n}d": _convolution(False) for n in (1, 2, 3)},
    "conv_transpose1d": _convolution(True),
    "conv_transpose2d": _convolution(True),
    "conv_transpose3d": _convolution(True),
    "linear": _linear,
    "addmm": _addmm,
    "_scaled_mm": _scaled_product,
    # Not "matmul": broken down, it shows the copies that make its operands fit for a batched product.
    "mm": _matmul("self", "mat2"),
    "bmm": _matmul("self", "mat2"),
    "baddbmm": _matmul("batch1", "batch2"),
    "scaled_dot_product_attention": _attention,
    "batch_norm": _affine("batch_norm"),
    "group_norm": _affine("group_norm", num_groups="num_groups"),
    "layer_norm": _affine("layer_norm", normalized_shape="normalized_shape"),
    "rms_norm": _affine("rms_norm", normalized_shape="normalized_shape"),
    **{kind: _unary(kind) for kind in KINDS if KINDS[kind].family == "elementwise" and KINDS[kind].inputs == (1, 1)},
    "clamp_min": _unary("clamp"),
    "clamp_max": _unary("clamp"),
    **{kind: _binary(kind) for kind in ("add", "sub", "mul", "div", "pow")},
    "rsub": _binary("sub"),
    "addcmul": _addcmul,
    "softmax": _softmax,
    "dropout": _dropout,  # (after the elementwise kinds, of which it is one)
    "max_pool2d": _pool("max_pool2d", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "avg_pool2d": _pool("avg_pool2d", "kernel_size", "stride", "padding", "ceil_mode"),
    "adaptive_avg_pool2d": _adaptive_pool,
    "mean": _reduction("mean"),
    "sum": _reduction("sum"),
    "linalg_vector_norm": _reduction("norm"),
    "cat": _cat,
    "stack": _stack,
    "embedding": _embedding,
    **dict.fromkeys(
        ("clone", "copy", "_to_copy", "roll", "flip", "constant_pad_nd", "index", "index_select", "gather", "repeat"),
        _copy,
    ),
    # One kernel that reads about what it writes, or less.
    **dict.fromkeys(
        (
            *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
            *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
            *("_unsafe_index", "im2col", "col2im", "pixel_shuffle", "pixel_unshuffle"),
        ),
        _copy,
    ),
    # As exported programs name them.
    "convolution": _any_convolution,
    "native_layer_norm": _affine("layer_norm", normalized_shape="normalized_shape"),
    "native_group_norm": _affine("group_norm", num_groups="group"),
    "native_batch_norm": _affine("batch_norm"),
    "_native_batch_norm_legit_no_training": _affine("batch_norm"),
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "log_softmax": _softmax,
    "max_pool2d_with_indices": _pool("max_pool2d", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "_adaptive_avg_pool2d": _adaptive_pool,
    "native_dropout": _dropout,
}
"""Operator name without overload and in-place underscore -> conversion to a kind."""

REVISIONS: Mapping[str, int] = {}
"""Operator -> revision of its row, 1 where it is left out. Raise it when the row gives other operations than before:
cached networks and templates of models that run the operator are outdated then, and no others."""

QUANTIZED_PRODUCTS: frozenset[str] = frozenset({"_scaled_mm"})
"""Operators that run in the type of what they read, and write a wider one."""

CONTIGUOUS_INPUT: frozenset[str] = frozenset({"linear", "layer_norm", "group_norm", "rms_norm"})
"""Operators that first copy an input which does not lie in memory in the order of its dimensions."""

SAVES_INPUT: frozenset[str] = frozenset({"silu", "hardswish", "hardsigmoid", "hardtanh", "mish"})
"""Operators whose backward needs their input: in place, training copies it first."""

FREE: frozenset[str] = frozenset(
    """
    alias as_strided detach expand permute select slice split split_with_sizes squeeze t transpose unbind unfold
    unsqueeze view _unsafe_view _reshape_alias view_as_real view_as_complex lift_fresh
    empty empty_like empty_strided new_empty new_empty_strided scalar_tensor is_same_size
    sym_size sym_stride sym_numel sym_storage_offset
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
"""Operators that launch no kernel: views and allocations."""
