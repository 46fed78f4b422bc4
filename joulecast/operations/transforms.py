"""Rules of Fourier transforms, complex products, interpolation and distances between points.

A complex tensor has the shape of its real view, with a last dimension of 2.
"""

from __future__ import annotations

import math

from ..errors import InputError
from .rules import Attributes, Product, Shape, Shapes, broadcast, dimension_of, size
from .windows import per_dimension

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


def roi_align_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """FLOPs of the linear interpolation of all samples, along both dimensions."""
    samples: int = size(output) * attributes["sampling_ratio"] ** 2
    return samples * 2 * _INTERPOLATION_FLOPS["linear"]


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


def cdist_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    """A difference, a power and an addition for every coordinate of every pair of points."""
    return 3 * size(output) * shapes[0][-1]


def cdist_product(shapes: Shapes, attributes: Attributes, output: Shape) -> Product:
    """A matrix product with as many FLOPs. A distance needs three per coordinate, a product needs two."""
    return Product(size(output[:-2]), output[-2], output[-1], max(1, 3 * shapes[0][-1] // 2))
