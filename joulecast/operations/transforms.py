"""Rules of operations that read windows of their input, and of Fourier transforms, interpolation and distances.

A complex tensor has the shape of its real view, with a last dimension of 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InputError
from .rules import Attributes, Product, Shape, Shapes, broadcast, dimension_of, size

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
    """Check the number of spatial dimensions of a shape, and that its channels are a multiple of a divisor."""
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
        spatial, padding = shapes[0][2:], attributes["padding"]
        if padding != "same":  # which PyTorch allows with stride 1 only
            stride = per_dimension(attributes["stride"], dimensions)
            around = per_dimension(0 if padding == "valid" else padding, dimensions)
            spatial = _window_output(spatial, kernel, stride, around, dilation)
        return (shapes[0][0], attributes["out_channels"], *spatial)

    return output


def conv_transpose_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    """Shape rule of a transposed convolution over this number of spatial dimensions."""

    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        check_channels(shapes[0], dimensions, attributes["groups"])
        _check_out_channels(attributes)
        names = ("kernel_size", "stride", "padding", "dilation", "output_padding")
        windows = [per_dimension(attributes[name], dimensions) for name in names]
        spatial = (
            (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
            for n, k, s, p, d, extra in zip(shapes[0][2:], *windows, strict=True)
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


def conv_product(flops: Callable[[Shapes, Attributes, Shape], int]) -> Callable[[Shapes, Attributes, Shape], Product]:
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
        padding = per_dimension(attributes["padding"], dimensions)
        stride = kernel if attributes["stride"] is None else per_dimension(attributes["stride"], dimensions)
        dilation = per_dimension(attributes.get("dilation", 1), dimensions)
        spatial = _window_output(shapes[0][2:], kernel, stride, padding, dilation, attributes["ceil_mode"])
        return (*shapes[0][:2], *spatial)

    return output


def adaptive_pool_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    """Shape rule of pooling to a given output size, in which None keeps the size of a dimension."""

    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        check_channels(shapes[0], dimensions, 1)
        wanted = attributes["output_size"]
        wanted = (None,) * dimensions if wanted is None else per_dimension(wanted, dimensions)
        spatial = (n if want is None else want for n, want in zip(shapes[0][2:], wanted, strict=True))
        return (*shapes[0][:2], *spatial)

    return output


_INTERPOLATION_FLOPS = {"nearest": 0, "linear": 3, "cubic": 10}
"""FLOPs per element along one dimension: "linear" weights two neighbours, "cubic" weights four."""


def _logical(shape: Shape, is_complex: bool) -> Shape:
    """The shape of a tensor as torch has it, where complex elements do not take a dimension of 2."""
    if not is_complex:
        return shape
    if not shape or shape[-1] != 2:
        raise InputError("a complex tensor has a last dimension of 2 here", given=shape, allowed="[..., 2]")
    return shape[:-1]


def _transformed(shapes: Shapes, attributes: Attributes) -> tuple[Shape, tuple[int, ...]]:
    """Shape (as in torch) of the side with all frequencies, and the dimensions that are transformed."""
    x = _logical(shapes[0], attributes["form"] != "r2c")
    given = attributes["dim"]
    dims = tuple(dimension_of(x, dim) for dim in ((given,) if isinstance(given, int) else given))
    if attributes["form"] == "c2r":
        x = tuple(attributes["last_size"] or 2 * (n - 1) if i == dims[-1] else n for i, n in enumerate(x))
    return x, dims


def fft_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """Output shape. A real signal needs half of the frequencies only: the others are their conjugates."""
    full, dims = _transformed(shapes, attributes)
    if attributes["form"] == "c2r":
        return full
    if attributes["form"] == "r2c":
        full = tuple(n // 2 + 1 if i == dims[-1] else n for i, n in enumerate(full))
    return (*full, 2)


def fft_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """5 N log2 N for each complex transform of N points, half of that if one side is real (Cooley and Tukey)."""
    full, dims = _transformed(shapes, attributes)
    points = math.prod(full[dim] for dim in dims)
    flops = 5 * size(full) * math.log2(max(points, 2))
    return round(flops if attributes["form"] == "c2c" else flops / 2)


def fft_passes(shapes: Shapes, attributes: Attributes) -> int:
    """Number of kernels: one for each dimension that is transformed."""
    return len(_transformed(shapes, attributes)[1])


def complex_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The shape that complex inputs broadcast to."""
    return (*broadcast(*(_logical(shape, is_complex=True) for shape in shapes)), 2)


def interpolate_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The shape of the input, with spatial dimensions of `output_size`."""
    x = shapes[0]
    if len(x) < 3:
        raise InputError("interpolation needs spatial dimensions", given=x, allowed="[batch, channels, ...]")
    return (*x[:2], *per_dimension(attributes["output_size"], len(x) - 2))


def interpolate_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """FLOPs of the interpolation along each spatial dimension."""
    return size(output) * (len(output) - 2) * _INTERPOLATION_FLOPS[attributes["mode"]]


def roi_align_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """A small image for each box."""
    x = shapes[0]
    if len(x) != 4:
        raise InputError("boxes are cut out of images", given=x, allowed="[batch, channels, height, width]")
    return (attributes["boxes"], x[1], *per_dimension(attributes["output_size"], 2))


def grid_sample_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """One value per channel at every point of the grid."""
    x, grid = shapes
    if len(x) not in (4, 5) or len(grid) != len(x) or grid[-1] != len(x) - 2 or grid[0] != x[0]:
        raise InputError(
            "this grid does not fit the input",
            given=f"input {x}, grid {grid}",
            allowed="[N, C, H, W] and [N, rows, columns, 2], or the same with depth and 3",
        )
    return (*x[:2], *grid[1:-1])


def cdist_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """[..., P, M] and [..., R, M] give [..., P, R]."""
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-1]:
        raise InputError(
            "these points have different numbers of coordinates",
            given=f"{a} and {b}",
            allowed="[..., P, M] and [..., R, M]",
        )
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-2])


def cdist_product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
    """A matrix product with as many FLOPs. A distance needs three per coordinate, a product needs two."""
    return Product(size(output[:-2]), output[-2], output[-1], max(1, 3 * shapes[0][-1] // 2))


# Rules of recurrent layers: one operation is a call of cuDNN that runs all layers, directions and steps.
#
# The input is [steps, batch, features], also for models with the batch first. Weights are those of PyTorch: for every
# gate, layer and direction a matrix for the input, a matrix for the hidden state, and a bias for each of the two.

# FLOPs per hidden unit and step besides the products. A sigmoid counts 4 and a tanh 6, as in the table of kinds:
# LSTM: 4 sums of two products, 3 sigmoid, 2 tanh, 3 products, 1 sum; GRU: 3 sums, 2 sigmoid, 1 tanh, 3 products, 2 sums
# (h = (1 - z) n + z h); RNN: 1 sum, 1 tanh.
_GATES_AND_FLOPS = {4: 32, 3: 22, 1: 7}


def _directions(attributes: Attributes) -> int:
    return 2 if attributes["bidirectional"] else 1


def _hidden(attributes: Attributes) -> int:
    """Features of the state that one step passes to the next: those of the projection if there is one."""
    size: int = attributes.get("proj_size") or attributes["hidden_size"]
    return size


def recurrent_output(shapes: Shapes, attributes: Attributes) -> Shape:
    """The hidden states of the last layer at every step; those of both directions are concatenated."""
    if len(shapes[0]) != 3:
        raise InputError(
            "the input of a recurrent layer has three dimensions", given=shapes[0], allowed="[steps, batch, features]"
        )
    if attributes.get("proj_size", 0) >= attributes["hidden_size"]:
        raise InputError(
            "a projection is smaller than the hidden state",
            given=f"proj_size={attributes['proj_size']}",
            allowed=f"0 for none, to {attributes['hidden_size'] - 1}",
        )
    return (*shapes[0][:2], _directions(attributes) * _hidden(attributes))


def _layers(shapes: Shapes, attributes: Attributes) -> Iterator[int]:
    """Input features of every layer in every direction."""
    for layer in range(attributes["num_layers"]):
        features = shapes[0][-1] if layer == 0 else _directions(attributes) * _hidden(attributes)
        yield from [features] * _directions(attributes)


def recurrent_parameters(gates: int) -> Callable[[Shapes, Attributes], int]:
    """Parameter rule of a recurrent layer with this number of gates."""

    def parameters(shapes: Shapes, attributes: Attributes) -> int:
        hidden = attributes["hidden_size"]
        biases = 2 if attributes["bias"] else 0
        projection = hidden * attributes.get("proj_size", 0)
        return sum(
            gates * hidden * (features + _hidden(attributes) + biases) + projection
            for features in _layers(shapes, attributes)
        )

    return parameters


def recurrent_flops(gates: int) -> Callable[[Shapes, Attributes, Shape], int]:
    """FLOP rule of a recurrent layer: two matrix products for each step, and the arithmetic of the gates."""

    def flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
        steps, batch, _ = shapes[0]
        hidden, projection = attributes["hidden_size"], attributes.get("proj_size", 0)
        per_unit = 2 * projection + _GATES_AND_FLOPS[gates]
        layers = (2 * gates * (features + _hidden(attributes)) for features in _layers(shapes, attributes))
        return sum(steps * batch * hidden * (products + per_unit) for products in layers)

    return flops


def recurrent_product(gates: int) -> Callable[[Shapes, Attributes, Shape], Product]:
    """A single matrix product with as many FLOPs as the layer: rows of all steps, and the gates as columns."""
    count = recurrent_flops(gates)

    def product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
        rows, columns = shapes[0][0] * shapes[0][1], gates * attributes["hidden_size"]
        return Product(1, rows, columns, max(1, count(shapes, attributes, output) // (2 * rows * columns)))

    return product


def gate_elements(gates: int, shapes: Shapes, attributes: Attributes) -> int:
    """Elements of the gates of all steps, layers and directions. One kernel writes them and another reads them."""
    steps, batch, _ = shapes[0]
    elements: int = steps * batch * gates * attributes["hidden_size"] * attributes["num_layers"]
    return elements * _directions(attributes)
