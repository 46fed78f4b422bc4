"""Kinds that read windows of their input, or resize it: convolutions, pooling, interpolation and samples of images.

A rule takes the input shapes `x` and the attributes `a`, and the output shape if it is given one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from ..errors import InputError
from .attributes import COUNT, FLAG, OUTPUT_SIZE, Attribute, either, integer, one_of, sizes
from .kind import INDEX_BYTES, Counted, Kind, Storage, plain, saves_its_output
from .products import GEMM_PARTIAL, GEMM_TRAINING
from .rules import Attributes, Product, Shape, Shapes, per_dimension, per_input_element, require_multiple, size

_IMAGES = {
    1: "[batch, channels, length]",
    2: "[batch, channels, height, width]",
    3: "[batch, channels, depth, height, width]",
}


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


def _check_groups(x: Shapes, a: Attributes) -> None:
    require_multiple("the input channels of groups", x[0][1], a["groups"])
    require_multiple("the output channels of groups", a["out_channels"], a["groups"])


def _conv_output(dimensions: int, x: Shapes, a: Attributes) -> Shape:
    _check_groups(x, a)
    kernel, dilation = per_dimension(a["kernel_size"], dimensions), per_dimension(a["dilation"], dimensions)
    spatial, padding = x[0][2:], a["padding"]
    if padding != "same":  # which PyTorch allows with stride 1 only
        stride = per_dimension(a["stride"], dimensions)
        around = per_dimension(0 if padding == "valid" else padding, dimensions)
        spatial = _window_output(spatial, kernel, stride, around, dilation)
    return (x[0][0], a["out_channels"], *spatial)


def _transposed_output(dimensions: int, x: Shapes, a: Attributes) -> Shape:
    _check_groups(x, a)
    names = ("kernel_size", "stride", "padding", "dilation", "output_padding")
    windows = [per_dimension(a[name], dimensions) for name in names]
    spatial = (
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in zip(x[0][2:], *windows, strict=True)
    )
    return (x[0][0], a["out_channels"], *spatial)


def _conv_weights(x: Shapes, a: Attributes) -> int:
    kernel = math.prod(per_dimension(a["kernel_size"], len(x[0]) - 2))
    channels: int = a["out_channels"] * x[0][1] // a["groups"]
    return channels * kernel


def _conv_product(flops: Callable[[Shapes, Attributes, Shape], int], x: Shapes, a: Attributes, out: Shape) -> Product:
    """A convolution as a matrix product for each group: output positions as rows, output channels as columns."""
    reduction = flops(x, a, out) // (2 * size(out))
    # At least 1, in arithmetic that holds for arrays of sizes, too.
    return Product(a["groups"], out[0] * math.prod(out[2:]), out[1] // a["groups"], reduction + (reduction == 0))


def _conv_storage(o: Counted) -> Storage:
    """A gradient reads that of the output and writes that of input or weights."""
    stored = plain(o)
    match o.attributes["direction"]:
        case "input_gradient":
            return stored._replace(inputs=stored.output, output=stored.inputs)
        case "weight_gradient":
            return Storage(stored.inputs + stored.output, stored.parameters)
        case _:
            return stored


def _convolution(dimensions: int, *, transposed: bool = False) -> Kind:
    """A convolution over this number of spatial dimensions, with a multiply-add per weight and position.

    The positions are those of the output, or if it is transposed those of the input.
    """
    further = {"output_padding": Attribute(sizes(0), 0)} if transposed else {}

    def flops(x: Shapes, a: Attributes, out: Shape) -> int:
        return 2 * out[0] * math.prod((x[0] if transposed else out)[2:]) * _conv_weights(x, a)

    return Kind(
        family="convolution",
        takes=_IMAGES[dimensions],
        attributes={
            "out_channels": Attribute(COUNT),
            "kernel_size": Attribute(sizes(1)),
            "stride": Attribute(sizes(1), 1),
            "padding": Attribute(sizes(0) if transposed else either(sizes(0), one_of("same", "valid")), 0),
            "dilation": Attribute(sizes(1), 1),
            "groups": Attribute(COUNT, 1),
            "bias": Attribute(FLAG, True),
            # A single kernel: the forward or one of the two gradients. An operation of training stands for all three.
            "direction": Attribute(one_of("forward", "input_gradient", "weight_gradient"), "forward", refinement=True),
            **further,
        },
        output=partial(_transposed_output if transposed else _conv_output, dimensions),
        flops=flops,
        parameters=lambda x, a: _conv_weights(x, a) + (a["out_channels"] if a["bias"] else 0),
        storage=_conv_storage,
        tensor_cores=True,
        tf32_by_default=True,
        product=partial(_conv_product, flops),
        partial=GEMM_PARTIAL,
        spatial=dimensions,
        transforms=dimensions == 2 and not transposed,
        **GEMM_TRAINING,
    )


def _pool_output(dimensions: int, x: Shapes, a: Attributes) -> Shape:
    kernel, padding = per_dimension(a["kernel_size"], dimensions), per_dimension(a["padding"], dimensions)
    stride = kernel if a["stride"] is None else per_dimension(a["stride"], dimensions)
    dilation = per_dimension(a.get("dilation", 1), dimensions)
    return (*x[0][:2], *_window_output(x[0][2:], kernel, stride, padding, dilation, a["ceil_mode"]))


def _saves_places(o: Counted) -> float:
    """Bytes of the output, and of the index of each maximum."""
    return saves_its_output(o) + INDEX_BYTES * size(o.output_shape)


def _pooling(dimensions: int, *, dilated: bool = False, saved: Callable[[Counted], float] = saves_its_output) -> Kind:
    """Pooling with a window over this number of spatial dimensions."""
    further = {"dilation": Attribute(sizes(1), 1)} if dilated else {}
    return Kind(
        family="pooling",
        takes=_IMAGES[dimensions],
        attributes={
            "kernel_size": Attribute(sizes(1)),
            "stride": Attribute(sizes(1).or_none(), None),
            "padding": Attribute(sizes(0), 0),
            **further,
            "ceil_mode": Attribute(FLAG, False),
        },
        output=partial(_pool_output, dimensions),
        # One operation per output element and position of the window.
        flops=lambda x, a, out: size(out) * math.prod(per_dimension(a["kernel_size"], dimensions)),
        training="x 2y -> x y w",
        spatial=dimensions,
        saved=saved,
    )


def _adaptive_output(dimensions: int, x: Shapes, a: Attributes) -> Shape:
    """Pooling to a given output size, in which None keeps the size of a dimension."""
    wanted = (None,) * dimensions if a["output_size"] is None else per_dimension(a["output_size"], dimensions)
    return (*x[0][:2], *(n if want is None else want for n, want in zip(x[0][2:], wanted, strict=True)))


def _adaptive_pooling(dimensions: int, *, saved: Callable[[Counted], float] = saves_its_output) -> Kind:
    return Kind(
        family="pooling",
        takes=_IMAGES[dimensions],
        attributes={"output_size": Attribute(OUTPUT_SIZE, 1)},
        output=partial(_adaptive_output, dimensions),
        flops=per_input_element(1),
        training="x y -> x y w",
        spatial=dimensions,
        saved=saved,
    )


CONVOLUTIONS: Mapping[str, Kind] = {
    **{f"conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, transposed=True) for n in (1, 2, 3)},
}

POOLING: Mapping[str, Kind] = {
    "max_pool2d": _pooling(2, dilated=True, saved=_saves_places),
    "avg_pool2d": _pooling(2),
    "adaptive_avg_pool2d": _adaptive_pooling(2),
    "max_pool3d": _pooling(3, dilated=True, saved=_saves_places),
    "avg_pool3d": _pooling(3),
    "adaptive_avg_pool3d": _adaptive_pooling(3),
    "adaptive_max_pool2d": _adaptive_pooling(2, saved=_saves_places),
}


def _interpolate_flops(x: Shapes, a: Attributes, out: Shape) -> int:
    """FLOPs along each spatial dimension: "linear" weights two neighbours of an element, "cubic" weights four."""
    return size(out) * (len(out) - 2) * {"nearest": 0, "linear": 3, "cubic": 10}[a["mode"]]


SAMPLING: Mapping[str, Kind] = {
    "interpolate": Kind(
        family="pooling",
        takes="[batch, channels, length, ...]",
        attributes={
            "output_size": Attribute(sizes(1)),
            "mode": Attribute(one_of("nearest", "linear", "cubic"), "nearest"),
        },
        output=lambda x, a: (*x[0][:2], *per_dimension(a["output_size"], len(x[0]) - 2)),
        flops=_interpolate_flops,
        training="x y -> 2x y",
    ),
    # Means of samples in each cell of a box, as torchvision's detectors take them. The boxes are an attribute, because
    # their coordinates are few.
    "roi_align": Kind(
        family="pooling",
        takes=_IMAGES[2],
        attributes={
            "boxes": Attribute(COUNT),
            "output_size": Attribute(sizes(1)),
            "sampling_ratio": Attribute(integer(1), 2),
        },
        output=lambda x, a: (a["boxes"], x[0][1], *per_dimension(a["output_size"], 2)),
        # Both dimensions of each sample are interpolated linearly, with 3 FLOPs.
        flops=lambda x, a, out: 2 * 3 * size(out) * a["sampling_ratio"] ** 2,
        training="x y -> 2x y",
    ),
    "grid_sample": Kind(
        family="pooling",
        inputs=(2, 2),
        takes="[N, C, H, W], [N, rows, columns, 2] or [N, C, D, H, W], [N, depth, rows, columns, 3]",
        attributes={"mode": Attribute(one_of("nearest", "linear", "cubic"), "linear")},
        output=lambda x, a: (*x[0][:2], *x[1][1:-1]),
        flops=_interpolate_flops,
        backward_flops=2.0,
        training="2x y -> 2x y",
    ),
}
"""Their backward adds the gradient of each output element to the input elements that it was made from."""
