"""Fourier transforms, interpolation, distances and grouped products as PyTorch's operators have them."""

from __future__ import annotations

from collections.abc import Callable

from .calls import Bound, Converted, first_of, plain, result_of, shape_of

_GRID_MODES = ("linear", "nearest", "cubic")  # As torch.ops.aten.grid_sampler numbers them.


def fourier(form: str) -> Callable[[Bound], Converted]:
    """A transform between complex numbers ("c2c"), or with real ones on one side ("r2c", "c2r")."""

    def convert(bound: Bound) -> Converted:
        x = bound["self"]
        attributes = {"dim": tuple(dim % x.ndim for dim in bound["dim"]), "form": form}
        if form == "c2r":
            attributes["last_size"] = bound["last_dim_size"]
        return "fft", [shape_of(x)], attributes

    return convert


def interpolation(mode: str) -> Callable[[Bound], Converted]:
    """Resizing of the spatial dimensions."""

    def convert(bound: Bound) -> Converted:
        output = result_of(bound).shape
        return "interpolate", [shape_of(first_of(bound))], {"output_size": tuple(output[2:]), "mode": mode}

    return convert


def grid_sample(bound: Bound) -> Converted:
    """Values of an input at the points of a grid."""
    mode = _GRID_MODES[bound["interpolation_mode"]]
    return "grid_sample", [shape_of(bound["input"]), shape_of(bound["grid"])], {"mode": mode}


def distances(bound: Bound) -> Converted:
    """Distances between all pairs; for many points and p = 2 as a product of matrices, which is about as much work."""
    return "cdist", [shape_of(bound["x1"]), shape_of(bound["x2"])], {"p": float(bound.get("p", 2.0))}


def grouped_product(bound: Bound) -> Converted:
    """Rows in groups, each times a matrix of its own."""
    x, weights = shape_of(bound["self"]), shape_of(bound["mat2"])
    if len(x) == 2 and len(weights) == 3:
        attributes = {"out_features": weights[-1], "num_experts": weights[0], "bias": bound["bias"] is not None}
        return "grouped_linear", [x], attributes
    if len(x) == 3 and len(weights) == 3:
        return "matmul", [x, weights], {}
    # What the groups share out is the columns, or the reduction: the same work as one product of all.
    return "matmul", [(x[-2], x[-1]), (x[-1], weights[-1])], {}


def vectors(bound: Bound) -> Converted:
    """A matrix times a vector, or a vector times another."""
    first, second = list(bound.values())[:2]
    a, b = shape_of(first), shape_of(second)
    return "matmul", [a if len(a) == 2 else (1, *a), (*b, 1)], {}


def cumulative(bound: Bound) -> Converted:
    """Sums, products or maxima of what comes before."""
    x = first_of(bound)
    return "cumsum", [shape_of(x) or (1,)], {"dim": bound["dim"]}


def random(bound: Bound) -> Converted:
    """Random numbers."""
    return "random", [plain(result_of(bound).shape) or (1,)], {}
