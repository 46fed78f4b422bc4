"""Shape, FLOP and parameter rules of convolutions and poolings, which move a window over spatial dimensions.

Inputs are [batch, channels, spatial dimensions ...].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import InputError
from .rules import Attributes, Product, Shape, Shapes, size

_INPUT = {
    1: "[batch, channels, length]",
    2: "[batch, channels, height, width]",
    3: "[batch, channels, depth, height, width]",
}


def per_dimension(value: Any, length: int) -> tuple[int, ...]:
    """An attribute such as kernel_size as one integer per spatial dimension."""
    result = (value,) * length if isinstance(value, int) else tuple(value)
    if len(result) != length:
        raise InputError(
            f"an attribute needs {length} values, one per spatial dimension",
            given=value,
            allowed=f"one integer, or a list of {length}",
        )
    return result


def check_channels(shape: Shape, dimensions: int, divisor: int) -> None:
    """Check the number of spatial dimensions of a shape, and that its channels are a multiple of a divisor.

    Raises:
        InputError: One of the two does not hold.
    """
    if len(shape) != dimensions + 2:
        raise InputError(
            f"the input needs {dimensions + 2} dimensions: batch, channels, {dimensions} spatial",
            given=shape,
            allowed=_INPUT[dimensions],
        )
    if shape[1] % divisor:
        raise InputError(
            "the input channels do not divide into the groups",
            given=f"{shape[1]} channels, {divisor} groups",
            allowed=f"a number of channels that is a multiple of {divisor}",
        )


def _check_out_channels(attributes: Attributes) -> None:
    if attributes["out_channels"] % attributes["groups"]:
        raise InputError(
            "the output channels do not divide into the groups",
            given=f"{attributes['out_channels']} channels, {attributes['groups']} groups",
            allowed="out_channels that are a multiple of groups",
        )


def _window_output(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool = False
) -> Shape:
    result = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        if span < 0:
            raise InputError(
                "the kernel is larger than the padded input",
                given=f"input {sizes}, kernel {kernel}, padding {padding}",
                hint="give a larger input, a smaller kernel or more padding",
            )
        steps = -(-span // s) if ceil_mode else span // s
        # A window that starts in the right padding is dropped, as PyTorch does.
        if ceil_mode and steps * s >= n + p:
            steps -= 1
        result.append(steps + 1)
    return tuple(result)


def conv_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    """Shape rule of a convolution over this number of spatial dimensions."""

    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        check_channels(shapes[0], dimensions, attributes["groups"])
        _check_out_channels(attributes)
        kernel = per_dimension(attributes["kernel_size"], dimensions)
        dilation = per_dimension(attributes["dilation"], dimensions)
        sizes = shapes[0][2:]
        padding = attributes["padding"]
        if padding == "same":
            # PyTorch allows "same" with stride 1 only.
            return (shapes[0][0], attributes["out_channels"], *sizes)
        spatial = _window_output(
            sizes,
            kernel,
            per_dimension(attributes["stride"], dimensions),
            per_dimension(0 if padding == "valid" else padding, dimensions),
            dilation,
        )
        return (shapes[0][0], attributes["out_channels"], *spatial)

    return output


def conv_transpose_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    """Shape rule of a transposed convolution over this number of spatial dimensions."""

    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        check_channels(shapes[0], dimensions, attributes["groups"])
        _check_out_channels(attributes)
        spatial = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
            for n, k, s, p, d, extra in zip(
                shapes[0][2:],
                *(
                    per_dimension(attributes[name], dimensions)
                    for name in ("kernel_size", "stride", "padding", "dilation", "output_padding")
                ),
                strict=True,
            )
        )
        return (shapes[0][0], attributes["out_channels"], *spatial)

    return output


def _conv_weights(shapes: Shapes, attributes: Attributes) -> int:
    kernel = math.prod(per_dimension(attributes["kernel_size"], len(shapes[0]) - 2))
    channels: int = attributes["out_channels"] * shapes[0][1] // attributes["groups"]
    return channels * kernel


def conv_parameters(shapes: Shapes, attributes: Attributes) -> int:
    """Weights and bias of a convolution, transposed or not."""
    bias: int = attributes["out_channels"] if attributes["bias"] else 0
    return _conv_weights(shapes, attributes) + bias


def conv_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """A multiply-add per weight and output position."""
    return 2 * output[0] * math.prod(output[2:]) * _conv_weights(shapes, attributes)


def conv_transpose_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """A multiply-add per weight and input position."""
    return 2 * output[0] * math.prod(shapes[0][2:]) * _conv_weights(shapes, attributes)


def conv_product(
    flops: Callable[[Shapes, Attributes, Shape], int],
) -> Callable[[Shapes, Attributes, Shape], Product]:
    """A convolution as a matrix product for each group: output positions as rows, output channels as columns."""

    def product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
        groups = attributes["groups"]
        reduction = flops(shapes, attributes, output) // (2 * size(output))
        # At least 1, in arithmetic that holds for arrays of sizes, too.
        return Product(groups, output[0] * math.prod(output[2:]), output[1] // groups, reduction + (reduction == 0))

    return product


def pool_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    """Shape rule of pooling over this number of spatial dimensions."""

    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        check_channels(shapes[0], dimensions, 1)
        kernel = per_dimension(attributes["kernel_size"], dimensions)
        stride = kernel if attributes["stride"] is None else per_dimension(attributes["stride"], dimensions)
        spatial = _window_output(
            shapes[0][2:],
            kernel,
            stride,
            per_dimension(attributes["padding"], dimensions),
            per_dimension(attributes.get("dilation", 1), dimensions),
            attributes["ceil_mode"],
        )
        return (*shapes[0][:2], *spatial)

    return output


def pool_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """One operation per output element and position of the window."""
    return size(output) * math.prod(per_dimension(attributes["kernel_size"], len(shapes[0]) - 2))


def adaptive_pool_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    """Shape rule of pooling to a given output size, in which None keeps the size of a dimension."""

    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        check_channels(shapes[0], dimensions, 1)
        wanted = attributes["output_size"]
        wanted = (None,) * dimensions if wanted is None else per_dimension(wanted, dimensions)
        spatial = (n if want is None else want for n, want in zip(shapes[0][2:], wanted, strict=True))
        return (*shapes[0][:2], *spatial)

    return output
