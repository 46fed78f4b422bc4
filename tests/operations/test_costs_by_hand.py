"""FLOPs and bytes of every kind, inference and training, against arithmetic written out by hand.

The file has over 400 lines because it is one table, with a row for each kind (`test_every_kind_has_a_row`). In several
files it would be harder to see which kind is where. Nothing here is computed by the package: sizes are multiplied out
in each row. Bytes are those of fp32: four for each element, eight for an index, one for a truth value. A training
operation is its forward and its backward together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from joulecast import Operation
from joulecast.operations.kinds import KINDS


class Cost(NamedTuple):
    flops: int
    read: int
    written: int


class Case(NamedTuple):
    shapes: list[tuple[int, ...]]
    attributes: dict[str, Any]
    inference: Cost
    training: Cost


X = (2, 3, 4)  # 24 elements, 96 bytes
IMAGE = (2, 6, 5, 7)  # 420 elements, 1,680 bytes


def unary(flops: int) -> Case:
    """Forward: x in, y out. Backward: y or x and dy in, dx out, and about as much arithmetic again."""
    return Case([X], {}, Cost(24 * flops, 96, 96), Cost(48 * flops, 96 + 2 * 96, 2 * 96))


def pooled(flops: int, output: int, training_read: int, training_written: int) -> Case:
    """A reduction of 2 x 3 x 4 over its last dimension, or of an image: forward x in, y out."""
    return Case([X], {"dim": -1}, Cost(24 * flops, 96, output), Cost(48 * flops, training_read, training_written))


def optimizer(flops: int, read: int, written: int) -> Case:
    return Case([X], {}, Cost(24 * flops, 96 * read, 96 * written), Cost(24 * flops, 96 * read, 96 * written))


# A sum's gradient is its output's: no kernel. That of a broadcast input is the output's summed up: dy in, 3 numbers
# out.
ADDITION = Case([X, X], {}, Cost(24, 192, 96), Cost(48, 192, 96))
# Forward a and b in, y out; backward dy and b, dy and a in, da and db out.
PRODUCT = Case([X, X], {}, Cost(24, 192, 96), Cost(48, 192 + 2 * 96 + 192, 96 + 192))

CASES: dict[str, list[Case]] = {
    # y: 2 x 4 x 7 = 56 from windows of 6 x 3 = 18; weights 4 x 18 = 72 and 4 biases. Backward, dx is made of dy and the
    # weights, dw of dy and x.
    "conv1d": [
        Case(
            [(2, 6, 9)],
            {"out_channels": 4, "kernel_size": 3},
            Cost(2 * 56 * 18, 4 * (108 + 76), 4 * 56),
            Cost(3 * 2 * 56 * 18, 4 * (108 + 76 + 56 + 76 + 56 + 108), 4 * (56 + 108 + 76)),
        )
    ],
    # y: 2 x 4 x 3 x 3 = 72 (stride 2), windows of 3 x 3 x 3 in each of 2 groups; weights 4 x 27 = 108.
    "conv2d": [
        Case(
            [IMAGE],
            {"out_channels": 4, "kernel_size": 3, "stride": 2, "padding": (1, 0), "groups": 2, "bias": False},
            Cost(2 * 72 * 27, 4 * (420 + 108), 4 * 72),
            Cost(3 * 2 * 72 * 27, 4 * 2 * (420 + 108 + 72), 4 * (72 + 420 + 108)),
        )
    ],
    # y: 1 x 3 x 2 x 3 x 4 = 72, windows of 2 x 2 x 2 x 2 = 16; weights 3 x 16 = 48 and 3 biases.
    "conv3d": [
        Case(
            [(1, 2, 3, 4, 5)],
            {"out_channels": 3, "kernel_size": 2},
            Cost(2 * 72 * 16, 4 * (120 + 51), 4 * 72),
            Cost(6 * 72 * 16, 4 * 2 * (120 + 51 + 72), 4 * (72 + 120 + 51)),
        )
    ],
    # Each of 2 x 9 positions is spread over 4 x 3 outputs in 6 channels; y: 2 x 4 x 11 = 88.
    "conv_transpose1d": [
        Case(
            [(2, 6, 9)],
            {"out_channels": 4, "kernel_size": 3, "bias": False},
            Cost(2 * 18 * 6 * 12, 4 * (108 + 72), 4 * 88),
            Cost(6 * 18 * 6 * 12, 4 * 2 * (108 + 72 + 88), 4 * (88 + 108 + 72)),
        )
    ],
    # 70 positions of 6 channels over 4 x 2 x 2; y: 2 x 4 x 10 x 14 = 1120 (stride 2); weights 6 x 16 = 96 and 4 biases.
    "conv_transpose2d": [
        Case(
            [IMAGE],
            {"out_channels": 4, "kernel_size": 2, "stride": 2},
            Cost(2 * 70 * 6 * 16, 4 * (420 + 100), 4 * 1120),
            Cost(6 * 70 * 6 * 16, 4 * 2 * (420 + 100 + 1120), 4 * (1120 + 420 + 100)),
        )
    ],
    # 60 positions of 2 channels over 3 x 2 x 2 x 2; y: 3 x 4 x 5 x 6 = 360; weights 2 x 24 = 48.
    "conv_transpose3d": [
        Case(
            [(1, 2, 3, 4, 5)],
            {"out_channels": 3, "kernel_size": 2, "bias": False},
            Cost(2 * 60 * 2 * 24, 4 * (120 + 48), 4 * 360),
            Cost(6 * 60 * 2 * 24, 4 * 2 * (120 + 48 + 360), 4 * (360 + 120 + 48)),
        )
    ],
    # [6, 4] x [4, 5], 5 biases
    "linear": [
        Case(
            [X],
            {"out_features": 5},
            Cost(2 * 6 * 4 * 5, 4 * (24 + 25), 4 * 30),
            Cost(6 * 6 * 4 * 5, 4 * 2 * (24 + 25 + 30), 4 * (30 + 24 + 25)),
        )
    ],
    # 2 x [3, 4] x [4, 5]
    "matmul": [
        Case(
            [X, (2, 4, 5)],
            {},
            Cost(2 * 2 * 3 * 4 * 5, 4 * (24 + 40), 4 * 30),
            Cost(6 * 2 * 3 * 4 * 5, 4 * 2 * (24 + 40 + 30), 4 * (30 + 24 + 40)),
        )
    ],
    # Scores 2 x [3, 4] x [4, 7], values [3, 7] x [7, 5]: 2 x 2 x 3 x 7 x (4 + 5); backward four products instead of
    # two. Causal, 3 queries see 5, 6 and 7 keys, and with a window of 6 keys 5, 6 and 6.
    "attention": [
        Case([X, (2, 7, 4), (2, 7, 5)], attributes, Cost(flops, 600, 120), Cost(3 * flops, 1440, 720))
        for attributes, flops in (
            ({}, 2 * 2 * 21 * 9),
            ({"causal": True}, 2 * 2 * 18 * 9),
            ({"causal": True, "window": 6}, 2 * 2 * 17 * 9),
        )
    ],
    # 10 rows of 8 for 4 experts, whose matrices are 8 x 5 each: all four are read. With one row, one is.
    "grouped_linear": [
        Case(
            [(10, 8)],
            {"num_experts": 4, "out_features": 5},
            Cost(2 * 10 * 8 * 5, 4 * (80 + 160), 4 * 50),
            Cost(6 * 10 * 8 * 5, 4 * 2 * (80 + 160 + 50), 4 * (50 + 80 + 160)),
        ),
        Case(
            [(1, 8)],
            {"num_experts": 4, "out_features": 5},
            Cost(2 * 8 * 5, 4 * (8 + 40), 4 * 5),
            Cost(6 * 8 * 5, 4 * 2 * (8 + 40 + 5), 4 * (5 + 8 + 40)),
        ),
    ],
    # Gate, up and down of 4 x 6 for each expert; each of 3 tokens goes to both of two. Where each of 2 goes to one
    # of two, an expert gets none with 1 / 4: of 2 x 72 weights 108 are read.
    "experts": [
        Case(
            [(3, 4)],
            {"intermediate": 6, "top_k": 2, "experts": 2},
            Cost(6 * 3 * 2 * 24, 4 * (12 + 144), 4 * 12),
            Cost(18 * 3 * 2 * 24, 4 * 2 * (12 + 144 + 12), 4 * (12 + 12 + 144)),
        ),
        Case(
            [(2, 4)],
            {"intermediate": 6, "top_k": 1, "experts": 2},
            Cost(2 * 6 * 24, 4 * (8 + 108), 4 * 8),
            Cost(2 * 18 * 24, 4 * 2 * (8 + 108 + 8), 4 * (8 + 8 + 108)),
        ),
    ],
    # One of two GPUs: it adds up half of the 24 elements, one of the other's to each of its own.
    "all_reduce": [Case([X], {"gpus": 2}, Cost(12, 96, 96), Cost(12, 96, 96))],
    "reduce_scatter": [Case([X], {"gpus": 2}, Cost(12, 96, 48), Cost(12, 96, 48))],
    "all_gather": [Case([X], {"gpus": 2}, Cost(0, 96, 192), Cost(0, 96, 192))],
    "all_to_all": [Case([X], {"gpus": 2}, Cost(0, 96, 96), Cost(0, 96, 96))],
    # 5 steps of 2 x 3. First layer: 4 gates of 6 from 3 + 6; second: from 6 + 6. Products 2 x 4 x 6 x (9 + 12) = 1008
    # and gates 2 x 6 x 32 = 384 for each of 10 rows. Weights 4 x 6 x (9 + 2 biases) + 4 x 6 x (12 + 2) = 600. Gates of
    # all steps: 10 x 2 x 4 x 6 = 480, written and read; backward their gradients are written and read three times.
    "lstm": [
        Case(
            [(5, 2, 3)],
            {"hidden_size": 6, "num_layers": 2},
            Cost(10 * (1008 + 384), 4 * (30 + 600 + 480), 4 * (60 + 480)),
            Cost(3 * 10 * (1008 + 384), 4 * (2 * (30 + 600 + 60) + 4 * 480), 4 * (60 + 30 + 600 + 2 * 480)),
        ),
        # Two directions: the second layer sees 12 features. 2 x (4 x 6 x 11 + 4 x 6 x (12 + 6 + 2)) = 1488 weights,
        # 2 x 2 x 4 x 6 x (9 + 18) = 2592 FLOPs in products, 4 x 6 x 32 = 768 in gates; y: 5 x 2 x 12; gates 960.
        Case(
            [(5, 2, 3)],
            {"hidden_size": 6, "num_layers": 2, "bidirectional": True},
            Cost(10 * (2592 + 768), 4 * (30 + 1488 + 960), 4 * (120 + 960)),
            Cost(30 * (2592 + 768), 4 * (2 * (30 + 1488 + 120) + 3840), 4 * (120 + 30 + 1488 + 1920)),
        ),
        # Hidden states of 2: 4 gates of 6 from 3 + 2, then 6 x 2 weights bring 6 to 2. 24 x 5 + 12 = 132 weights.
        Case(
            [(5, 2, 3)],
            {"hidden_size": 6, "proj_size": 2, "bias": False},
            Cost(10 * (2 * 132 + 6 * 32), 4 * (30 + 132 + 240), 4 * (20 + 240)),
            Cost(30 * (2 * 132 + 6 * 32), 4 * (2 * (30 + 132 + 20) + 960), 4 * (20 + 30 + 132 + 480)),
        ),
    ],
    # 3 gates of 6 from 3 + 6: 18 x 11 = 198 weights and biases; 10 rows of 2 x 162 + 6 x 22 FLOPs; gates 180.
    "gru": [
        Case(
            [(5, 2, 3)],
            {"hidden_size": 6},
            Cost(10 * (324 + 132), 4 * (30 + 198 + 180), 4 * (60 + 180)),
            Cost(30 * (324 + 132), 4 * (2 * (30 + 198 + 60) + 720), 4 * (60 + 30 + 198 + 360)),
        )
    ],
    # One gate: 6 x 11 = 66 weights, 2 x 54 + 6 x 7 FLOPs a row, gates 60.
    "rnn": [
        Case(
            [(5, 2, 3)],
            {"hidden_size": 6},
            Cost(10 * (108 + 42), 4 * (30 + 66 + 60), 4 * (60 + 60)),
            Cost(30 * (108 + 42), 4 * (2 * (30 + 66 + 60) + 240), 4 * (60 + 30 + 66 + 120)),
        )
    ],
    # 2 x 3 x 5 pairs of 4 coordinates. Backward for each side: both inputs, the distances and their gradients.
    "cdist": [
        Case(
            [X, (2, 5, 4)],
            {},
            Cost(3 * 30 * 4, 4 * 64, 4 * 30),
            Cost(9 * 30 * 4, 4 * (64 + 2 * (64 + 60)), 4 * (30 + 64)),
        )
    ],
    # Train mode reads x for its statistics and again to normalize it; so does the backward with x and dy. Scale and
    # shift.
    "batch_norm": [
        Case([IMAGE], {}, Cost(1680, 4 * (420 + 12), 1680), Cost(3360, 4 * (1680 + 840 + 24), 4 * (840 + 12)))
    ],
    "group_norm": [
        Case(
            [IMAGE],
            {"num_groups": 3},
            Cost(2520, 4 * (420 + 12), 1680),
            Cost(5040, 4 * (1680 + 840 + 24), 4 * (840 + 12)),
        )
    ],
    "layer_norm": [Case([X], {}, Cost(144, 4 * (24 + 8), 96), Cost(288, 4 * (96 + 48 + 16), 4 * (48 + 8)))],
    "rms_norm": [Case([X], {}, Cost(96, 4 * (24 + 4), 96), Cost(192, 4 * (96 + 48 + 8), 4 * (48 + 4)))],
    **{kind: [unary(1)] for kind in ("relu", "sqrt", "abs", "neg")},
    **{kind: [unary(2)] for kind in ("relu6", "leaky_relu", "prelu", "hardtanh", "clamp", "exp", "log", "rsqrt")},
    **{kind: [unary(4)] for kind in ("elu", "sigmoid", "hardsigmoid", "sin", "cos")},
    **{kind: [unary(5)] for kind in ("silu", "softplus", "hardswish")},
    "tanh": [unary(6)],
    **{kind: [unary(8)] for kind in ("gelu", "mish")},
    "softmax": [unary(5)],
    # Backward: dy turned round, summed up, turned back: each reads and writes all of it.
    "cumsum": [Case([X], {"dim": 1}, Cost(24, 96, 96), Cost(48, 4 * 96, 4 * 96))],
    **{
        kind: [ADDITION, Case([X, (4,)], {}, Cost(24, 4 * 28, 96), Cost(48, 4 * (28 + 24), 96))]
        for kind in ("add", "sub")
    },
    **{
        kind: [
            PRODUCT,
            Case([X, (4,)], {}, Cost(24, 4 * 28, 96), Cost(48, 4 * (28 + 48 + 28 + 24), 4 * (24 + 28 + 24))),
        ]
        for kind in ("mul", "div", "pow")
    },
    # A mask of 24 bytes and two tensors. Backward, the mask and dy twice, and two gradients.
    "where": [
        Case([X, X, X], {}, Cost(24, 24 + 192, 96), Cost(48, 24 + 192 + 2 * 96, 96 + 192)),
        Case([(3, 1), X], {}, Cost(24, 3 + 96, 96), Cost(48, 3 + 96 + 2 * 96, 96 + 192)),
    ],
    # In place: mask and x in, x out. Backward: dy is copied, then the same.
    "masked_fill": [Case([X, X], {}, Cost(24, 24 + 96, 96), Cost(48, 2 * (24 + 96) + 96, 3 * 96))],
    "compare": [Case([X, X], {}, Cost(24, 192, 24), Cost(24, 192, 24))],
    # 12 pairs: four products and two sums each; backward, the same for either side.
    "complex_mul": [
        Case([(3, 4, 2)] * 2, {}, Cost(72, 192, 96), Cost(3 * 72, 192 + 2 * 96 + 192, 96 + 192)),
    ],
    "random": [Case([X], {}, Cost(240, 0, 96), Cost(240, 0, 96))],
    "gradient_accumulation": [optimizer(1, 2, 1)],
    "sgd_step": [optimizer(2, 2, 1)],
    "adam_step": [optimizer(13, 11, 7)],
    "adamw_step": [optimizer(14, 12, 8)],
    "sgd_fused_step": [optimizer(2, 2, 1)],
    "adam_fused_step": [optimizer(13, 4, 3)],
    "adamw_fused_step": [optimizer(14, 4, 3)],
    "dropout": [Case([X], {}, Cost(0, 0, 0), Cost(48, 96 + 192, 192))],
    "stochastic_depth": [Case([X], {}, Cost(0, 0, 0), Cost(48, 96 + 192, 192))],
    # y: 2 x 6 x 2 x 3 = 72 windows of 4. Backward: places and dy in, dx out.
    **{
        kind: [Case([IMAGE], {"kernel_size": 2}, Cost(288, 1680, 288), Cost(576, 1680 + 576, 1680 + 288))]
        for kind in ("max_pool2d", "avg_pool2d")
    },
    # y: 1 x 2 x 1 x 2 x 2 = 8 windows of 8
    **{
        kind: [Case([(1, 2, 3, 4, 5)], {"kernel_size": 2}, Cost(64, 480, 32), Cost(128, 480 + 64, 480 + 32))]
        for kind in ("max_pool3d", "avg_pool3d")
    },
    **{
        kind: [Case([IMAGE], {"output_size": 1}, Cost(420, 1680, 48), Cost(840, 1680 + 48, 1680 + 48))]
        for kind in ("adaptive_avg_pool2d", "adaptive_max_pool2d")
    },
    "adaptive_avg_pool3d": [
        Case([(1, 2, 3, 4, 5)], {"output_size": 2}, Cost(120, 480, 64), Cost(240, 480 + 64, 480 + 64))
    ],
    # y: 6 numbers, 24 bytes. Backward: dy in, dx out.
    "mean": [pooled(1, 24, 96 + 24, 96 + 24)],
    "sum": [pooled(1, 24, 96 + 24, 96 + 24)],
    "norm": [pooled(2, 24, 96 + 24, 96 + 24)],
    # Backward: x and y in, a mask out; the mask in, its sums out; the mask and dy in, dx out.
    "max": [pooled(1, 24, 3 * 96 + 48, 2 * 96 + 48)],
    "argmax": [Case([X], {"dim": -1}, Cost(24, 96, 48), Cost(24, 96, 48))],
    # Backward: x in, its distance from the mean out; that and dy in, dx out.
    "var": [pooled(4, 24, 3 * 96 + 24, 2 * 96 + 24)],
    "prod": [pooled(1, 24, 2 * 96 + 48, 96 + 24)],
    "logsumexp": [pooled(5, 24, 3 * 96 + 72, 96 + 24)],
    "cat": [Case([X, (2, 5, 4)], {"dim": 1}, Cost(0, 256, 256), Cost(0, 256, 256))],
    "copy": [Case([X], {}, Cost(0, 96, 96), Cost(0, 192, 192))],
    "checkpoint": [Case([X], {}, Cost(0, 0, 0), Cost(0, 0, 0))],
    "save_input": [Case([X], {}, Cost(0, 96, 96), Cost(0, 96, 96))],
    # 6 indices, rows of 5: the rows are read. Backward: indices, dy and the rows' gradients in; a table of 10 x 5 out.
    "embedding": [
        Case(
            [(2, 3)],
            {"num_embeddings": 10, "embedding_dim": 5},
            Cost(0, 48 + 120, 120),
            Cost(0, 96 + 3 * 120, 2 * 120 + 200),
        )
    ],
    # 12 indices in 4 bags, rows of 5: 240 bytes looked up, 80 out. Backward: indices and offsets, dy, and what is there
    # in; the table's gradient of 200 bytes and the rows of it that are added to out.
    "embedding_bag": [
        Case(
            [(12,), (4,)],
            {"num_embeddings": 10, "embedding_dim": 5},
            Cost(60, 128 + 240, 80),
            Cost(120, 2 * (128 + 240) + 80, 80 + 200 + 240),
        )
    ],
    # Backward: index, dy and what is there in; zeros like x, and sums in their places out.
    "gather": [
        Case(
            [X, (2, 2, 4)],
            {"dim": 1},
            Cost(0, 128 + 64, 64),
            Cost(0, 2 * (128 + 64) + 64, 64 + 96 + 64),
        )
    ],
    # Rows 2 x 4 of x for each of 2 x 5 indices in the place of its 3: 2 x 2 x 5 x 4 = 80 elements.
    "index_select": [
        Case(
            [X, (2, 5)],
            {"dim": 1},
            Cost(0, 80 + 320, 320),
            Cost(0, 2 * (80 + 320) + 320, 320 + 96 + 320),
        )
    ],
    # 6 rows of 4 added to 6 rows of x: source and rows in, rows out. Backward, the source's gradient is looked up.
    "scatter": [
        Case(
            [(10, 4), (6, 4), (6,)],
            {"accumulate": True},
            Cost(24, 48 + 96 + 96, 96),
            Cost(24, 2 * (48 + 96 + 96), 96 + 96),
        ),
        # Rows are put there. Backward, those of a copy of dy (10 x 4) become zero, too.
        Case(
            [(10, 4), (6, 4), (6,)],
            {},
            Cost(0, 48 + 96, 96),
            Cost(0, 2 * (48 + 96) + 160, 96 + 96 + 160),
        ),
    ],
    # 6 class numbers: 6 x 7 zeros of 8 bytes, then 6 ones.
    "one_hot": [Case([(2, 3)], {"num_classes": 7}, Cost(0, 48, 336 + 48), Cost(0, 48, 336 + 48))],
    # Rows of 4: 2 comparisons deep. Values and places out. Backward: places and dy in; zeros and values out.
    "sort": [
        Case([X], {}, Cost(48, 96, 96 + 192), Cost(48, 96 + 288, 288 + 2 * 96)),
        # 2 rows of 8,192: 13 deep, by radix in four passes of 8 bits, three of them to be read again: 12 bytes each.
        Case(
            [(2, 8192)],
            {},
            Cost(16384 * 13, 65536 + 3 * 196608, 4 * 196608),
            Cost(16384 * 13, 65536 + 3 * 196608 + 196608, 4 * 196608 + 2 * 65536),
        ),
    ],
    # The 2 largest of 4 in 6 rows: four passes to find the second, one to gather; values and places of 12 out.
    "topk": [Case([X], {"k": 2}, Cost(24, 5 * 96, 144), Cost(24, 5 * 96 + 144, 2 * 144 + 96))],
    # 2 x 6 x 10 x 14 = 1680 values from 420. Backward: dy in; zeros, then sums out.
    "interpolate": [
        Case(
            [IMAGE],
            {"output_size": (10, 14), "mode": "linear"},
            Cost(1680 * 2 * 3, 1680, 6720),
            Cost(2 * 1680 * 2 * 3, 1680 + 6720, 6720 + 2 * 1680),
        ),
        Case([IMAGE], {"output_size": 10}, Cost(0, 1680, 4800), Cost(0, 1680 + 4800, 4800 + 3360)),
    ],
    # 4 boxes of 6 channels and 3 x 2 cells: 144 values, each from 2 x 2 samples in 2 dimensions. Backward: dy in; zeros
    # and sums for x out.
    "roi_align": [
        Case(
            [IMAGE],
            {"boxes": 4, "output_size": (3, 2)},
            Cost(144 * 4 * 2 * 3, 1680, 576),
            Cost(2 * 144 * 4 * 2 * 3, 1680 + 576, 576 + 2 * 1680),
        )
    ],
    # 2 x 3 x 4 points of 2 coordinates (192 bytes); y: 2 x 6 x 12 = 144. Backward: x, grid and dy in; zeros and sums
    # for x and grid out.
    "grid_sample": [
        Case(
            [IMAGE, (2, 3, 4, 2)],
            {},
            Cost(144 * 2 * 3, 1680 + 192, 576),
            Cost(3 * 144 * 2 * 3, 2 * (1680 + 192) + 576, 576 + 2 * (1680 + 192)),
        )
    ],
    # 3 complex transforms of 8 points: 5 x 8 x 3 = 120 FLOPs each, one pass; backward the same again.
    "fft": [
        Case([(3, 8, 2)], {"dim": 1}, Cost(360, 192, 192), Cost(720, 192 + 192, 192 + 192)),
        # Real 4 x 8: 32 points, half of 5 x 32 x 5; out 4 x 5 pairs of 8 bytes. Two dimensions: one more pass.
        Case(
            [(4, 8)],
            {"dim": (0, 1), "form": "r2c"},
            Cost(400, 128 + 160, 160 + 160),
            Cost(800, 128 + 160 + 320, 160 + 128 + 320),
        ),
    ],
}
ROWS = [(kind, case) for kind, cases in CASES.items() for case in cases]
IDS = [f"{kind}-{cases.index(case)}" for kind, cases in CASES.items() for case in cases]


def test_every_kind_has_a_row():
    assert CASES.keys() == KINDS.keys()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("kind", "case"), ROWS, ids=IDS)
def test_costs(kind, case, mode):
    operation = Operation(kind, case.shapes, case.attributes, mode=mode)
    assert Cost(operation.flops, operation.bytes_read, operation.bytes_written) == getattr(case, mode)


@pytest.mark.parametrize(("kind", "case"), ROWS, ids=IDS)
def test_training_costs_no_less_than_inference(kind, case):
    assert all(more >= less for more, less in zip(case.training, case.inference, strict=True))


def test_half_precision_halves_values_but_not_indices():
    gathered = Operation("gather", [(2, 3, 4), (2, 2, 4)], {"dim": 1}, precision="bf16")
    assert gathered.bytes_read == 8 * 16 + 2 * 16
    # One pass less: bf16 has two times eight bits.
    assert Operation("sort", [(2, 8192)], precision="bf16").bytes_read == 2 * 16384 + 10 * 16384


def test_recurrent_steps_wait_for_one_another():
    lstm = Operation("lstm", [(128, 64, 256)], {"hidden_size": 512, "num_layers": 2})
    assert lstm.steps == 129  # the second layer runs a step behind the first
    assert Operation("relu", [(3,)]).steps == 1
