"""Conversion of PyTorch's operators for Fourier transforms, interpolation, distances and grouped products."""

from __future__ import annotations

from collections.abc import Callable

from .calls import Bound, Converted, first_of, plain, result_of, shape_of

_GRID_MODES = ("linear", "nearest", "cubic")  # As torch.ops.aten.grid_sampler numbers them.


def fourier(form: str) -> Callable[[Bound], Converted]:
    """A Fourier transform of complex numbers ("c2c"), or one whose input or output is real ("r2c", "c2r")."""

    def convert(bound: Bound) -> Converted:
        x = bound["self"]
        attributes = {"dim": tuple(dim % x.ndim for dim in bound["dim"]), "form": form}
        if form == "c2r":
            attributes["last_size"] = bound["last_dim_size"]
        return "fft", [shape_of(x)], attributes

    return convert


def interpolation(mode: str) -> Callable[[Bound], Converted]:
    """Interpolation that resizes the spatial dimensions."""

    def convert(bound: Bound) -> Converted:
        output = result_of(bound).shape
        return "interpolate", [shape_of(first_of(bound))], {"output_size": tuple(output[2:]), "mode": mode}

    return convert


def grid_sample(bound: Bound) -> Converted:
    """The input sampled at the points of a grid."""
    mode = _GRID_MODES[bound["interpolation_mode"]]
    return "grid_sample", [shape_of(bound["input"]), shape_of(bound["grid"])], {"mode": mode}


def roi_align(bound: Bound) -> Converted:
    """Boxes cut out of an image. An adaptive number of samples is taken to be 2 x 2 per cell, as detectors use."""
    attributes = {
        "boxes": shape_of(bound["rois"])[0],
        "output_size": (bound["pooled_height"], bound["pooled_width"]),
        "sampling_ratio": bound["sampling_ratio"] if bound["sampling_ratio"] > 0 else 2,
    }
    return "roi_align", [shape_of(bound["input"])], attributes


def distances(bound: Bound) -> Converted:
    """Distances between all pairs of points.

    For many points and p = 2, PyTorch computes them by a matrix product, which is about the same amount of work.
    """
    return "cdist", [shape_of(bound["x1"]), shape_of(bound["x2"])], {"p": float(bound.get("p", 2.0))}


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


def vectors(bound: Bound) -> Converted:
    """The product of a matrix and a vector, or of two vectors."""
    first, second = list(bound.values())[:2]
    a, b = shape_of(first), shape_of(second)
    return "matmul", [a if len(a) == 2 else (1, *a), (*b, 1)], {}


def cumulative(bound: Bound) -> Converted:
    """A cumulative sum, product or maximum along a dimension."""
    x = first_of(bound)
    return "cumsum", [shape_of(x) or (1,)], {"dim": bound["dim"]}


def random(bound: Bound) -> Converted:
    """A tensor of random numbers."""
    return "random", [plain(result_of(bound).shape) or (1,)], {}
