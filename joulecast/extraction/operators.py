"""The table of PyTorch's operators: which operator is converted to which kind of operation.

To find a kind in models, add a row to OPERATORS. An operator that is in none of the tables is decomposed if PyTorch
defines it in terms of others. Operators that remain unknown are reported as dropped. The file is long because the whole
table is in one place, where a reader can search it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..operations.kinds import KINDS
from ..operations.rules import size
from . import conversions
from .conversions import Bound, Converted, call, first_of, is_tensor, plain, shape_of

WHITELIST: frozenset[str] = frozenset(KINDS)
"""The kinds that extraction includes by default: all of them."""


def _affine(kind: str, **attributes: str) -> Callable[[Bound], Converted]:
    """A normalization; `attributes` maps its attributes to the operator's arguments."""

    def convert(bound: Bound) -> Converted:
        values = {name: plain(bound[argument]) for name, argument in attributes.items()}
        return kind, [shape_of(bound["input"])], {**values, "affine": bound["weight"] is not None}

    return convert


def _binary(kind: str, of_complex: str | None = None) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        operands = [value for value in list(bound.values())[:2] if is_tensor(value)]
        if any(value.dtype.is_complex for value in operands):
            # A real operand is broadcast to the real and the imaginary part.
            pairs = [shape_of(v) if v.dtype.is_complex else (*shape_of(v), 1) for v in operands if v.numel() > 1]
            both = len(pairs) == 2 and all(shape[-1] == 2 for shape in pairs)
            return of_complex if both and of_complex else kind, pairs or [(2,)], {}
        # A tensor of one element works as a scalar does.
        large = [shape_of(value) for value in operands if size(shape_of(value)) > 1] or [shape_of(operands[0])]
        return kind, [shape if shape else (1,) for shape in large], {}

    return convert


def _addcmul(bound: Bound) -> Converted:
    # One kernel: input + first * second. Usually only one of the three is as large as the output.
    shapes = sorted((shape_of(bound[name]) for name in ("self", "tensor1", "tensor2")), key=size)
    return "mul", [shape_of(bound["<output>"]) or (1,), shapes[-2] or (1,)], {}


def _lerp(bound: Bound) -> Converted:
    # One kernel: start + weight * (end - start).
    shapes = [shape_of(bound[name]) for name in ("self", "end", "weight") if is_tensor(bound[name])]
    shapes.sort(key=size)
    return "mul", [shape or (1,) for shape in shapes[-2:]], {}


def _dropout(bound: Bound) -> Converted:
    if not bound["train"] or bound["p"] == 0:
        return None
    return "dropout", [shape_of(first_of(bound))], {"p": float(bound["p"])}


def _pool(kind: str, *names: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        attributes = {name: plain(bound[name]) for name in names}
        attributes["stride"] = attributes["stride"] or attributes["kernel_size"]
        return kind, [shape_of(bound["self"])], attributes

    return convert


def _reduction(kind: str) -> Callable[[Bound], Converted]:
    def convert(bound: Bound) -> Converted:
        dim = plain(bound.get("dim"))
        keepdim = bound.get("keepdim", False)
        return kind, [shape_of(bound["self"])], {"dim": None if dim == () else dim, "keepdim": keepdim}

    return convert


def _stack(bound: Bound) -> Converted:
    shapes = [shape_of(t) for t in bound["tensors"]]
    dim = bound["dim"] % (len(shapes[0]) + 1)
    return "cat", [(*s[:dim], 1, *s[dim:]) for s in shapes], {"dim": dim}


def _embedding(bound: Bound) -> Converted:
    rows, columns = shape_of(bound["weight"])
    return "embedding", [shape_of(bound["indices"])], {"num_embeddings": rows, "embedding_dim": columns}


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
    **{f"conv{n}d": conversions.convolution(False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": conversions.convolution(True) for n in (1, 2, 3)},
    "linear": conversions.linear,
    "addmm": conversions.addmm,
    "_scaled_mm": conversions.scaled_product,
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
    **{kind: _binary(kind) for kind in ("add", "sub", "pow")},
    **{kind: _binary(kind, "complex_mul") for kind in ("mul", "div")},
    "rsub": _binary("sub"),
    **dict.fromkeys(("addcmul", "addcdiv"), _addcmul),
    "softmax": call("softmax", "self", dim="dim"),
    "dropout": _dropout,  # after the elementwise kinds, because it replaces the entry of one of them
    **{
        f"max_pool{n}d{end}": _pool(f"max_pool{n}d", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
        for n in (2, 3)
        for end in ("", "_with_indices")
    },
    **{f"avg_pool{n}d": _pool(f"avg_pool{n}d", "kernel_size", "stride", "padding", "ceil_mode") for n in (2, 3)},
    **{
        f"{start}{kind}": call(kind, "self", output_size="output_size")
        for kind in ("adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d")
        for start in ("", "_")
    },
    **{kind: _reduction(kind) for kind in ("mean", "sum", "prod", "logsumexp")},
    **dict.fromkeys(("linalg_vector_norm", "norm"), _reduction("norm")),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _reduction("var")),
    **dict.fromkeys(("histc", "bincount"), _reduction("sum")),  # they read the whole input and write little
    **dict.fromkeys(("amax", "amin", "aminmax"), _reduction("max")),
    **dict.fromkeys(("max", "min"), conversions.extreme("mul")),
    **dict.fromkeys(("argmax", "argmin", "all", "any"), _reduction("argmax")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), call("cumsum", "<first>", dim="dim")),
    # PyTorch skips empty tensors here.
    "cat": lambda bound: ("cat", [shape_of(t) for t in bound["tensors"] if t.numel()], {"dim": bound["dim"]}),
    "stack": _stack,
    "embedding": _embedding,
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
    **dict.fromkeys(("mv", "dot", "vdot"), conversions.vectors),
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist"), conversions.distances),
    **{f"_fft_{form}": conversions.fourier(form) for form in ("c2c", "r2c", "c2r")},
    **{
        f"{name}{n}d": conversions.interpolation("nearest")
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for n in (1, 2, 3)
    },
    **dict.fromkeys(
        ("upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d"),
        conversions.interpolation("linear"),
    ),
    **dict.fromkeys(("upsample_bicubic2d", "_upsample_bicubic2d_aa"), conversions.interpolation("cubic")),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), conversions.grid_sample),
    "torchvision.roi_align": conversions.roi_align,
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
    "scatter": conversions.scatter,
    **dict.fromkeys(("scatter_add", "scatter_reduce"), conversions.scatter_add),
    "index_add": conversions.slices(accumulate=True),
    **dict.fromkeys(("index_copy", "index_fill"), conversions.slices(accumulate=False)),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), conversions.index_put),
    "one_hot": conversions.one_hot,
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), conversions.embedding_bag),
    "sort": call("sort", "self", dim="dim"),
    "topk": call("topk", "self", k="k", dim="dim"),
    # One kernel each, with about the cost of a multiplication.
    **dict.fromkeys(
        (*("minimum", "maximum", "fmin", "fmax", "fmod", "remainder", "floor_divide", "atan2", "xlogy"), *LOSSES),
        _binary("mul"),
    ),
    "nll_loss_forward": conversions.labelled,
    "lerp": _lerp,
    # Each row of the weights is scaled to a given norm.
    "_weight_norm_interface": lambda bound: ("rms_norm", [shape_of(bound["v"])], {"affine": False}),
    **{name: call(kind, "<first>") for kind, names in ALIKE.items() for name in names},
    # Names that only exported programs use.
    "convolution": conversions.any_convolution,
    "native_layer_norm": _affine("layer_norm", normalized_shape="normalized_shape"),
    "native_group_norm": _affine("group_norm", num_groups="group"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), _affine("batch_norm")),
    **dict.fromkeys(("_softmax", "_log_softmax", "log_softmax"), call("softmax", "self", dim="dim")),
    "native_dropout": _dropout,
}
"""Operator name without overload and in-place underscore -> conversion to a kind."""

REVISIONS: Mapping[str, int] = {"gather": 2}
"""Operator -> revision of its row, 1 if it is not listed. Increase it when the row gives other operations than before.
This invalidates the cached networks and templates of models that run the operator, and no others."""

QUANTIZED_PRODUCTS: frozenset[str] = frozenset({"_scaled_mm"})
"""Operators that run in the type of their inputs and return a wider type."""

MAKES_MASKS: frozenset[str] = frozenset(
    (*COMPARISONS, "all", "any", "argmax", "cumsum", "masked_fill", "max", "maximum", "min", "minimum", "where")
)
"""Operators with which models create positions and masks. If these depend on shapes and constants alone, their cost is
negligible."""

CONTIGUOUS_INPUT: frozenset[str] = frozenset({"linear", "layer_norm", "group_norm", "rms_norm"})
"""Operators that first copy an input that is not contiguous in memory."""

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
    alias as_strided detach expand permute select slice split split_with_sizes squeeze t transpose unbind unfold
    unsqueeze view _unsafe_view _reshape_alias view_as_real view_as_complex lift_fresh unsafe_split
    unsafe_split_with_sizes unsafe_chunk real imag _conj _neg_view resolve_conj resolve_neg empty empty_like
    empty_strided new_empty new_empty_strided scalar_tensor is_same_size sym_size sym_stride sym_numel
    sym_storage_offset
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
"""Operators that launch no kernel: views and allocations."""
