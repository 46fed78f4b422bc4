"""The table of operation kinds. One row contains everything that joulecast knows about a kind.

To add a kind, add a row to KINDS. To find it in models as well, add a row in `extraction/operators.py`. A row gives the
attributes, the output shape, the FLOPs and the memory traffic, by these conventions:

- A multiply-add is two FLOPs. Kinds that `torch.utils.flop_counter` counts have the same FLOPs here, so the bias of a
  linear layer or a convolution is not counted. All other kinds have an estimate of the arithmetic per element.
- Traffic is the least that kernels without fusion move: each kernel reads its inputs and writes its outputs once.
- A training operation is its forward in train mode and its backward, which computes the gradients of inputs and
  parameters, or those of them that its attribute `gradients` names (`kind.GRADIENTS`).
  For a convolution or a linear layer, the backward has twice the FLOPs of the forward.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import parallel, rules, storage, transforms
from .attributes import (
    COUNT,
    DIMENSION,
    DIMENSIONS,
    FLAG,
    IMPLEMENTATIONS,
    NORM,
    PRECISIONS,
    SHAPE,
    SOME_DIMENSIONS,
    Attribute,
    integer,
    one_of,
    sizes,
)
from .kind import Kind, Traffic
from .rows import (
    GEMM_PARTIAL,
    GEMM_TRAINING,
    INDEX_KINDS,
    adaptive_pooling,
    binary,
    collective,
    convolution,
    last_dimension,
    noise,
    normalization,
    pooling,
    recurrent,
    reduction,
    unary,
    without_backward,
)
from .rules import size

_IMPLEMENTATION = Attribute(one_of(*IMPLEMENTATIONS), "pytorch", refinement=True)

# Functions of each element.
_FLOPS_OF_AN_ELEMENT = {
    "relu6": 2, "leaky_relu": 2, "prelu": 2, "elu": 4, "gelu": 8, "silu": 5, "mish": 8, "softplus": 5, "sigmoid": 4,
    "tanh": 6, "hardtanh": 2, "hardsigmoid": 4, "hardswish": 5, "clamp": 2, "exp": 2, "log": 2, "sqrt": 1, "rsqrt": 2,
    "abs": 1, "neg": 1, "sin": 4, "cos": 4,
}  # fmt: skip

KINDS: Mapping[str, Kind] = {
    **{f"conv{n}d": convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": convolution(n, transposed=True) for n in (1, 2, 3)},
    "linear": Kind(
        family="matmul",
        attributes={
            "out_features": Attribute(COUNT),
            "bias": Attribute(FLAG, True),
            # One scale for 128 elements of a row and for 128 x 128 weights, instead of one for a tensor or a row.
            "block_scaled": Attribute(FLAG, False, refinement=True),
            "implementation": _IMPLEMENTATION,
        },
        output=rules.linear_output,
        flops=rules.linear_flops,
        parameters=rules.linear_parameters,
        tensor_cores=True,
        quantized=("fp8", "nvfp4", "int8"),
        storage=storage.linear,
        product=rules.linear_product,
        partial=GEMM_PARTIAL,
        **GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "matmul": Kind(
        family="matmul",
        inputs=(2, 2),
        output=rules.matmul_output,
        flops=lambda x, attributes, out: 2 * size(out) * x[0][-1],
        tensor_cores=True,
        product=rules.matmul_product,
        **GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "attention": Kind(
        family="attention",
        inputs=(3, 3),
        # window: number of keys that a query sees, including its own; None for all keys. cache_precision: precision in
        # which keys and values are stored; None for the precision of the operation.
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
        # The forward has two products. The backward has four, and computes the scores again instead of storing them
        # (Dao et al., "FlashAttention", 2022).
        backward_flops=2.0,
        recomputed_flops=0.5,
        training_reads=Traffic(inputs=2, output=2),
        tensor_cores=True,
        product=rules.matmul_product,
    ),
    # The rows are sorted by expert, and one kernel multiplies the rows of every expert by the matrix of that expert.
    "grouped_linear": Kind(
        family="matmul",
        attributes={"out_features": Attribute(COUNT), "num_experts": Attribute(COUNT), "bias": Attribute(FLAG, False)},
        output=rules.linear_output,
        flops=rules.linear_flops,
        parameters=rules.experts_parameters,
        tensor_cores=True,
        product=rules.linear_product,
        partial=GEMM_PARTIAL,
        storage=storage.of_experts,
        **GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "lstm": recurrent(4, proj_size=Attribute(integer(0), 0)),
    "gru": recurrent(3),
    "rnn": recurrent(1),
    # Distances between all pairs of points. The backward computes the differences again for each of the two inputs.
    "cdist": Kind(
        family="matmul",
        inputs=(2, 2),
        attributes={"p": Attribute(NORM, 2.0)},
        output=transforms.cdist_output,
        # A difference, a power and an addition for every coordinate of every pair of points.
        flops=lambda x, attributes, out: 3 * size(out) * x[0][-1],
        backward_flops=2.0,
        training_reads=Traffic(inputs=3, output=4),
        product=transforms.cdist_product,
    ),
    "batch_norm": normalization(rules.channel_parameters, 4),
    "group_norm": normalization(rules.channel_parameters, 6, rules.group_norm_output, num_groups=Attribute(COUNT)),
    "layer_norm": normalization(rules.row_parameters(2), 6, normalized_shape=Attribute(SHAPE, last_dimension)),
    "rms_norm": normalization(rules.row_parameters(1), 4, normalized_shape=Attribute(SHAPE, last_dimension)),
    "relu": unary(saves_output=False),
    **{kind: unary(flops) for kind, flops in _FLOPS_OF_AN_ELEMENT.items()},
    "softmax": Kind(
        family="softmax",
        attributes={"dim": Attribute(DIMENSION, -1)},
        output=rules.same_along_dimension,
        flops=rules.per_output_element(5),
        training_reads=Traffic(inputs=1, output=2),
    ),
    # The sum of all elements up to each position. The backward flips the gradient, sums it likewise, and flips it back.
    "cumsum": Kind(
        family="softmax",
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=rules.same_along_dimension,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=1, output=3),
        training_writes=Traffic(output=4),
    ),
    **dict.fromkeys(("add", "sub"), binary(is_product=False)),
    **dict.fromkeys(("mul", "div", "pow"), binary(is_product=True)),
    # Comparisons, and logical operations on truth values. A truth value takes one byte.
    "compare": Kind(
        family="elementwise",
        inputs=(1, 2),
        output=rules.broadcast_inputs,
        flops=rules.per_output_element(1),
        has_gradient=False,
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(output=1),
        storage=storage.with_types({}, output=storage.MASK_BYTES),
    ),
    "complex_mul": Kind(
        family="elementwise",
        inputs=(2, 2),
        output=transforms.complex_output,
        # Four products and two sums for each pair of numbers.
        flops=rules.per_output_element(3),
        backward_flops=2.0,
        training_reads=Traffic(inputs=2, output=2),
        broadcast_reads=1,
        broadcast_writes=1,
    ),
    # If a tensor is used twice, autograd adds up its two gradients.
    "gradient_accumulation": without_backward("elementwise", flops=1, reads=2),
    # One step of an optimizer in PyTorch's default implementation on a GPU ("foreach"), which updates many tensors per
    # kernel. Each line of _multi_tensor_sgd and _multi_tensor_adam (torch/optim) is a kernel with its own reads and
    # writes. With fused=True, a single kernel reads parameters, gradients and moments, and writes all but the gradients
    # (aten/src/ATen/native/cuda/fused_adam_utils.cuh).
    "sgd_step": without_backward("elementwise", flops=2, reads=2, moments=0),
    "adam_step": without_backward("elementwise", flops=13, reads=11, writes=7, moments=2),
    "adamw_step": without_backward("elementwise", flops=14, reads=12, writes=8, moments=2),
    "sgd_fused_step": without_backward("elementwise", flops=2, reads=2, moments=0),
    "adam_fused_step": without_backward("elementwise", flops=13, reads=4, writes=3, moments=2),
    "adamw_fused_step": without_backward("elementwise", flops=14, reads=4, writes=3, moments=2),
    "dropout": noise(),
    "stochastic_depth": noise(mode=Attribute(one_of("row", "batch"), "row")),
    "max_pool2d": pooling(2, "dilation", saves_indices=True),
    "avg_pool2d": pooling(2),
    "adaptive_avg_pool2d": adaptive_pooling(2),
    "max_pool3d": pooling(3, "dilation", saves_indices=True),
    "avg_pool3d": pooling(3),
    "adaptive_avg_pool3d": adaptive_pooling(3),
    "adaptive_max_pool2d": adaptive_pooling(2, saves_indices=True),
    "mean": reduction(1),
    "sum": reduction(1),
    "norm": reduction(2),
    # The backward computes a mask of the elements that equal the result, counts them, and divides the gradient by that
    # number.
    "max": reduction(1, Traffic(inputs=3, output=2), Traffic(inputs=2, output=2)),
    "argmax": Kind(
        family="pooling",
        attributes={"dim": Attribute(DIMENSIONS, None), "keepdim": Attribute(FLAG, False)},
        output=rules.reduction_output,
        flops=rules.per_input_element(1),
        has_gradient=False,
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(output=1),
        storage=storage.with_types({}, output=storage.INDEX_BYTES),
    ),
    # One pass computes the mean and the sum of squares. The backward writes x - mean(x), and then scales it.
    "var": reduction(4, Traffic(inputs=3, output=1), Traffic(inputs=2, output=1)),
    "prod": reduction(1, Traffic(inputs=2, output=2)),
    # The forward finds the maximum and sums exp(x - max). The backward computes softmax(x) times the gradient.
    "logsumexp": reduction(5, Traffic(inputs=3, output=3)),
    "cat": Kind(
        family="movement",
        inputs=(1, 4096),
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=rules.cat_output,
        # In the backward, the gradient of each input is a view of the output's gradient.
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(output=1),
    ),
    "copy": Kind(family="movement", training_reads=Traffic(inputs=1, output=1), saves_output=False),
    # The copy of its input that an in-place operator makes in training if its backward needs that input.
    "save_input": without_backward("movement", flops=0, reads=1),
    # The input of a part of a model in torch.utils.checkpoint, which is kept for the backward. It runs no kernel.
    "checkpoint": Kind(
        family="movement",
        has_gradient=False,
        **dict.fromkeys(("reads", "writes", "training_reads", "training_writes"), Traffic()),  # type: ignore[arg-type]
    ),
    "embedding": Kind(
        family="movement",
        attributes={"num_embeddings": Attribute(COUNT), "embedding_dim": Attribute(COUNT)},
        output=lambda x, attributes: (*x[0], attributes["embedding_dim"]),
        parameters=rules.embedding_parameters,
        storage=storage.with_types({0: storage.INDEX_BYTES}),
        # The forward reads only the rows that are looked up. The gradient is as large as the whole table.
        reads=Traffic(inputs=1, output=1),
        training_reads=Traffic(inputs=2, output=3),
        training_writes=Traffic(output=2, parameters=1),
    ),
    **INDEX_KINDS,
    # The backward adds the gradient of each output element to the input elements that it was interpolated from.
    "interpolate": Kind(
        family="pooling",
        attributes={
            "output_size": Attribute(sizes(1)),
            "mode": Attribute(one_of("nearest", "linear", "cubic"), "nearest"),
        },
        output=transforms.interpolate_output,
        flops=transforms.interpolate_flops,
        training_reads=Traffic(inputs=1, output=1),
        training_writes=Traffic(inputs=2, output=1),
    ),
    # Means of samples in each cell of a box, as torchvision's detectors take them. The boxes are an attribute, because
    # their coordinates are few.
    "roi_align": Kind(
        family="pooling",
        attributes={
            "boxes": Attribute(COUNT),
            "output_size": Attribute(sizes(1)),
            "sampling_ratio": Attribute(integer(1), 2),
        },
        output=transforms.roi_align_output,
        # Both dimensions of each sample are interpolated linearly, with 3 FLOPs.
        flops=lambda x, attributes, out: 2 * 3 * size(out) * attributes["sampling_ratio"] ** 2,
        training_reads=Traffic(inputs=1, output=1),
        training_writes=Traffic(inputs=2, output=1),
    ),
    "grid_sample": Kind(
        family="pooling",
        inputs=(2, 2),
        attributes={"mode": Attribute(one_of("nearest", "linear", "cubic"), "linear")},
        output=transforms.grid_sample_output,
        flops=transforms.interpolate_flops,
        backward_flops=2.0,
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(inputs=2, output=1),
    ),
    # form: complex to complex (c2c), real to complex (r2c) or complex to real (c2r). last_size: size of the last
    # transformed dimension of the real output; None for 2 (n - 1), where n is its size in the input.
    "fft": Kind(
        family="movement",
        attributes={
            "dim": Attribute(SOME_DIMENSIONS, -1),
            "form": Attribute(one_of("c2c", "r2c", "c2r"), "c2c"),
            "last_size": Attribute(COUNT.or_none(), None),
        },
        output=transforms.fft_output,
        flops=transforms.fft_flops,
        reads=Traffic(inputs=1, workspace=1),
        writes=Traffic(output=1, workspace=1),
        training_reads=Traffic(inputs=1, output=1, workspace=2),
        training_writes=Traffic(inputs=1, output=1, workspace=2),
        storage=storage.passed,
    ),
    # A tensor of random numbers.
    "random": Kind(
        family="elementwise",
        flops=rules.per_output_element(10),
        has_gradient=False,
        reads=Traffic(),
        training_reads=Traffic(),
        training_writes=Traffic(output=1),
    ),
    # A mixture of experts as one call, as in inference engines: it sorts the tokens by expert, computes the products of
    # all experts, and adds up their outputs.
    "experts": Kind(
        family="matmul",
        attributes={
            "intermediate": Attribute(COUNT),
            "top_k": Attribute(COUNT),
            "experts": Attribute(COUNT),
            "tensor_parallel": Attribute(COUNT, 1),
            "expert_parallel": Attribute(COUNT, 1),
            # How tokens are distributed: evenly over all experts, or by a power law of the experts' rank.
            "distribution": Attribute(one_of("balanced", "power_law_1.01", "power_law_1.2"), "balanced"),
            "block_scaled": Attribute(FLAG, False),
            "implementation": Attribute(one_of(*IMPLEMENTATIONS), "pytorch"),
        },
        output=parallel.experts_output,
        flops=parallel.experts_flops,
        parameters=parallel.experts_parameters,
        storage=parallel.experts_storage,
        tensor_cores=True,
        quantized=("fp8", "nvfp4"),
        measured_only=True,
        **GEMM_TRAINING,  # type: ignore[arg-type]
    ),
    "all_reduce": collective(parallel.as_large, adds=True),
    "all_gather": collective(parallel.gathered),
    "reduce_scatter": collective(parallel.scattered, adds=True),
    "all_to_all": collective(parallel.as_large),
}
