"""The table of operation kinds: one row says all that joulecast knows about a kind.

To add a kind, add a row to KINDS (and, so that it is found in models, a row in `profiling/aten.py`).
A row gives the attributes, the output shape, the FLOPs and the memory traffic. Conventions:

- a multiply-add is two FLOPs; kinds that `torch.utils.flop_counter` counts agree with it (so the bias of a
  linear or a convolution is not counted); other kinds count the arithmetic per output element, roughly;
- traffic is the least that an unfused kernel moves: each tensor once per kernel that needs it;
- a training operation is its forward in train mode plus its backward, gradients of inputs and parameters
  included (for a convolution or linear: twice the forward FLOPs again).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .errors import InputError

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Attributes = Mapping[str, Any]

Family = Literal[
    "convolution", "matmul", "attention", "normalization", "elementwise", "softmax", "pooling", "movement"
]

REQUIRED = object()
"""Marks an attribute without a default."""


class Traffic(NamedTuple):
    """How often the inputs, the output and the parameters pass the memory interface."""

    inputs: float = 0.0
    output: float = 0.0
    parameters: float = 0.0


_READ_ONCE = Traffic(inputs=1, parameters=1)
_WRITE_ONCE = Traffic(output=1)


@dataclass(frozen=True)
class Kind:
    """What is known about one kind of operation.

    Args:
        family: Kinds of one family run in kernels of the same nature.
        output: Output shape from input shapes and attributes; raises InputError where they do not fit.
        flops: Forward FLOPs from input shapes, attributes and output shape.
        attributes: Attribute names with their defaults; REQUIRED where there is none.
        parameters: Number of parameter elements.
        inputs: Least and most number of input tensors.
        backward_flops: FLOPs of the backward over those of the forward.
        reads, writes: Traffic of the forward.
        training_reads, training_writes: Traffic of forward and backward together.
        broadcast_reads, broadcast_writes: Further passes over the output in training where an input is broadcast to
            it, and its gradient is a sum.
        tensor_cores: Whether TF32, where asked for, applies to this kind.
        is_noise: The operation does nothing in inference, nor where its attribute p is zero (dropout).
    """

    family: Family
    output: Callable[[Shapes, Attributes], Shape]
    flops: Callable[[Shapes, Attributes, Shape], int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parameters: Callable[[Shapes, Attributes], int] = lambda shapes, attributes: 0
    inputs: tuple[int, int] = (1, 1)
    backward_flops: float = 1.0
    reads: Traffic = _READ_ONCE
    writes: Traffic = _WRITE_ONCE
    training_reads: Traffic = Traffic(inputs=1, output=2, parameters=1)
    training_writes: Traffic = Traffic(inputs=1, output=1, parameters=1)
    broadcast_reads: float = 0.0
    broadcast_writes: float = 0.0
    tensor_cores: bool = False
    is_noise: bool = False


def size(shape: Shape) -> int:
    """Number of elements of a tensor of this shape."""
    return math.prod(shape)


def _tuple(value: Any, length: int) -> tuple[int, ...]:
    """An attribute such as kernel_size as one integer per spatial dimension."""
    result = (value,) * length if isinstance(value, int) else tuple(value)
    if len(result) != length:
        raise InputError(f"an attribute needs {length} values, one per spatial dimension", given=value)
    return result


def _same(shapes: Shapes, attributes: Attributes) -> Shape:
    return shapes[0]


def broadcast(*shapes: Shape) -> Shape:
    """The shape that tensors of these shapes broadcast to.

    Raises:
        InputError: They do not broadcast.
    """
    rank = max(len(shape) for shape in shapes)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise InputError("these shapes do not broadcast", given=", ".join(map(str, shapes)))
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _broadcast_inputs(shapes: Shapes, attributes: Attributes) -> Shape:
    return broadcast(*shapes)


def _per_output_element(count: int) -> Callable[[Shapes, Attributes, Shape], int]:
    return lambda shapes, attributes, output: count * size(output)


def _per_input_element(count: int) -> Callable[[Shapes, Attributes, Shape], int]:
    return lambda shapes, attributes, output: count * size(shapes[0])


# Convolution


def _check_channels(shape: Shape, dimensions: int, divisor: int) -> None:
    if len(shape) != dimensions + 2:
        raise InputError(f"the input needs {dimensions + 2} dimensions: batch, channels, {dimensions} spatial", given=shape)
    if shape[1] % divisor:
        raise InputError("the input channels do not divide into the groups", given=f"{shape[1]} channels, {divisor} groups")


def _window_output(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool = False
) -> Shape:
    result = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        if span < 0:
            raise InputError("the kernel is larger than the padded input", given=f"input {sizes}, kernel {kernel}, padding {padding}")
        steps = -(-span // s) if ceil_mode else span // s
        # A window that starts in the right padding is dropped, as PyTorch does.
        if ceil_mode and steps * s >= n + p:
            steps -= 1
        result.append(steps + 1)
    return tuple(result)


def _conv_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        _check_channels(shapes[0], dimensions, attributes["groups"])
        if attributes["out_channels"] % attributes["groups"]:
            raise InputError(
                "the output channels do not divide into the groups",
                given=f"{attributes['out_channels']} channels, {attributes['groups']} groups",
            )
        kernel = _tuple(attributes["kernel_size"], dimensions)
        dilation = _tuple(attributes["dilation"], dimensions)
        sizes = shapes[0][2:]
        padding = attributes["padding"]
        if padding == "same":
            # PyTorch allows "same" with stride 1 only.
            return (shapes[0][0], attributes["out_channels"], *sizes)
        spatial = _window_output(
            sizes,
            kernel,
            _tuple(attributes["stride"], dimensions),
            _tuple(0 if padding == "valid" else padding, dimensions),
            dilation,
        )
        return (shapes[0][0], attributes["out_channels"], *spatial)

    return output


def _conv_transpose_output(dimensions: int) -> Callable[[Shapes, Attributes], Shape]:
    def output(shapes: Shapes, attributes: Attributes) -> Shape:
        _check_channels(shapes[0], dimensions, attributes["groups"])
        spatial = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
            for n, k, s, p, d, extra in zip(
                shapes[0][2:],
                *(
                    _tuple(attributes[name], dimensions)
                    for name in ("kernel_size", "stride", "padding", "dilation", "output_padding")
                ),
                strict=True,
            )
        )
        return (shapes[0][0], attributes["out_channels"], *spatial)

    return output


def _conv_weights(shapes: Shapes, attributes: Attributes) -> int:
    kernel = math.prod(_tuple(attributes["kernel_size"], len(shapes[0]) - 2))
    return attributes["out_channels"] * shapes[0][1] // attributes["groups"] * kernel


def _conv_parameters(shapes: Shapes, attributes: Attributes) -> int:
    return _conv_weights(shapes, attributes) + (attributes["out_channels"] if attributes["bias"] else 0)


def _conv_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    return 2 * output[0] * math.prod(output[2:]) * _conv_weights(shapes, attributes)


def _conv_transpose_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    return 2 * output[0] * math.prod(shapes[0][2:]) * _conv_weights(shapes, attributes)


_CONV_ATTRIBUTES = {
    "out_channels": REQUIRED,
    "kernel_size": REQUIRED,
    "stride": 1,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
    "bias": True,
}
# Forward reads x and w; the input gradient reads dy and w, the weight gradient x and dy.
_GEMM_TRAINING = {
    "backward_flops": 2.0,
    "training_reads": Traffic(inputs=2, output=2, parameters=2),
    "training_writes": Traffic(inputs=1, output=1, parameters=1),
}


def _conv(dimensions: int) -> Kind:
    return Kind(
        family="convolution",
        attributes=_CONV_ATTRIBUTES,
        output=_conv_output(dimensions),
        flops=_conv_flops,
        parameters=_conv_parameters,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    )


def _conv_transpose(dimensions: int) -> Kind:
    return Kind(
        family="convolution",
        attributes={**_CONV_ATTRIBUTES, "output_padding": 0},
        output=_conv_transpose_output(dimensions),
        flops=_conv_transpose_flops,
        parameters=_conv_parameters,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    )


# Matrix products


def _linear_output(shapes: Shapes, attributes: Attributes) -> Shape:
    if not shapes[0]:
        raise InputError("a linear operation needs an input of at least one dimension", given=shapes[0])
    return (*shapes[0][:-1], attributes["out_features"])


def _linear_parameters(shapes: Shapes, attributes: Attributes) -> int:
    return attributes["out_features"] * (shapes[0][-1] + (1 if attributes["bias"] else 0))


def _linear_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    return 2 * size(shapes[0]) * attributes["out_features"]


def _matmul_output(shapes: Shapes, attributes: Attributes) -> Shape:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise InputError("the inner dimensions of a matrix product differ", given=f"{a} and {b}", allowed="[..., M, K] and [..., K, N]")
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _matmul_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    return 2 * size(output) * shapes[0][-1]


def _attention_output(shapes: Shapes, attributes: Attributes) -> Shape:
    q, k, v = shapes
    if min(map(len, shapes)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise InputError("query, key and value do not fit", given=f"{q}, {k}, {v}", allowed="[..., L, E], [..., S, E], [..., S, D]")
    return (*q[:-1], v[-1])


def _attention_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    q, k, v = shapes
    rows = size(q[:-1])
    return 2 * rows * k[-2] * (q[-1] + v[-1])


# Pooling, reductions, movement


def _pool_output(shapes: Shapes, attributes: Attributes) -> Shape:
    _check_channels(shapes[0], 2, 1)
    kernel = _tuple(attributes["kernel_size"], 2)
    stride = kernel if attributes["stride"] is None else _tuple(attributes["stride"], 2)
    spatial = _window_output(
        shapes[0][2:],
        kernel,
        stride,
        _tuple(attributes["padding"], 2),
        _tuple(attributes.get("dilation", 1), 2),
        attributes["ceil_mode"],
    )
    return (*shapes[0][:2], *spatial)


def _pool_flops(shapes: Shapes, attributes: Attributes, output: Shape) -> int:
    return size(output) * math.prod(_tuple(attributes["kernel_size"], 2))


def _adaptive_pool_output(shapes: Shapes, attributes: Attributes) -> Shape:
    _check_channels(shapes[0], 2, 1)
    wanted = attributes["output_size"]
    wanted = (wanted, wanted) if wanted is None or isinstance(wanted, int) else wanted
    spatial = (n if want is None else want for n, want in zip(shapes[0][2:], wanted, strict=True))
    return (*shapes[0][:2], *spatial)


def _reduction_output(shapes: Shapes, attributes: Attributes) -> Shape:
    rank = len(shapes[0])
    dims = attributes["dim"]
    dims = tuple(range(rank)) if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if any(not -rank <= dim < rank for dim in dims):
        raise InputError("a reduced dimension does not exist", given=f"dim={dims} of {shapes[0]}")
    reduced = {dim % rank for dim in dims}
    if attributes["keepdim"]:
        return tuple(1 if i in reduced else n for i, n in enumerate(shapes[0]))
    return tuple(n for i, n in enumerate(shapes[0]) if i not in reduced)


def _cat_output(shapes: Shapes, attributes: Attributes) -> Shape:
    first = shapes[0]
    if not -len(first) <= attributes["dim"] < len(first):
        raise InputError("the dimension to concatenate along does not exist", given=f"dim={attributes['dim']} of {first}")
    dim = attributes["dim"] % len(first)
    if any(len(s) != len(first) or s[:dim] + s[dim + 1 :] != first[:dim] + first[dim + 1 :] for s in shapes):
        raise InputError("shapes to concatenate differ in another dimension", given=", ".join(map(str, shapes)))
    return (*first[:dim], sum(shape[dim] for shape in shapes), *first[dim + 1 :])


def _embedding_output(shapes: Shapes, attributes: Attributes) -> Shape:
    return (*shapes[0], attributes["embedding_dim"])


def _channel_parameters(shapes: Shapes, attributes: Attributes) -> int:
    if len(shapes[0]) < 2:
        raise InputError("the input needs a batch and a channel dimension", given=shapes[0])
    return 2 * shapes[0][1] if attributes["affine"] else 0


def _row_parameters(tensors: int) -> Callable[[Shapes, Attributes], int]:
    def parameters(shapes: Shapes, attributes: Attributes) -> int:
        normalized = tuple(attributes["normalized_shape"])
        if shapes[0][-len(normalized) :] != normalized:
            raise InputError("normalized_shape is not the end of the input shape", given=f"{normalized} of {shapes[0]}")
        return tensors * size(normalized) if attributes["affine"] else 0

    return parameters


def _unary(flops: int = 1, **attributes: Any) -> Kind:
    return Kind(family="elementwise", attributes=attributes, output=_same, flops=_per_output_element(flops))


def _normalization(parameters: Callable[[Shapes, Attributes], int], flops: int, **attributes: Any) -> Kind:
    # Train mode passes over the input twice (statistics, then normalizing); so does the backward, over x and dy.
    return Kind(
        family="normalization",
        attributes=attributes,
        output=_same,
        flops=_per_output_element(flops),
        parameters=parameters,
        training_reads=Traffic(inputs=4, output=2, parameters=2),
    )


def _sum() -> Kind:
    # The gradient of a sum is its output's, with no kernel of its own. But where a residual closes, its input was
    # used twice, and autograd adds the two gradients: one more addition of the same size.
    return _binary(Traffic(inputs=1, output=2), Traffic(output=2), broadcast=(1, 0))


def _product() -> Kind:
    # Each gradient of a product is a product of its own; that of a broadcast input is written out and then summed.
    return _binary(Traffic(inputs=2, output=2), Traffic(inputs=1, output=1), broadcast=(1, 1))


def _binary(training_reads: Traffic, training_writes: Traffic, broadcast: tuple[float, float]) -> Kind:
    """Two tensors, or one tensor and a scalar."""
    return Kind(
        family="elementwise",
        inputs=(1, 2),
        output=_broadcast_inputs,
        flops=_per_output_element(1),
        training_reads=training_reads,
        training_writes=training_writes,
        broadcast_reads=broadcast[0],
        broadcast_writes=broadcast[1],
    )


def _reduction(flops: int) -> Kind:
    return Kind(
        family="pooling",
        attributes={"dim": None, "keepdim": False},
        output=_reduction_output,
        flops=_per_input_element(flops),
        training_reads=Traffic(inputs=1, output=1),
    )


def _noise(**attributes: Any) -> Kind:
    return Kind(
        family="elementwise",
        attributes=attributes,
        output=_same,
        flops=_per_output_element(1),
        is_noise=True,
    )


_POOL_TRAINING = {"training_reads": Traffic(inputs=1, output=2)}

KINDS: Mapping[str, Kind] = {
    "conv1d": _conv(1),
    "conv2d": _conv(2),
    "conv3d": _conv(3),
    "conv_transpose1d": _conv_transpose(1),
    "conv_transpose2d": _conv_transpose(2),
    "conv_transpose3d": _conv_transpose(3),
    "linear": Kind(
        family="matmul",
        attributes={"out_features": REQUIRED, "bias": True},
        output=_linear_output,
        flops=_linear_flops,
        parameters=_linear_parameters,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "matmul": Kind(
        family="matmul",
        inputs=(2, 2),
        output=_matmul_output,
        flops=_matmul_flops,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "attention": Kind(
        family="attention",
        inputs=(3, 3),
        attributes={"causal": False},
        output=_attention_output,
        flops=_attention_flops,
        # The backward computes the scores again: five products where the forward has two.
        backward_flops=2.5,
        training_reads=Traffic(inputs=2, output=2),
        tensor_cores=True,
    ),
    "batch_norm": _normalization(_channel_parameters, 4, affine=True),
    "group_norm": _normalization(_channel_parameters, 6, num_groups=REQUIRED, affine=True),
    "layer_norm": _normalization(_row_parameters(2), 6, normalized_shape=REQUIRED, affine=True),
    "rms_norm": _normalization(_row_parameters(1), 4, normalized_shape=REQUIRED, affine=True),
    "relu": _unary(),
    "relu6": _unary(2),
    "leaky_relu": _unary(2),
    "prelu": _unary(2),
    "elu": _unary(4),
    "gelu": _unary(8),
    "silu": _unary(5),
    "mish": _unary(8),
    "softplus": _unary(5),
    "sigmoid": _unary(4),
    "tanh": _unary(6),
    "hardtanh": _unary(2),
    "hardsigmoid": _unary(4),
    "hardswish": _unary(5),
    "clamp": _unary(2),
    "exp": _unary(2),
    "log": _unary(2),
    "sqrt": _unary(1),
    "rsqrt": _unary(2),
    "abs": _unary(1),
    "neg": _unary(1),
    "sin": _unary(4),
    "cos": _unary(4),
    "softmax": Kind(
        family="softmax",
        attributes={"dim": -1},
        output=_same,
        flops=_per_output_element(5),
        training_reads=Traffic(inputs=1, output=2),
    ),
    "add": _sum(),
    "sub": _sum(),
    "mul": _product(),
    "div": _product(),
    "pow": _product(),
    "dropout": _noise(p=0.5),
    "stochastic_depth": _noise(p=REQUIRED, mode="row"),
    "max_pool2d": Kind(
        family="pooling",
        attributes={"kernel_size": REQUIRED, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False},
        output=_pool_output,
        flops=_pool_flops,
        **_POOL_TRAINING,  # type: ignore[arg-type]
    ),
    "avg_pool2d": Kind(
        family="pooling",
        attributes={"kernel_size": REQUIRED, "stride": None, "padding": 0, "ceil_mode": False},
        output=_pool_output,
        flops=_pool_flops,
        **_POOL_TRAINING,  # type: ignore[arg-type]
    ),
    "adaptive_avg_pool2d": Kind(
        family="pooling",
        attributes={"output_size": REQUIRED},
        output=_adaptive_pool_output,
        flops=_per_input_element(1),
        training_reads=Traffic(inputs=1, output=1),
    ),
    "mean": _reduction(1),
    "sum": _reduction(1),
    "norm": _reduction(2),
    "cat": Kind(
        family="movement",
        inputs=(1, 4096),
        attributes={"dim": 0},
        output=_cat_output,
        flops=_per_output_element(0),
        training_reads=Traffic(inputs=1, output=1),
    ),
    "copy": Kind(
        family="movement",
        output=_same,
        flops=_per_output_element(0),
        training_reads=Traffic(inputs=1, output=1),
    ),
    "embedding": Kind(
        family="movement",
        attributes={"num_embeddings": REQUIRED, "embedding_dim": REQUIRED},
        output=_embedding_output,
        flops=_per_output_element(0),
        parameters=lambda shapes, attributes: attributes["num_embeddings"] * attributes["embedding_dim"],
        # Only the rows that are looked up are read; the gradient is as large as the whole table.
        reads=Traffic(inputs=1, output=1),
        training_reads=Traffic(inputs=2, output=3),
        training_writes=Traffic(output=2, parameters=1),
    ),
}
