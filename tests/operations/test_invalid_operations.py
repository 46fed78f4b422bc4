"""Ten thousand operations with one fault each, of every kind: all are refused, with errors of joulecast only.

What a fault is stands here, by the meaning of each attribute, and not in the ranges of the table of kinds.
"""

import random
from math import inf, nan

import pytest
from test_costs_by_hand import CASES

from joulecast import Operation
from joulecast.errors import InputError
from joulecast.operations.kinds import KINDS

NO_NUMBER = [1.5, nan, "3", "", True, {"a": 1}, b"3", object()]
NO_COUNT = [0, -1, -2, -(10**9), 2**31, 2**63, 10**30, None, [], [3, 3], [[3]], *NO_NUMBER]
NO_SIZE = [0, -1, -3, 2**31, [], [0, 1], [1, -1], [1, 1, 1, 1, 1], [[1]], [1.5, 1], *NO_NUMBER]
NO_PADDING = [value for value in NO_SIZE if value not in (0, [0, 1])]
NO_FLAG = [0, 1, -1, 0.5, "yes", None, [], [True], [True, False], {}]
NO_WORD = ["", "x", "NVLINK", 0, True, [], ["forward"], {}]
NO_PROBABILITY = [-5, -0.1, 1.5, nan, inf, -inf, "x", True, None, [0.1], 10**30]
COUNTS = ("out_channels", "out_features", "groups", "embedding_dim", "num_embeddings", "experts", "expert_parallel")
COUNTS += ("gpus", "boxes", "hidden_size", "intermediate", "k", "num_classes", "num_experts", "num_groups")
COUNTS += ("num_layers", "sampling_ratio", "top_k", "tensor_parallel")
FLAGS = ("accumulate", "affine", "bias", "bidirectional", "block_scaled", "causal", "ceil_mode", "keepdim")
WORDS = ("direction", "gradients", "distribution", "form", "implementation", "link", "mode", "cache_precision")
WRONG = {
    **dict.fromkeys(COUNTS, NO_COUNT),
    **dict.fromkeys(FLAGS, NO_FLAG),
    **dict.fromkeys(WORDS, NO_WORD),
    "kernel_size": [*NO_SIZE, None],
    "dilation": [*NO_SIZE, None],
    "stride": NO_SIZE,
    **dict.fromkeys(("padding", "output_padding"), NO_PADDING),
    "output_size": [0, -1, 2**31, [], [0, 1], [1, 1, 1, 1, 1], *NO_NUMBER],
    "p": NO_PROBABILITY,
    "dim": [99, -99, 2**31, 1.5, "1", True, {}, [99], [0, 0.5]],
    "normalized_shape": [0, -1, 10**6, [], [0], [-1], [10**6], [1.5], "8", 1.5, None],
    "window": [0, -1, 2**31, *NO_NUMBER, [3, 3]],
    "last_size": [0, -1, 2**31, *NO_NUMBER, [3, 3]],
    "proj_size": [-1, 2**31, None, *NO_NUMBER, [3, 3]],
}
NO_DIMENSION = [0, -1, -(10**9), 1.5, nan, "8", None, [2], True]
NO_SHAPE = [None, 7, "ab", {}, [[2, 3]], 1.5, {2: 3}]


def attribute_fault(rng, shapes, attributes, row):
    """An impossible value of one attribute, one attribute too many, or one too few."""
    kind = rng.random()
    if kind < 0.1:
        return shapes, {**attributes, rng.choice(["colour", "", "Bias", "out_feature"]): 1}
    required = [name for name in ("out_channels", "out_features", "kernel_size", "hidden_size") if name in attributes]
    if kind < 0.2 and required:
        missing = rng.choice(required)
        return shapes, {name: value for name, value in attributes.items() if name != missing}
    name = rng.choice(sorted(row.attributes))
    wrong = WRONG[name]
    if name == "p" and row.family != "noise" and row.attributes[name].default != 0.5:
        wrong = [-5, -0.1, nan, -inf, "x", True, None, [0.1]]  # of a norm
    return shapes, {**attributes, name: rng.choice(wrong)}


def shape_fault(rng, shapes, attributes, row):
    """An impossible shape, or a wrong number of inputs."""
    kind = rng.random()
    if kind < 0.1:
        return [], attributes
    if kind < 0.2 and row.inputs[1] < 16:
        return [*shapes, *[shapes[0]] * (row.inputs[1] + 1 - len(shapes))], attributes
    place = rng.randrange(len(shapes))
    shape = list(shapes[place])
    if kind < 0.3 or not shape:
        return [*shapes[:place], rng.choice(NO_SHAPE), *shapes[place + 1 :]], attributes
    shape[rng.randrange(len(shape))] = rng.choice(NO_DIMENSION)
    return [*shapes[:place], shape, *shapes[place + 1 :]], attributes


def faulty(rng):
    """The arguments of an operation with one fault."""
    kind = rng.choice(sorted(CASES))
    case, row = rng.choice(CASES[kind]), KINDS[kind]
    shapes, attributes, words = case.shapes, case.attributes, {"precision": "fp32", "mode": "inference"}
    chance = rng.random()
    if chance < 0.05:
        kind = rng.choice([kind + "x", kind.upper(), "", None, 7])
    elif chance < 0.1:
        words[rng.choice(sorted(words))] = rng.choice(["", "fp7", "both", None, 32, True])
    elif chance < 0.7 and row.attributes:
        shapes, attributes = attribute_fault(rng, shapes, attributes, row)
    else:
        shapes, attributes = shape_fault(rng, shapes, attributes, row)
    return (kind, shapes, attributes), words


def test_one_fault_is_enough():
    rng, accepted = random.Random(0), []
    for number in range(10_000):
        arguments, words = faulty(rng)
        try:
            Operation(*arguments, **words)
        except InputError:
            continue
        accepted.append((number, arguments, words))
    assert accepted == []


CHANNELS, KEYS = (2, 6, 8, 8), [(4, 32, 1, 128), (4, 8, 1024, 128), (4, 8, 1024, 128)]
EXPERTS = {"intermediate": 14336, "top_k": 2, "experts": 8}
OUT_OF_RANGE = "out_features of a linear.*given: +'x'.*allowed: an integer from 1 to 2147483647.*next:"
REFUSED = [
    ("convv2d", [CHANNELS], {}, "did you mean conv2d"),
    ("relu", [(0, 3)], {}, "positive integers"),
    ("relu", [], {}, "number of inputs.*allowed: 1$"),
    ("linear", [(4, 4)], {}, "add out_features"),
    ("linear", [(4, 4)], {"out_features": 3, "biass": True}, "unknown attribute.*bias"),
    ("linear", [(4, 4)], {"out_features": {}}, "an attribute is"),
    ("linear", [(4, 4)], {"out_features": "x"}, OUT_OF_RANGE),
    ("layer_norm", [(2, 3)], {"normalized_shape": [4]}, "normalized_shape"),
    ("conv2d", [(2, 3, 4)], {"out_channels": 4, "kernel_size": 3}, r"\[batch, channels, height, width\]"),
    ("conv2d", [CHANNELS], {"out_channels": 6, "kernel_size": 3, "groups": 4}, "input channels.*6 over 4"),
    ("conv2d", [CHANNELS], {"out_channels": 4, "kernel_size": 3, "groups": 6}, "output channels.*4 over 6"),
    ("conv2d", [CHANNELS], {"out_channels": 4, "kernel_size": 3, "dilation": 4}, "larger than the padded input"),
    ("conv_transpose2d", [CHANNELS], {"out_channels": 3, "kernel_size": 3, "groups": 2}, "output channels"),
    ("group_norm", [(6,)], {"num_groups": 1}, r"\[batch, channels, ...\]"),
    *(
        ("matmul", shapes, {}, r"matmul have other shapes.*\[..., M, K\], \[..., K, N\]")
        for shapes in ([(2, 3), (4, 5)], [(3,), (3, 5)], [(2, 3), (3,)])
    ),
    ("matmul", [(2, 3, 4), (3, 4, 6)], {}, "do not broadcast"),
    ("add", [(2, 3), (2, 4)], {}, r"do not broadcast.*given: +\(2, 3\), \(2, 4\).*allowed: sizes that are equal or 1"),
    *(
        ("attention", shapes, {}, r"attention have other shapes.*\[..., L, E\], \[..., S, E\], \[..., S, D\]")
        for shapes in ([(4, 8), (6, 9), (6, 5)], [(4, 8), (6, 8), (7, 5)], [(8,), (6, 8), (6, 5)])
    ),
    # Three dimensions are heads, rows and columns. 6 heads of queries share 3 of keys, but 5 do not.
    ("attention", [(5, 4, 8), (3, 6, 8), (3, 6, 8)], {}, "heads of queries and of keys.*5 over 3.*a multiple of 3"),
    ("attention", [(1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8)], {"window": 7}, "window.*given: +7.*up to 6"),
    *(("sum", [(2, 3)], {"dim": dim}, rf"no such dimension.*dim={dim} of \(2, 3\).*-2 to 1") for dim in (2, -3)),
    ("cat", [(1, 2), (3, 5)], {"dim": -2}, r"another dimension.*\(1, 2\), \(3, 5\).*differ in dimension 0 only"),
    ("batch_norm", [(4,)], {}, r"batch_norm have other shapes.*given: +\(4,\).*\[batch, channels, ...\]"),
    ("group_norm", [(2, 6, 4)], {"num_groups": 4}, "channels of a group norm.*6 over 4.*a multiple of 4"),
    ("mean", [(2, 4)], {"dim": (0, 2)}, "no such dimension"),
    *(("sum", [(4, 5)], {"dim": dim}, "named twice") for dim in ([0, 0], [-1, -1], [0, -2])),
    ("max_pool2d", [CHANNELS], {"kernel_size": 9}, "larger than the padded input"),
    ("lstm", [(5, 2, 3)], {"hidden_size": 4, "proj_size": 4}, "proj_size.*given: +4.*up to 3"),
    ("gru", [(5, 3)], {"hidden_size": 4}, r"\[steps, batch, features\]"),
    ("gather", [(3, 4), (4, 4)], {"dim": 1}, "this index does not fit"),
    ("index_select", [(3, 4), (4,)], {"dim": 2}, "no such dimension"),
    ("scatter", [(3, 4), (5,), (3,)], {}, "5 over 3"),
    ("masked_fill", [(3, 1), (3, 4)], {}, "a mask does not broadcast"),
    ("embedding_bag", [(3, 4), (3,)], {"num_embeddings": 5, "embedding_dim": 2}, r"\[indices\], \[bags\]"),
    ("topk", [(3, 4)], {"k": 5}, "given: +5.*up to 4"),
    ("grid_sample", [(2, 3, 4, 5), (2, 3, 4, 3)], {}, r"\[N, rows, columns, 2\]"),
    ("grid_sample", [(2, 3, 4, 5, 6), (1, 3, 4, 5, 3)], {}, r"\[N, depth, rows, columns, 3\]"),
    ("interpolate", [(2, 3)], {"output_size": 4}, r"\[batch, channels, length, ...\]"),
    ("roi_align", [(2, 3, 4)], {"boxes": 4, "output_size": 7}, r"\[batch, channels, height, width\]"),
    ("fft", [(3, 4)], {}, "a last dimension of 2"),
    ("fft", [(3, 4)], {"dim": (), "form": "r2c"}, "out of its range"),
    ("cdist", [(3, 4), (3, 5)], {}, r"\[..., P, M\], \[..., R, M\]"),
    ("cdist", [(3, 4), (3, 4)], {"p": -1.0}, "out of its range"),
    *(("attention", KEYS, {"window": window}, "window") for window in (0, -1, 1025, 1.5, True, "all")),
    ("experts", [(64, 4096)], {**EXPERTS, "top_k": 9}, "top_k of a layer of experts is too large"),
    ("experts", [(64, 4096)], {**EXPERTS, "expert_parallel": 3}, "experts over expert_parallel GPUs do not divide"),
    ("experts", [(64, 4096)], {**EXPERTS, "tensor_parallel": 5}, "intermediate features .* do not divide"),
    ("experts", [(64, 4096)], {**EXPERTS, "top_k": 0}, "out of its range"),
    ("experts", [(64, 4096)], {**EXPERTS, "distribution": "zipf"}, "out of its range"),
    ("reduce_scatter", [(1001, 2)], {"gpus": 8}, "the first dimension .* over GPUs do not divide"),
    ("all_reduce", [(1024, 2)], {"gpus": 1}, "needs a group of GPUs"),
    ("all_reduce", [(1024, 2)], {"gpus": 2, "link": "ethernet"}, "'nvlink' or 'pcie'"),
]


@pytest.mark.parametrize(("kind", "shapes", "attributes", "says"), REFUSED)
def test_what_does_not_fit_together_is_refused(kind, shapes, attributes, says):
    with pytest.raises(InputError, match=f"(?s){says}") as caught:
        Operation(kind, shapes, attributes)
    assert caught.value.given is not None
    if "have other shapes" in caught.value.what:
        assert caught.value.given == ", ".join(map(str, shapes))
