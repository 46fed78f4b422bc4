"""The table of operation kinds. One row contains everything that joulecast knows about a kind.

To add a kind, add a row to KINDS. To find it in models as well, add a row in `extraction/operators.py`. A row gives the
attributes, the output shape, the FLOPs and the memory traffic, by these conventions:

- A multiply-add is two FLOPs. Kinds that `torch.utils.flop_counter` counts have the same FLOPs here, so the bias of a
  linear layer or a convolution is not counted. All other kinds have an estimate of the arithmetic per element.
- Traffic is the least that kernels without fusion move: each kernel reads its inputs and writes its outputs once.
- A training operation is its forward in train mode and its backward, which computes the gradients of inputs and
  parameters, or those of them that its attribute `gradients` names (`kind.GRADIENTS`).
  For a convolution or a linear layer, the backward has twice the FLOPs of the forward.

The rows of kinds with rules of their own stand beside these, in `windows`, `products`, `lookups` and `parallel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InputError
from .attributes import COUNT, DIMENSION, DIMENSIONS, FLAG, PROBABILITY, SHAPE, Attribute, one_of
from .kind import (
    INDEX_BYTES,
    MASK_BYTES,
    Counted,
    Family,
    Kind,
    Training,
    factors,
    plain,
    saves_its_output,
    saves_nothing,
    with_types,
)
from .lookups import FFT, INDEX_KINDS, logical
from .parallel import PARALLEL
from .products import FACTORS_PARTIAL, PRODUCTS
from .rules import (
    Attributes,
    Shape,
    Shapes,
    broadcast,
    broadcast_inputs,
    dimension_of,
    per_input_element,
    per_output_element,
    require_multiple,
    same_along_dimension,
    size,
)
from .windows import CONVOLUTIONS, POOLING, SAMPLING


def unary(flops: int, saved: Callable[[Counted], float] = saves_its_output) -> Kind:
    """A function of each element, with this number of FLOPs per element."""
    return Kind(family="elementwise", flops=per_output_element(flops), saved=saved)


_FLOPS_OF_AN_ELEMENT = {
    "relu6": 2, "leaky_relu": 2, "prelu": 2, "elu": 4, "gelu": 8, "silu": 5, "mish": 8, "softplus": 5, "sigmoid": 4,
    "tanh": 6, "hardtanh": 2, "hardsigmoid": 4, "hardswish": 5, "clamp": 2, "exp": 2, "log": 2, "sqrt": 1, "rsqrt": 2,
    "abs": 1, "neg": 1, "sin": 4, "cos": 4,
}  # fmt: skip


def _row_size(x: Shapes, a: Attributes) -> int:
    """Elements of a tensor of shape normalized_shape."""
    normalized: Shape = a["normalized_shape"]
    if x[0][-len(normalized) :] != normalized:
        raise InputError(
            "normalized_shape is not the end of the input shape",
            given=f"{normalized} of {x[0]}",
            allowed=f"such as {x[0][-1:]}",
        )
    return size(normalized)


def _group_norm_output(x: Shapes, a: Attributes) -> Shape:
    require_multiple("the channels of a group norm", x[0][1], a["num_groups"])
    return x[0]


def _normalization(parameters: Callable[[Shapes, Attributes], int], flops: int, **row: Any) -> Kind:
    """A normalization with this number of FLOPs per element; the attribute `affine` says whether it has parameters.

    `row` has further columns of its kind.
    """
    # In training, the forward reads the input twice (for statistics, then to normalize). So does the backward, which
    # reads x and dy.
    return Kind(
        family="normalization",
        attributes={**row.pop("attributes", {}), "affine": Attribute(FLAG, True)},
        flops=per_output_element(flops),
        parameters=lambda x, a: parameters(x, a) * int(a["affine"]),
        training="4x 2y 2w -> x y w",
        # Both gradients come from the same sums over x and dy; that of the input takes another pass over them.
        partial={
            "inputs": Training(1.0, "4x 2y 2w -> x y"),
            "parameters": Training(0.5, "3x y w -> y w"),
            "none": Training(0.0, "2x w -> y"),
        },
        **row,
    )


_CHANNELS = "[batch, channels, ...]"
_NORMALIZED = {"normalized_shape": Attribute(SHAPE, lambda x: x[0][-1:])}  # By default the last dimension of the input.


def _saves_product(o: Counted) -> float:
    """A factor needs the other one, which is no activation where it needs no gradient itself, such as a buffer.

    A power by a number needs its base alone, and norms and GELU read it into means and sums, which need nothing.
    """
    needs_none = o.gradients in ("first", "second") or (o.kind == "pow" and len(o.input_shapes) == 1)
    return 0.0 if needs_none else saves_its_output(o)


def _binary(*, is_product: bool) -> Kind:
    """A sum or difference of two tensors, or of a tensor and a number; or a product, quotient or power."""
    # The gradient of each summand is the gradient of the output, which needs no kernel. That of each factor is a
    # product again; that of a broadcast factor is written in full and then summed.
    first, second = ("x y 2w -> x y", "2x y w -> y w") if is_product else ("x -> y", "x -> y")
    return Kind(
        family="elementwise",
        inputs=(1, 2),
        output=broadcast_inputs,
        flops=per_output_element(1),
        training="2x 2y 2w -> x y w" if is_product else "x -> y",
        storage=factors if is_product else plain,
        partial={"first": Training(0.5, first), "second": Training(0.5, second)},
        broadcast_reads=1,
        broadcast_writes=1 if is_product else 0,
        saved=_saves_product if is_product else saves_nothing,
    )


def _without_backward(family: Family, flops: int, reads: int, writes: int = 1, moments: int | None = None) -> Kind:
    """An operation that only training has and that has no backward, such as an optimizer's step.

    The FLOPs are those per element of the output; `reads` and `writes` say how often inputs and output pass memory, and
    `moments` how many values per parameter the step of an optimizer stores.
    """
    return Kind(
        family=family,
        flops=per_output_element(flops),
        has_gradient=False,
        forward=f"{reads}x -> {writes}y",
        training=f"{reads}x -> {writes}y",
        saved=saves_nothing,
        moments=moments,
    )


def _noise(saved: Callable[[Counted], float], **attributes: Attribute) -> Kind:
    """A product with random numbers in training. In inference, it does nothing."""
    return Kind(
        family="elementwise",
        attributes={"p": Attribute(PROBABILITY, 0.5), **attributes},
        flops=per_output_element(1),
        is_noise=True,
        saved=saved,
    )


def _reduction_output(x: Shapes, a: Attributes) -> Shape:
    """The dimensions `dim` (None for all) are removed, or become 1 with `keepdim`."""
    dims = a["dim"]
    dims = tuple(range(len(x[0]))) if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    reduced = {dimension_of(x[0], dim) for dim in dims}
    if len(reduced) < len(dims):
        raise InputError(
            "a dimension is named twice", given=f"dim={list(dims)} of {list(x[0])}", allowed="each dimension once"
        )
    if a["keepdim"]:
        return tuple(1 if i in reduced else n for i, n in enumerate(x[0]))
    return tuple(n for i, n in enumerate(x[0]) if i not in reduced)


_REDUCED = {"dim": Attribute(DIMENSIONS, None), "keepdim": Attribute(FLAG, False)}


def _reduction(flops: int, training: str = "x y -> x y") -> Kind:
    """A reduction over some dimensions, with this number of FLOPs per element of the input.

    In the backward, the gradient of a sum is copied to every element that was summed.
    """
    return Kind(
        family="pooling",
        attributes=_REDUCED,
        output=_reduction_output,
        flops=per_input_element(flops),
        training=training,
    )


def _cat_output(x: Shapes, a: Attributes) -> Shape:
    first = x[0]
    dim = dimension_of(first, a["dim"])
    if any(len(s) != len(first) or s[:dim] + s[dim + 1 :] != first[:dim] + first[dim + 1 :] for s in x):
        raise InputError(
            "shapes to concatenate differ in another dimension",
            given=", ".join(map(str, x)),
            allowed=f"shapes that differ in dimension {dim} only",
        )
    return (*first[:dim], sum(shape[dim] for shape in x), *first[dim + 1 :])


KINDS: Mapping[str, Kind] = {
    **CONVOLUTIONS,
    **PRODUCTS,
    "batch_norm": _normalization(lambda x, a: 2 * x[0][1], 4, takes=_CHANNELS),
    "group_norm": _normalization(
        lambda x, a: 2 * x[0][1],
        6,
        takes=_CHANNELS,
        output=_group_norm_output,
        attributes={"num_groups": Attribute(COUNT)},
    ),
    "layer_norm": _normalization(lambda x, a: 2 * _row_size(x, a), 6, attributes=_NORMALIZED),
    "rms_norm": _normalization(_row_size, 4, attributes=_NORMALIZED),
    "relu": unary(1, saves_nothing),
    **{kind: unary(flops) for kind, flops in _FLOPS_OF_AN_ELEMENT.items()},
    "softmax": Kind(
        family="softmax",
        attributes={"dim": Attribute(DIMENSION, -1)},
        output=same_along_dimension,
        flops=per_output_element(5),
        training="x 2y -> x y w",
    ),
    # The sum of all elements up to each position. The backward flips the gradient, sums it likewise, and flips it back.
    "cumsum": Kind(
        family="softmax",
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=same_along_dimension,
        flops=per_output_element(1),
        training="x 3y -> 4y",
    ),
    **dict.fromkeys(("add", "sub"), _binary(is_product=False)),
    **dict.fromkeys(("mul", "div", "pow"), _binary(is_product=True)),
    # Comparisons, and logical operations on truth values. A truth value takes one byte.
    "compare": Kind(
        family="elementwise",
        inputs=(1, 2),
        output=broadcast_inputs,
        flops=per_output_element(1),
        has_gradient=False,
        training="x -> y",
        storage=with_types({}, output=MASK_BYTES),
    ),
    "complex_mul": Kind(
        family="elementwise",
        inputs=(2, 2),
        output=lambda x, a: (*broadcast(*map(logical, x)), 2),
        # Four products and two sums for each pair of numbers.
        flops=per_output_element(3),
        backward_flops=2.0,
        training="2x 2y 2w -> x y w",
        storage=factors,
        partial=FACTORS_PARTIAL,
        broadcast_reads=1,
        broadcast_writes=1,
    ),
    # If a tensor is used twice, autograd adds up its two gradients.
    "gradient_accumulation": _without_backward("elementwise", flops=1, reads=2),
    # One step of an optimizer in PyTorch's default implementation on a GPU ("foreach"), which updates many tensors per
    # kernel. Each line of _multi_tensor_sgd and _multi_tensor_adam (torch/optim) is a kernel with its own reads and
    # writes. With fused=True, a single kernel reads parameters, gradients and moments, and writes all but the gradients
    # (aten/src/ATen/native/cuda/fused_adam_utils.cuh).
    "sgd_step": _without_backward("elementwise", flops=2, reads=2, moments=0),
    "adam_step": _without_backward("elementwise", flops=13, reads=11, writes=7, moments=2),
    "adamw_step": _without_backward("elementwise", flops=14, reads=12, writes=8, moments=2),
    "sgd_fused_step": _without_backward("elementwise", flops=2, reads=2, moments=0),
    "adam_fused_step": _without_backward("elementwise", flops=13, reads=4, writes=3, moments=2),
    "adamw_fused_step": _without_backward("elementwise", flops=14, reads=4, writes=3, moments=2),
    "dropout": _noise(lambda o: MASK_BYTES * size(o.output_shape)),
    "stochastic_depth": _noise(saves_nothing, mode=Attribute(one_of("row", "batch"), "row")),
    **POOLING,
    "mean": _reduction(1),
    "sum": _reduction(1),
    "norm": _reduction(2),
    # The backward computes a mask of the elements that equal the result, counts them, and divides the gradient by that
    # number.
    "max": _reduction(1, "3x 2y -> 2x 2y"),
    "argmax": Kind(
        family="pooling",
        attributes=_REDUCED,
        output=_reduction_output,
        flops=per_input_element(1),
        has_gradient=False,
        training="x -> y",
        storage=with_types({}, output=INDEX_BYTES),
    ),
    # One pass computes the mean and the sum of squares. The backward writes x - mean(x), and then scales it.
    "var": _reduction(4, "3x y -> 2x y"),
    "prod": _reduction(1, "2x 2y -> x y"),
    # The forward finds the maximum and sums exp(x - max). The backward computes softmax(x) times the gradient.
    "logsumexp": _reduction(5, "3x 3y -> x y"),
    "cat": Kind(
        family="movement",
        inputs=(1, 4096),
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=_cat_output,
        # In the backward, the gradient of each input is a view of the output's gradient.
        training="x -> y",
    ),
    "copy": Kind(family="movement", training="x y -> x y w", saved=saves_nothing),
    # The copy of its input that an in-place operator makes in training if its backward needs that input.
    "save_input": _without_backward("movement", flops=0, reads=1),
    # The input of a part of a model in torch.utils.checkpoint, which is kept for the backward. It runs no kernel.
    "checkpoint": Kind(
        family="movement",
        has_gradient=False,
        forward="->",
        training="->",
    ),
    **INDEX_KINDS,
    **SAMPLING,
    "fft": FFT,
    # A tensor of random numbers.
    "random": Kind(
        family="elementwise",
        flops=per_output_element(10),
        has_gradient=False,
        forward="-> y",
        training="-> y",
    ),
    **PARALLEL,
}
