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


CHANNELS = (2, 6, 8, 8)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes"),
    [
        ("conv2d", [CHANNELS], {"out_channels": 6, "kernel_size": 3, "groups": 4}),
        ("conv2d", [CHANNELS], {"out_channels": 4, "kernel_size": 3, "groups": 6}),
        ("conv2d", [CHANNELS], {"out_channels": 4, "kernel_size": 3, "dilation": 4}),
        ("conv_transpose2d", [(2, 4, 8, 8)], {"out_channels": 3, "kernel_size": 3, "groups": 2}),
        ("group_norm", [(6,)], {"num_groups": 1}),
        ("matmul", [(2, 3, 4), (3, 4, 6)], {}),
        ("mean", [(2, 4)], {"dim": (0, 2)}),
        ("max_pool2d", [CHANNELS], {"kernel_size": 9}),
        ("lstm", [(5, 2, 3)], {"hidden_size": 4, "proj_size": 4}),
        ("gru", [(5, 3)], {"hidden_size": 4}),
        ("gather", [(3, 4), (4, 4)], {"dim": 1}),
        ("index_select", [(3, 4), (4,)], {"dim": 2}),
        ("scatter", [(3, 4), (5,), (3,)], {}),
        ("masked_fill", [(3, 1), (3, 4)], {}),
        ("embedding_bag", [(3, 4), (3,)], {"num_embeddings": 5, "embedding_dim": 2}),
        ("topk", [(3, 4)], {"k": 5}),
        ("grid_sample", [(2, 3, 4, 5), (2, 3, 4, 3)], {}),
        ("interpolate", [(2, 3)], {"output_size": 4}),
        ("roi_align", [(2, 3, 4)], {"boxes": 4, "output_size": 7}),
        ("fft", [(3, 4)], {}),
        ("fft", [(3, 4)], {"dim": (), "form": "r2c"}),
        ("cdist", [(3, 4), (3, 5)], {}),
        ("cdist", [(3, 4), (3, 4)], {"p": -1.0}),
    ],
)
def test_what_does_not_fit_together_is_refused(kind, shapes, attributes):
    with pytest.raises(InputError) as caught:
        Operation(kind, shapes, attributes)
    assert caught.value.given


@pytest.mark.parametrize("dim", [[0, 0], [-1, -1], [0, -2]])
def test_a_dimension_is_summed_once(dim):
    with pytest.raises(InputError, match="named twice"):
        Operation("sum", [(4, 5)], {"dim": dim})
