"""Rows of the table of kinds that several kinds share, such as convolutions over any number of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, log2, prod

from . import parallel, rules, storage, transforms
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
from .kind import Family, Kind, Traffic, Training
from .rules import Attributes, Shape, Shapes, size


def last_dimension(shapes: Shapes) -> Shape:
    """Default of normalized_shape: the last dimension of the input."""
    return shapes[0][-1:]


CONV_ATTRIBUTES = {
    "out_channels": Attribute(COUNT),
    "kernel_size": Attribute(sizes(1)),
    "stride": Attribute(sizes(1), 1),
    "padding": Attribute(either(sizes(0), one_of("same", "valid")), 0),
    "dilation": Attribute(sizes(1), 1),
    "groups": Attribute(COUNT, 1),
    "bias": Attribute(FLAG, True),
    # A single kernel: the forward or one of the two gradients. An operation of training stands for all three.
    "direction": Attribute(one_of("forward", "input_gradient", "weight_gradient"), "forward", refinement=True),
}
POOL_ATTRIBUTES = {
    "kernel_size": Attribute(sizes(1)),
    "stride": Attribute(sizes(1).or_none(), None),
    "padding": Attribute(sizes(0), 0),
    "dilation": Attribute(sizes(1), 1),
    "ceil_mode": Attribute(FLAG, False),
}
# The forward reads x and w, the input gradient reads dy and w, and the weight gradient reads x and dy.
GEMM_TRAINING = {
    "backward_flops": 2.0,
    "training_reads": Traffic(inputs=2, output=2, parameters=2),
    "training_writes": Traffic(inputs=1, output=1, parameters=1),
}
GEMM_PARTIAL = {
    "inputs": Training(1.0, Traffic(inputs=1, output=1, parameters=2), Traffic(inputs=1, output=1)),
    "parameters": Training(1.0, Traffic(inputs=2, output=1, parameters=1), Traffic(output=1, parameters=1)),
}


def convolution(dimensions: int, *, transposed: bool = False) -> Kind:
    """A convolution over this number of spatial dimensions, transposed or not."""
    attributes, output, flops = CONV_ATTRIBUTES, transforms.conv_output, transforms.conv_flops
    if transposed:
        attributes = {**attributes, "padding": Attribute(sizes(0), 0), "output_padding": Attribute(sizes(0), 0)}
        output, flops = transforms.conv_transpose_output, transforms.conv_transpose_flops
    return Kind(
        family="convolution",
        attributes=attributes,
        output=output(dimensions),
        flops=flops,
        parameters=transforms.conv_parameters,
        storage=storage.convolution,
        tensor_cores=True,
        tf32_by_default=True,
        product=transforms.conv_product(flops),
        partial=GEMM_PARTIAL,
        spatial=dimensions,
        transforms=dimensions == 2 and not transposed,
        **GEMM_TRAINING,  # type: ignore[arg-type]
    )


def collective(output: Callable[[Shapes, Attributes], Shape], *, adds: bool = False) -> Kind:
    """A collective of a group of GPUs over their link; the operation is the part of one GPU."""
    return Kind(
        family="movement",
        attributes={
            "gpus": Attribute(COUNT),
            "link": Attribute(one_of("nvlink", "pcie"), "nvlink"),
            "implementation": Attribute(one_of(*IMPLEMENTATIONS), "pytorch"),
        },
        output=output,
        flops=parallel.additions if adds else rules.per_output_element(0),
        backward_flops=0.0,
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(output=1),
        measured_only=True,
    )


def unary(flops: int = 1, *, saves_output: bool = True) -> Kind:
    """A function of each element, with this number of FLOPs per element."""
    return Kind(family="elementwise", flops=rules.per_output_element(flops), saves_output=saves_output)


def normalization(
    parameters: Callable[[Shapes, Attributes], int],
    flops: int,
    output: Callable[[Shapes, Attributes], Shape] = rules.same,
    **attributes: Attribute,
) -> Kind:
    """A normalization with this number of FLOPs per element; the attribute `affine` says whether it has parameters."""
    # In training, the forward reads the input twice (for statistics, then to normalize). So does the backward, which
    # reads x and dy.
    return Kind(
        family="normalization",
        attributes={**attributes, "affine": Attribute(FLAG, True)},
        output=output,
        flops=rules.per_output_element(flops),
        parameters=parameters,
        training_reads=Traffic(inputs=4, output=2, parameters=2),
        # Both gradients come from the same sums over x and dy; that of the input takes another pass over them.
        partial={
            "inputs": Training(1.0, Traffic(inputs=4, output=2, parameters=2), Traffic(inputs=1, output=1)),
            "parameters": Training(0.5, Traffic(inputs=3, output=1, parameters=1), Traffic(output=1, parameters=1)),
            "none": Training(0.0, Traffic(inputs=2, parameters=1), Traffic(output=1)),
        },
    )


def binary(*, is_product: bool) -> Kind:
    """A sum or difference of two tensors, or of a tensor and a number; or a product, quotient or power."""
    # The gradient of each summand is the gradient of the output, which needs no kernel. That of each factor is a
    # product again; that of a broadcast factor is written in full and then summed.
    return Kind(
        family="elementwise",
        inputs=(1, 2),
        output=rules.broadcast_inputs,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=2, output=2) if is_product else Traffic(inputs=1),
        training_writes=Traffic(inputs=1, output=1) if is_product else Traffic(output=1),
        broadcast_reads=1,
        broadcast_writes=1 if is_product else 0,
        saves_output=is_product,
    )


# In the backward, the gradient of a sum is copied to every element that was summed.
_SPREAD_READS, _SPREAD_WRITES = Traffic(inputs=1, output=1), Traffic(inputs=1, output=1)


def reduction(flops: int, training_reads: Traffic = _SPREAD_READS, training_writes: Traffic = _SPREAD_WRITES) -> Kind:
    """A reduction over some dimensions, with this number of FLOPs per element of the input."""
    return Kind(
        family="pooling",
        attributes={"dim": Attribute(DIMENSIONS, None), "keepdim": Attribute(FLAG, False)},
        output=rules.reduction_output,
        flops=rules.per_input_element(flops),
        training_reads=training_reads,
        training_writes=training_writes,
    )


def without_backward(family: Family, flops: int, reads: int, writes: int = 1, moments: int | None = None) -> Kind:
    """An operation that only training has and that has no backward, such as an optimizer's step.

    The FLOPs are those per element of the output; `reads` and `writes` say how often inputs and output pass memory, and
    `moments` how many values per parameter the step of an optimizer stores.
    """
    return Kind(
        family=family,
        flops=rules.per_output_element(flops),
        has_gradient=False,
        reads=Traffic(inputs=reads),
        writes=Traffic(output=writes),
        training_reads=Traffic(inputs=reads),
        training_writes=Traffic(output=writes),
        saves_output=False,
        moments=moments,
    )


def noise(**attributes: Attribute) -> Kind:
    """A product with random numbers in training. In inference, it does nothing."""
    return Kind(
        family="elementwise",
        attributes={"p": Attribute(PROBABILITY, 0.5), **attributes},
        flops=rules.per_output_element(1),
        is_noise=True,
        saves_output=False,
    )


def pooling(dimensions: int, *further: str, saves_indices: bool = False) -> Kind:
    """Pooling with a window over this number of spatial dimensions; `further` may name the attribute dilation."""
    return Kind(
        family="pooling",
        attributes={name: a for name, a in POOL_ATTRIBUTES.items() if name != "dilation" or name in further},
        output=transforms.pool_output(dimensions),
        # One operation per output element and position of the window.
        flops=lambda x, attributes, out: (
            size(out) * prod(transforms.per_dimension(attributes["kernel_size"], dimensions))
        ),
        training_reads=Traffic(inputs=1, output=2),
        spatial=dimensions,
        saves_indices=saves_indices,
    )


def adaptive_pooling(dimensions: int, *, saves_indices: bool = False) -> Kind:
    """Pooling to a given output size."""
    return Kind(
        family="pooling",
        attributes={"output_size": Attribute(OUTPUT_SIZE, 1)},
        output=transforms.adaptive_pool_output(dimensions),
        flops=rules.per_input_element(1),
        training_reads=Traffic(inputs=1, output=1),
        spatial=dimensions,
        saves_indices=saves_indices,
    )


def recurrent(gates: int, **attributes: Attribute) -> Kind:
    """A recurrent layer with this number of gates, which cuDNN runs as a whole.

    The backward reads the gates once and writes their gradients. It reads these again to compute the gradients of the
    input, of the hidden states and of both weights.
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
        output=transforms.recurrent_output,
        flops=transforms.recurrent_flops(gates),
        parameters=transforms.recurrent_parameters(gates),
        backward_flops=2.0,
        reads=Traffic(inputs=1, parameters=1, workspace=1),
        writes=Traffic(output=1, workspace=1),
        training_reads=Traffic(inputs=2, output=2, parameters=2, workspace=4),
        training_writes=Traffic(inputs=1, output=1, parameters=1, workspace=2),
        partial={
            "inputs": Training(
                1.0, Traffic(inputs=1, output=1, parameters=2, workspace=3), Traffic(inputs=1, output=1, workspace=2)
            )
        },
        tensor_cores=True,
        tf32_by_default=True,
        product=transforms.recurrent_product(gates),
        # A layer can start as soon as the layer below has finished one step.
        steps=lambda x, attributes: x[0][0] + attributes["num_layers"] - 1,
        storage=storage.gated(gates),
    )


def looking_up(output: Callable[[Shapes, Attributes], Shape]) -> Kind:
    """A look-up of elements or slices of an input at positions given by an index.

    The backward writes a gradient of zeros for the whole input, and adds to it at these positions.
    """
    return Kind(
        family="movement",
        inputs=(2, 2),
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=output,
        reads=Traffic(inputs=1),
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=2, workspace=1),
        storage=storage.looked_up,
    )


# Rows of the table of kinds for operations with indices or masks: look-ups, scattering, masking and sorting.

INDEX_KINDS: Mapping[str, Kind] = {
    # A mask and two values for each element. Backward: the gradient of each value is that of the output, or zero.
    "where": Kind(
        family="elementwise",
        inputs=(1, 3),
        output=rules.broadcast_inputs,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=1, output=2),
        training_writes=Traffic(output=3),
        storage=storage.with_types({0: storage.MASK_BYTES}),
    ),
    # Works in place; operators that do not are extracted with a copy before. The backward fills a copy of the gradient.
    "masked_fill": Kind(
        family="elementwise",
        inputs=(2, 2),
        output=rules.masked_fill_output,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=3),
        storage=storage.with_types({1: storage.MASK_BYTES}),
    ),
    "embedding_bag": Kind(
        family="movement",
        inputs=(2, 2),
        attributes={"num_embeddings": Attribute(COUNT), "embedding_dim": Attribute(COUNT)},
        output=rules.embedding_bag_output,
        flops=lambda x, attributes, out: size(x[0]) * out[-1],  # one addition for each element that is looked up
        parameters=rules.embedding_parameters,
        storage=storage.bags,
        reads=Traffic(inputs=1),
        # The backward writes a gradient of zeros for the whole table, and adds to the rows that were looked up.
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=1, parameters=1, workspace=1),
    ),
    "gather": looking_up(rules.gather_output),
    "index_select": looking_up(rules.index_select_output),
    # Works in place, like masked_fill. In the backward, the gradient of the source is looked up.
    "scatter": Kind(
        family="movement",
        inputs=(3, 3),
        attributes={"accumulate": Attribute(FLAG, False)},
        output=rules.scatter_output,
        flops=lambda x, attributes, out: size(x[1]) if attributes["accumulate"] else 0,
        backward_flops=0.0,
        reads=Traffic(inputs=1),
        training_reads=Traffic(inputs=2, workspace=1),
        training_writes=Traffic(output=2, workspace=1),
        storage=storage.scattered,
    ),
    # Writes zeros, then a one for each class index.
    "one_hot": Kind(
        family="movement",
        attributes={"num_classes": Attribute(COUNT)},
        output=lambda x, attributes: (*x[0], attributes["num_classes"]),
        has_gradient=False,
        writes=Traffic(inputs=1, output=1),
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(inputs=1, output=1),
        storage=storage.with_types({0: storage.INDEX_BYTES}, output=storage.INDEX_BYTES),
    ),
    # The backward writes zeros, and then each gradient to the original position of its value.
    "sort": Kind(
        family="movement",
        attributes={"dim": Attribute(DIMENSION, -1)},
        output=rules.same_along_dimension,
        # About the least number of comparisons: log2 n for each element of a row of n.
        flops=lambda x, attributes, out: size(x[0]) * ceil(log2(max(rules.row_length(x, attributes), 2))),
        backward_flops=0.0,
        reads=Traffic(inputs=1, workspace=1),
        writes=Traffic(output=1, workspace=1),
        training_reads=Traffic(inputs=1, output=1, workspace=1),
        training_writes=Traffic(inputs=2, output=1, workspace=1),
        storage=storage.ranked,
    ),
    "topk": Kind(
        family="movement",
        attributes={"k": Attribute(COUNT), "dim": Attribute(DIMENSION, -1)},
        output=rules.topk_output,
        flops=rules.per_input_element(1),
        backward_flops=0.0,
        # A radix select finds the k-th largest value, eight bits per pass; one more pass gathers all values that are
        # larger (TensorTopK.cu of PyTorch).
        reads=Traffic(inputs=5),
        training_reads=Traffic(inputs=5, output=1),
        training_writes=Traffic(inputs=1, output=2),
        storage=storage.largest,
    ),
}
