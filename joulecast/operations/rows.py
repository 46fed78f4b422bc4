"""Rows of the table of kinds for operations of one nature, such as convolutions over any number of dimensions."""

from __future__ import annotations

from collections.abc import Callable

from . import recurrent as recurrence
from . import rules, storage, windows
from .attributes import (
    COUNT,
    DIMENSION,
    DIMENSIONS,
    FLAG,
    IMPLEMENTATIONS,
    OUTPUT_SIZE,
    PROBABILITY,
    Attribute,
    either,
    one_of,
    sizes,
)
from .kind import Family, Kind, Traffic
from .rules import Attributes, Shape, Shapes


def last_dimension(shapes: Shapes) -> Shape:
    """The default of normalized_shape: rows are normalized over their last dimension."""
    return shapes[0][-1:]


CONV_ATTRIBUTES = {
    "out_channels": Attribute(COUNT),
    "kernel_size": Attribute(sizes(1)),
    "stride": Attribute(sizes(1), 1),
    "padding": Attribute(either(sizes(0), one_of("same", "valid")), 0),
    "dilation": Attribute(sizes(1), 1),
    "groups": Attribute(COUNT, 1),
    "bias": Attribute(FLAG, True),
    # One kernel of it: the forward, or one of the gradients. A training operation is all three.
    "direction": Attribute(one_of("forward", "input_gradient", "weight_gradient"), "forward", refinement=True),
}
POOL_ATTRIBUTES = {
    "kernel_size": Attribute(sizes(1)),
    "stride": Attribute(sizes(1).or_none(), None),
    "padding": Attribute(sizes(0), 0),
    "dilation": Attribute(sizes(1), 1),
    "ceil_mode": Attribute(FLAG, False),
}
# Forward reads x and w; the input gradient reads dy and w, the weight gradient x and dy.
GEMM_TRAINING = {
    "backward_flops": 2.0,
    "training_reads": Traffic(inputs=2, output=2, parameters=2),
    "training_writes": Traffic(inputs=1, output=1, parameters=1),
}


def convolution(dimensions: int) -> Kind:
    """A convolution over so many spatial dimensions."""
    return Kind(
        family="convolution",
        attributes=CONV_ATTRIBUTES,
        output=windows.conv_output(dimensions),
        flops=windows.conv_flops,
        parameters=windows.conv_parameters,
        storage=storage.convolution,
        tensor_cores=True,
        tf32_by_default=True,
        product=windows.conv_product(windows.conv_flops),
        **GEMM_TRAINING,  # type: ignore[arg-type]
    )


def transposed_convolution(dimensions: int) -> Kind:
    """A transposed convolution over so many spatial dimensions."""
    return Kind(
        family="convolution",
        attributes={**CONV_ATTRIBUTES, "padding": Attribute(sizes(0), 0), "output_padding": Attribute(sizes(0), 0)},
        output=windows.conv_transpose_output(dimensions),
        flops=windows.conv_transpose_flops,
        parameters=windows.conv_parameters,
        storage=storage.convolution,
        tensor_cores=True,
        tf32_by_default=True,
        product=windows.conv_product(windows.conv_transpose_flops),
        **GEMM_TRAINING,  # type: ignore[arg-type]
    )


def collective(
    output: Callable[[Shapes, Attributes], Shape], flops: Callable[[Shapes, Attributes, Shape], int]
) -> Kind:
    """What the GPUs of a group do together over their link; an operation is one GPU's part of it."""
    return Kind(
        family="movement",
        attributes={
            "gpus": Attribute(COUNT),
            "link": Attribute(one_of("nvlink", "pcie"), "nvlink"),
            "implementation": Attribute(one_of(*IMPLEMENTATIONS), "pytorch"),
        },
        output=output,
        flops=flops,
        backward_flops=0.0,
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(output=1),
        measured_only=True,
    )


def unary(flops: int = 1) -> Kind:
    """A function of each element, with so many FLOPs."""
    return Kind(family="elementwise", output=rules.same, flops=rules.per_output_element(flops))


def normalization(
    parameters: Callable[[Shapes, Attributes], int],
    flops: int,
    output: Callable[[Shapes, Attributes], Shape] = rules.same,
    **attributes: Attribute,
) -> Kind:
    """A normalization with so many FLOPs per element, and the parameters that `affine` switches on or off."""
    # Train mode passes over the input twice (statistics, then normalizing); so does the backward, over x and dy.
    return Kind(
        family="normalization",
        attributes={**attributes, "affine": Attribute(FLAG, True)},
        output=output,
        flops=rules.per_output_element(flops),
        parameters=parameters,
        training_reads=Traffic(inputs=4, output=2, parameters=2),
    )


def addition() -> Kind:
    """A sum or difference of two tensors, or of one and a number."""
    # The gradient of a sum is its output's, with no kernel of its own.
    return _binary(Traffic(inputs=1), Traffic(output=1), broadcast=(1, 0))


def product() -> Kind:
    """A product, quotient or power of two tensors, or of one and a number."""
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


# Backward, the gradient of a sum is spread over what was summed.
_SPREAD_READS, _SPREAD_WRITES = Traffic(inputs=1, output=1), Traffic(inputs=1, output=1)


def reduction(flops: int, training_reads: Traffic = _SPREAD_READS, training_writes: Traffic = _SPREAD_WRITES) -> Kind:
    """Some dimensions become one number each, with so many FLOPs per element of the input."""
    return Kind(
        family="pooling",
        attributes={"dim": Attribute(DIMENSIONS, None), "keepdim": Attribute(FLAG, False)},
        output=rules.reduction_output,
        flops=rules.per_input_element(flops),
        training_reads=training_reads,
        training_writes=training_writes,
    )


def without_backward(family: Family, flops: int, reads: int, writes: int = 1) -> Kind:
    """What training does on top of forwards and backwards."""
    return Kind(
        family=family,
        output=rules.same,
        flops=rules.per_output_element(flops),
        has_gradient=False,
        backward_flops=0.0,
        reads=Traffic(inputs=reads),
        writes=Traffic(output=writes),
        training_reads=Traffic(inputs=reads),
        training_writes=Traffic(output=writes),
    )


def noise(**attributes: Attribute) -> Kind:
    """A product with random numbers in training, nothing in inference."""
    return Kind(
        family="elementwise",
        attributes={"p": Attribute(PROBABILITY, 0.5), **attributes},
        output=rules.same,
        flops=rules.per_output_element(1),
        is_noise=True,
    )


def pooling(dimensions: int, *further: str) -> Kind:
    """A window over so many spatial dimensions; `further` names attributes that not all of them have."""
    return Kind(
        family="pooling",
        attributes={name: a for name, a in POOL_ATTRIBUTES.items() if name != "dilation" or name in further},
        output=windows.pool_output(dimensions),
        flops=windows.pool_flops,
        training_reads=Traffic(inputs=1, output=2),
    )


def adaptive_pooling(dimensions: int) -> Kind:
    """Pooling to a given size."""
    return Kind(
        family="pooling",
        attributes={"output_size": Attribute(OUTPUT_SIZE, 1)},
        output=windows.adaptive_pool_output(dimensions),
        flops=rules.per_input_element(1),
        training_reads=Traffic(inputs=1, output=1),
    )


def recurrent(gates: int, **attributes: Attribute) -> Kind:
    """A recurrent layer with so many gates, run by cuDNN as a whole.

    Backward, the gradients of the gates are written, and read for those of the input, of the hidden states and of both
    weights; the gates themselves are read once.
    """
    return Kind(
        family="matmul",
        attributes={
            "hidden_size": Attribute(COUNT),
            "num_layers": Attribute(COUNT, 1),
            "bidirectional": Attribute(FLAG, False),
            "bias": Attribute(FLAG, True),
            **attributes,
        },
        output=recurrence.recurrent_output,
        flops=recurrence.recurrent_flops(gates),
        parameters=recurrence.recurrent_parameters(gates),
        backward_flops=2.0,
        reads=Traffic(inputs=1, parameters=1, workspace=1),
        writes=Traffic(output=1, workspace=1),
        training_reads=Traffic(inputs=2, output=2, parameters=2, workspace=4),
        training_writes=Traffic(inputs=1, output=1, parameters=1, workspace=2),
        tensor_cores=True,
        tf32_by_default=True,
        product=recurrence.recurrent_product(gates),
        steps=recurrence.recurrent_steps,
        storage=storage.gated(gates),
    )


def looking_up(output: Callable[[Shapes, Attributes], Shape]) -> Kind:
    """Elements or slices of an input at places that an index tells.

    The gradient is zero but where they were: written as a whole, and added to there.
    """
    return Kind(
        family="movement",
        inputs=(2, 2),
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=output,
        flops=rules.per_output_element(0),
        reads=Traffic(inputs=1),
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=2, workspace=1),
        storage=storage.looked_up,
    )
