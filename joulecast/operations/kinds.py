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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from . import rules, storage
from .attributes import (
    COUNT,
    DIMENSION,
    DIMENSIONS,
    FLAG,
    OUTPUT_SIZE,
    PROBABILITY,
    SHAPE,
    Attribute,
    either,
    one_of,
    sizes,
)
from .precisions import PRECISIONS, QUANTIZED
from .rules import Attributes, Shape, Shapes
from .storage import Storage

Family = Literal["convolution", "matmul", "attention", "normalization", "elementwise", "softmax", "pooling", "movement"]


def last_dimension(shapes: Shapes) -> Shape:
    """The default of normalized_shape: rows are normalized over their last dimension."""
    return shapes[0][-1:]


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
        attributes: Name of each attribute -> the values that it may have, and its default.
        parameters: Number of parameter elements.
        inputs: Least and most number of input tensors.
        backward_flops: FLOPs of the backward over those of the forward.
        reads, writes: Traffic of the forward.
        training_reads, training_writes: Traffic of forward and backward together.
        broadcast_reads, broadcast_writes: Further passes over the output in training where an input is broadcast to
            it, and its gradient is a sum.
        tensor_cores: Whether TF32, where asked for, applies to this kind.
        is_noise: The operation does nothing in inference, nor where its attribute p is zero (dropout).
        quantized: Precisions of less than 16 bits that there are kernels for.
        storage: Bytes of inputs, output and parameters in memory, as far as they are needed.
    """

    family: Family
    output: Callable[[Shapes, Attributes], Shape]
    flops: Callable[[Shapes, Attributes, Shape], int]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
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
    quantized: tuple[str, ...] = ()
    storage: Callable[[Shapes, Attributes, Shape, int, str], Storage] = storage.plain

    @cached_property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that the kind runs in, on GPUs that have them."""
        return tuple(p for p in PRECISIONS if p not in QUANTIZED or p in self.quantized)


_CONV_ATTRIBUTES = {
    "out_channels": Attribute(COUNT),
    "kernel_size": Attribute(sizes(1)),
    "stride": Attribute(sizes(1), 1),
    "padding": Attribute(either(sizes(0), one_of("same", "valid")), 0),
    "dilation": Attribute(sizes(1), 1),
    "groups": Attribute(COUNT, 1),
    "bias": Attribute(FLAG, True),
}
_POOL_ATTRIBUTES = {
    "kernel_size": Attribute(sizes(1)),
    "stride": Attribute(sizes(1).or_none(), None),
    "padding": Attribute(sizes(0), 0),
    "dilation": Attribute(sizes(1), 1),
    "ceil_mode": Attribute(FLAG, False),
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
        output=rules.conv_output(dimensions),
        flops=rules.conv_flops,
        parameters=rules.conv_parameters,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    )


def _conv_transpose(dimensions: int) -> Kind:
    return Kind(
        family="convolution",
        attributes={**_CONV_ATTRIBUTES, "padding": Attribute(sizes(0), 0), "output_padding": Attribute(sizes(0), 0)},
        output=rules.conv_transpose_output(dimensions),
        flops=rules.conv_transpose_flops,
        parameters=rules.conv_parameters,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    )


def _unary(flops: int = 1) -> Kind:
    return Kind(family="elementwise", output=rules.same, flops=rules.per_output_element(flops))


def _normalization(
    parameters: Callable[[Shapes, Attributes], int],
    flops: int,
    output: Callable[[Shapes, Attributes], Shape] = rules.same,
    **attributes: Attribute,
) -> Kind:
    # Train mode passes over the input twice (statistics, then normalizing); so does the backward, over x and dy.
    return Kind(
        family="normalization",
        attributes={**attributes, "affine": Attribute(FLAG, True)},
        output=output,
        flops=rules.per_output_element(flops),
        parameters=parameters,
        training_reads=Traffic(inputs=4, output=2, parameters=2),
    )


def _sum() -> Kind:
    # The gradient of a sum is its output's, with no kernel of its own.
    return _binary(Traffic(inputs=1), Traffic(output=1), broadcast=(1, 0))


def _product() -> Kind:
    # Each gradient of a product is a product of its own; that of a broadcast input is written out and then summed.
    return _binary(Traffic(inputs=2, output=2), Traffic(inputs=1, output=1), broadcast=(1, 1))


def _binary(training_reads: Traffic, training_writes: Traffic, broadcast: tuple[float, float]) -> Kind:
    """Two tensors, or one tensor and a scalar."""
    return Kind(
        family="elementwise",
        inputs=(1, 2),
        output=rules.broadcast_inputs,
        flops=rules.per_output_element(1),
        training_reads=training_reads,
        training_writes=training_writes,
        broadcast_reads=broadcast[0],
        broadcast_writes=broadcast[1],
    )


def _reduction(flops: int) -> Kind:
    return Kind(
        family="pooling",
        attributes={"dim": Attribute(DIMENSIONS, None), "keepdim": Attribute(FLAG, False)},
        output=rules.reduction_output,
        flops=rules.per_input_element(flops),
        training_reads=Traffic(inputs=1, output=1),
    )


def _without_backward(family: Family, flops: int, reads: int, writes: int = 1) -> Kind:
    """What training does on top of forwards and backwards."""
    return Kind(
        family=family,
        output=rules.same,
        flops=rules.per_output_element(flops),
        backward_flops=0.0,
        reads=Traffic(inputs=reads),
        writes=Traffic(output=writes),
        training_reads=Traffic(inputs=reads),
        training_writes=Traffic(output=writes),
    )


def _noise(**attributes: Attribute) -> Kind:
    return Kind(
        family="elementwise",
        attributes={"p": Attribute(PROBABILITY, 0.5), **attributes},
        output=rules.same,
        flops=rules.per_output_element(1),
        is_noise=True,
    )


IMPLEMENTATIONS: tuple[str, ...] = ("pytorch", "sglang", "tensorrt_llm", "vllm")
"""Whose kernels compute an operation: what PyTorch calls, or an engine for language models."""

_IMPLEMENTATION = Attribute(one_of(*IMPLEMENTATIONS), "pytorch", refinement=True)

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
        attributes={
            "out_features": Attribute(COUNT),
            "bias": Attribute(FLAG, True),
            # One scale per 128 elements of a row and 128 x 128 of the weights, instead of one per tensor or row.
            "block_scaled": Attribute(FLAG, False, refinement=True),
            "implementation": _IMPLEMENTATION,
        },
        output=rules.linear_output,
        flops=rules.linear_flops,
        parameters=rules.linear_parameters,
        tensor_cores=True,
        quantized=("fp8", "nvfp4", "int8"),
        storage=storage.linear,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "matmul": Kind(
        family="matmul",
        inputs=(2, 2),
        output=rules.matmul_output,
        flops=rules.matmul_flops,
        tensor_cores=True,
        **_GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "attention": Kind(
        family="attention",
        inputs=(3, 3),
        # window: keys that a query sees, its own among them; None for all. cache_precision: what keys and values are
        # stored in; None where that is the precision of the operation.
        attributes={
            "causal": Attribute(FLAG, False),
            "window": Attribute(COUNT.or_none(), None, refinement=True),
            "cache_precision": Attribute(one_of(*PRECISIONS).or_none(), None, refinement=True),
            "implementation": _IMPLEMENTATION,
        },
        quantized=("fp8",),
        storage=storage.attention,
        output=rules.attention_output,
        flops=rules.attention_flops,
        # The backward computes the scores again: five products where the forward has two.
        backward_flops=2.5,
        training_reads=Traffic(inputs=2, output=2),
        tensor_cores=True,
    ),
    "batch_norm": _normalization(rules.channel_parameters, 4),
    "group_norm": _normalization(rules.channel_parameters, 6, rules.group_norm_output, num_groups=Attribute(COUNT)),
    "layer_norm": _normalization(rules.row_parameters(2), 6, normalized_shape=Attribute(SHAPE, last_dimension)),
    "rms_norm": _normalization(rules.row_parameters(1), 4, normalized_shape=Attribute(SHAPE, last_dimension)),
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
        attributes={"dim": Attribute(DIMENSION, -1)},
        output=rules.same_along_dimension,
        flops=rules.per_output_element(5),
        training_reads=Traffic(inputs=1, output=2),
    ),
    "add": _sum(),
    "sub": _sum(),
    "mul": _product(),
    "div": _product(),
    "pow": _product(),
    # Where a tensor was used twice, autograd adds the two gradients.
    "gradient_accumulation": _without_backward("elementwise", flops=1, reads=2),
    # A step over so many parameters as PyTorch does it on a GPU unless told otherwise: for all tensors at once
    # (foreach), one pass per line of _multi_tensor_sgd and _multi_tensor_adam in torch/optim.
    "sgd_step": _without_backward("elementwise", flops=2, reads=2),
    "adam_step": _without_backward("elementwise", flops=13, reads=11, writes=7),
    "adamw_step": _without_backward("elementwise", flops=14, reads=12, writes=8),
    "dropout": _noise(),
    "stochastic_depth": _noise(mode=Attribute(one_of("row", "batch"), "row")),
    "max_pool2d": Kind(
        family="pooling",
        attributes=_POOL_ATTRIBUTES,
        output=rules.pool_output,
        flops=rules.pool_flops,
        **_POOL_TRAINING,  # type: ignore[arg-type]
    ),
    "avg_pool2d": Kind(
        family="pooling",
        attributes={name: values for name, values in _POOL_ATTRIBUTES.items() if name != "dilation"},
        output=rules.pool_output,
        flops=rules.pool_flops,
        **_POOL_TRAINING,  # type: ignore[arg-type]
    ),
    "adaptive_avg_pool2d": Kind(
        family="pooling",
        attributes={"output_size": Attribute(OUTPUT_SIZE, 1)},
        output=rules.adaptive_pool_output,
        flops=rules.per_input_element(1),
        training_reads=Traffic(inputs=1, output=1),
    ),
    "mean": _reduction(1),
    "sum": _reduction(1),
    "norm": _reduction(2),
    "cat": Kind(
        family="movement",
        inputs=(1, 4096),
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=rules.cat_output,
        flops=rules.per_output_element(0),
        # Backward, each input's gradient is a view of the output's.
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(output=1),
    ),
    "copy": Kind(
        family="movement",
        output=rules.same,
        flops=rules.per_output_element(0),
        training_reads=Traffic(inputs=1, output=1),
    ),
    # Operators in place whose backward needs their input copy it first.
    "save_input": _without_backward("movement", flops=0, reads=1),
    "embedding": Kind(
        family="movement",
        attributes={"num_embeddings": Attribute(COUNT), "embedding_dim": Attribute(COUNT)},
        output=rules.embedding_output,
        flops=rules.per_output_element(0),
        parameters=lambda shapes, attributes: attributes["num_embeddings"] * attributes["embedding_dim"],
        storage=storage.embedding,
        # Only the rows that are looked up are read; the gradient is as large as the whole table.
        reads=Traffic(inputs=1, output=1),
        training_reads=Traffic(inputs=2, output=3),
        training_writes=Traffic(output=2, parameters=1),
    ),
}
