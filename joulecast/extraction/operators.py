"""The table of PyTorch's operators: which operator is converted to which kind of operation.

To find a kind in models, add a row to OPERATORS. An operator that is in none of the tables is decomposed if PyTorch
defines it in terms of others. Operators that remain unknown are reported as dropped. The file is long because the whole
table is in one place, where a reader can search it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..operations.kinds import KINDS
from . import conversions
from .conversions import Bound, Converted, binary, call, given, reduction, result_of, shape_of

WHITELIST: frozenset[str] = frozenset(KINDS)
"""The kinds that extraction includes by default: all of them."""


def _affine(kind: str, **attributes: str) -> Callable[[Bound], Converted]:
    """A normalization; `attributes` maps its attributes to the operator's arguments."""
    return call(kind, "input", **attributes, affine=given("weight"))


def _pool(kind: str, *names: str) -> Callable[[Bound], Converted]:
    same = {name: name for name in ("kernel_size", "padding", "ceil_mode", *names)}
    return call(kind, "self", **same, stride=lambda bound: bound["stride"] or bound["kernel_size"])


def _interpolation(mode: str) -> Callable[[Bound], Converted]:
    return call(
        "interpolate", "<first>", output_size=lambda bound: tuple(result_of(bound).shape[2:]), mode=lambda bound: mode
    )


_GRID_MODES = ("linear", "nearest", "cubic")  # As torch.ops.aten.grid_sampler numbers them.


COMPARISONS: tuple[str, ...] = (
    *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf", "isfinite"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__"),
)
"""Operators whose results are truth values."""

LOSSES: tuple[str, ...] = (
    *("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
)
"""Losses of two tensors. The cost of summing their elements is negligible."""

ALIKE: Mapping[str, tuple[str, ...]] = {
    "neg": ("floor", "ceil", "round", "trunc", "frac", "sign", "sgn", "_conj_physical", "conj_physical", "angle"),
    "abs": ("square",),
    "hardtanh": ("hardshrink", "softshrink", "threshold"),
    "div": ("reciprocal",),
    "exp": ("exp2", "expm1", "sinh", "cosh"),
    "log": ("log1p", "log2", "log10", "logit"),
    "sin": ("tan", "sinc"),
    "tanh": ("erf", "erfc", "erfinv", "atan", "asin", "acos", "atanh", "asinh", "acosh"),
    "softplus": ("log_sigmoid_forward",),
    "elu": ("celu", "selu"),
    "sigmoid": ("glu",),
    "leaky_relu": ("rrelu_with_noise",),
}
"""Kind -> operators of one tensor without a kind of their own that cost about as much as this kind."""

OPERATORS: Mapping[str, Callable[[Bound], Converted]] = {
    **{f"conv{n}d": conversions.convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": lambda bound: conversions.convolution({**bound, "transposed": True}) for n in (1, 2, 3)},
    "convolution": conversions.convolution,  # of exported programs
    "linear": conversions.linear("input", "weight", 0, given("bias")),
    # A product with a bias is a linear layer, such as GPT-2's Conv1D.
    "addmm": conversions.linear("mat1", "mat2", 1, lambda bound: True),
    # A product of quantized matrices, with one scale per tensor, per row, or per block of a row.
    "_scaled_mm": call(
        "linear",
        "self",
        out_features=lambda bound: bound["mat2"].shape[1],
        bias=given("bias"),
        block_scaled=lambda bound: bound["scale_a"].ndim == 2 and bound["scale_a"].shape[1] > 1,
    ),
    # "matmul" is not listed: its decomposition includes the copies that prepare its operands for a batched product.
    **dict.fromkeys(("mm", "bmm"), conversions.matmul("self", "mat2")),
    "baddbmm": conversions.matmul("batch1", "batch2"),
    "scaled_dot_product_attention": call("attention", "query", "key", "value", causal="is_causal"),
    "batch_norm": _affine("batch_norm"),
    "group_norm": _affine("group_norm", num_groups="num_groups"),
    "layer_norm": _affine("layer_norm", normalized_shape="normalized_shape"),
    "rms_norm": _affine("rms_norm", normalized_shape="normalized_shape"),
    **{
        kind: call(kind, "<first>")
        for kind in KINDS
        if KINDS[kind].family == "elementwise" and KINDS[kind].inputs == (1, 1)
    },
    **dict.fromkeys(("clamp_min", "clamp_max"), call("clamp", "<first>")),
    **{kind: binary(kind) for kind in ("add", "sub", "pow")},
    **{kind: binary(kind, "complex_mul") for kind in ("mul", "div")},
    "rsub": binary("sub"),
    **dict.fromkeys(("addcmul", "addcdiv"), conversions.addcmul),
    "softmax": call("softmax", "self", dim="dim"),
    "dropout": conversions.dropout,  # after the elementwise kinds, because it replaces the entry of one of them
    **{f"max_pool{n}d{end}": _pool(f"max_pool{n}d", "dilation") for n in (2, 3) for end in ("", "_with_indices")},
    **{f"avg_pool{n}d": _pool(f"avg_pool{n}d") for n in (2, 3)},
    **{
        f"{start}{kind}": call(kind, "self", output_size="output_size")
        for kind in ("adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d")
        for start in ("", "_")
    },
    **{kind: reduction(kind) for kind in ("mean", "sum", "prod", "logsumexp")},
    **dict.fromkeys(("linalg_vector_norm", "norm"), reduction("norm")),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), reduction("var")),
    **dict.fromkeys(("histc", "bincount"), reduction("sum")),  # they read the whole input and write little
    **dict.fromkeys(("amax", "amin", "aminmax"), reduction("max")),
    **dict.fromkeys(("max", "min"), conversions.extreme),
    **dict.fromkeys(("argmax", "argmin", "all", "any"), reduction("argmax")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), call("cumsum", "<first>", dim="dim")),
    # PyTorch skips empty tensors here.
    "cat": lambda bound: ("cat", [shape_of(t) for t in bound["tensors"] if t.numel()], {"dim": bound["dim"]}),
    "stack": conversions.stack,
    "embedding": call(
        "embedding",
        "indices",
        num_embeddings=lambda bound: bound["weight"].shape[0],
        embedding_dim=lambda bound: bound["weight"].shape[1],
    ),
    **dict.fromkeys(
        (
            *("clone", "copy", "_to_copy", "roll", "flip", "constant_pad_nd", "repeat", "complex", "polar", "tril"),
            *("triu", "channel_shuffle", "max_unpool2d", "max_unpool3d", "affine_grid_generator"),
            *(f"{side}_pad{n}d" for side in ("reflection", "replication") for n in (1, 2, 3)),
            # One kernel that reads about as much as it writes, or less.
            *("index", "_unsafe_index", "im2col", "col2im", "pixel_shuffle", "pixel_unshuffle"),
        ),
        call("copy", "<output>"),
    ),
    "lstm": conversions.recurrent("lstm"),
    "gru": conversions.recurrent("gru"),
    **dict.fromkeys(("rnn_tanh", "rnn_relu"), conversions.recurrent("rnn")),
    "_grouped_mm": conversions.grouped_product,
    "mv": conversions.matmul("self", "vec"),
    "dot": conversions.matmul("self", "tensor"),
    "vdot": conversions.matmul("self", "other"),
    # Distances. For many points and p = 2, PyTorch computes them by a matrix product, which is about the same work.
    **dict.fromkeys(
        ("_cdist_forward", "_euclidean_dist"), call("cdist", "x1", "x2", p=lambda bound: float(bound.get("p", 2.0)))
    ),
    **{
        f"_fft_{form}": call(
            "fft",
            "self",
            dim=lambda bound: tuple(dim % bound["self"].ndim for dim in bound["dim"]),
            form=lambda bound, form=form: form,  # type: ignore[misc]
            last_size=lambda bound: bound.get("last_dim_size"),
        )
        for form in ("c2c", "r2c", "c2r")
    },
    **{
        f"{name}{n}d": _interpolation("nearest")
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for n in (1, 2, 3)
    },
    **dict.fromkeys(
        ("upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d"),
        _interpolation("linear"),
    ),
    **dict.fromkeys(("upsample_bicubic2d", "_upsample_bicubic2d_aa"), _interpolation("cubic")),
    **dict.fromkeys(
        ("grid_sampler_2d", "grid_sampler_3d"),
        call("grid_sample", "input", "grid", mode=lambda bound: _GRID_MODES[bound["interpolation_mode"]]),
    ),
    # An adaptive number of samples is taken to be 2 x 2 per cell, as detectors use.
    "torchvision.roi_align": call(
        "roi_align",
        "input",
        boxes=lambda bound: bound["rois"].shape[0],
        output_size=lambda bound: (bound["pooled_height"], bound["pooled_width"]),
        sampling_ratio=lambda bound: bound["sampling_ratio"] if bound["sampling_ratio"] > 0 else 2,
    ),
    **dict.fromkeys(
        (
            *("rand", "randn", "rand_like", "randn_like", "randint", "randperm"),
            *("normal", "uniform", "bernoulli", "exponential", "cauchy", "geometric", "log_normal"),
        ),
        call("random", "<output>"),
    ),
    "where": conversions.where,
    **dict.fromkeys(("masked_fill", "masked_scatter"), call("masked_fill", "<output>", "mask")),
    **dict.fromkeys(COMPARISONS, conversions.comparison),
    "index_select": call("index_select", "self", "index", dim="dim"),
    "gather": call("gather", "<first>", "index", dim="dim"),
    "scatter": conversions.scatter(accumulate=False),
    **dict.fromkeys(("scatter_add", "scatter_reduce"), conversions.scatter(accumulate=True)),
    "index_add": conversions.slices(accumulate=True),
    **dict.fromkeys(("index_copy", "index_fill"), conversions.slices(accumulate=False)),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), conversions.index_put),
    "one_hot": call("one_hot", "self", num_classes=lambda bound: result_of(bound).shape[-1]),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), conversions.embedding_bag),
    "sort": call("sort", "self", dim="dim"),
    "topk": call("topk", "self", k="k", dim="dim"),
    # One kernel each, with about the cost of a multiplication.
    **dict.fromkeys(
        (*("minimum", "maximum", "fmin", "fmax", "fmod", "remainder", "floor_divide", "atan2", "xlogy"), *LOSSES),
        binary("mul"),
    ),
    "nll_loss_forward": conversions.labelled,
    "lerp": conversions.lerp,
    # Each row of the weights is scaled to a given norm.
    "_weight_norm_interface": lambda bound: ("rms_norm", [shape_of(bound["v"])], {"affine": False}),
    **{name: call(kind, "<first>") for kind, names in ALIKE.items() for name in names},
    # Names that only exported programs use.
    "native_layer_norm": _affine("layer_norm", normalized_shape="normalized_shape"),
    "native_group_norm": _affine("group_norm", num_groups="group"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), _affine("batch_norm")),
    **dict.fromkeys(("_softmax", "_log_softmax", "log_softmax"), call("softmax", "self", dim="dim")),
    "native_dropout": conversions.dropout,
}
"""Operator name without overload and in-place underscore -> conversion to a kind."""

REVISIONS: Mapping[str, int] = {"gather": 2, "new_zeros": 2}
"""Operator -> revision of its row, or of how it is followed, 1 if it is not listed. Increase it when models that run it
get other operations than before. This invalidates their cached networks and templates, and no others."""

QUANTIZED_PRODUCTS: frozenset[str] = frozenset({"_scaled_mm"})
"""Operators that run in the type of their inputs and return a wider type."""

MAKES_MASKS: frozenset[str] = frozenset(
    (*COMPARISONS, "all", "any", "argmax", "cumsum", "masked_fill", "max", "maximum", "min", "minimum", "where")
)
"""Operators with which models create positions and masks. If these depend on shapes and constants alone, their cost is
negligible."""

CONTIGUOUS_INPUT: frozenset[str] = frozenset({"linear", "layer_norm", "group_norm", "rms_norm"})
"""Operators that first copy an input that is not contiguous in memory."""

CASTS_INPUT: frozenset[str] = frozenset({"softmax", "log_softmax", "cumsum", "cumprod"})
"""Operators that first cast an input that is not of the type `dtype`. On a GPU, softmax in fp32 reads fp16 as it is,
but not bf16 (aten/src/ATen/native/SoftMax.cpp, ReduceOps.cpp)."""

COPIES_INPUT: frozenset[str] = frozenset(
    """
    masked_fill masked_scatter scatter scatter_add scatter_reduce index_add index_copy index_fill index_put
    _unsafe_index_put
    """.split()  # noqa: SIM905
)
"""Operators that copy their input and change the copy, unless they work in place."""

SAVES_INPUT: frozenset[str] = frozenset({"silu", "hardswish", "hardsigmoid", "hardtanh", "mish"})
"""Operators whose backward needs their input: if they work in place, training copies the input first."""

FREE: frozenset[str] = frozenset(
    """
    alias as_strided detach diagonal expand permute select slice split split_with_sizes squeeze t transpose unbind
    unfold unsqueeze view _unsafe_view _reshape_alias view_as_real view_as_complex lift_fresh unsafe_split
    unsafe_split_with_sizes unsafe_chunk real imag _conj _neg_view resolve_conj resolve_neg empty empty_like
    empty_strided new_empty new_empty_strided scalar_tensor is_same_size sym_size sym_stride sym_numel
    sym_storage_offset
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
"""Operators that launch no kernel: views and allocations."""
