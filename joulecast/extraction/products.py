"""Conversion of PyTorch's operators for convolutions, matrix products and attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .calls import Bound, Converted, shape_of


def convolution(transposed: bool) -> Callable[[Bound], Converted]:
    """A convolution of any dimension, or a transposed one."""

    def convert(bound: Bound) -> Converted:
        x, weight = bound["input"], shape_of(bound["weight"])
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
        return f"{name}{dimensions}d", [shape_of(x)], attributes

    return convert


def any_convolution(bound: Bound) -> Converted:
    """A convolution of an exported program, in which an argument says whether it is transposed."""
    return convolution(bound["transposed"])(bound)


def _per_dimension(value: Any, dimensions: int) -> Any:
    if isinstance(value, str):
        return value
    return tuple(value) * dimensions if len(value) == 1 else tuple(value)


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


def attention(bound: Bound) -> Converted:
    """Scaled dot-product attention."""
    return "attention", [shape_of(bound[name]) for name in ("query", "key", "value")], {"causal": bound["is_causal"]}
