"""Costs by hand of point-wise operations, optimizers, pooling and reductions."""

from hand_costs import IMAGE, Case, Cost, X, optimizer, pooled, unary

# A sum's gradient is its output's: no kernel. That of a broadcast input is the output's summed up: dy in, 3 numbers
# out.
ADDITION = Case([X, X], {}, Cost(24, 192, 96), Cost(48, 192, 96))
# Forward a and b in, y out; backward dy and b, dy and a in, da and db out.
PRODUCT = Case([X, X], {}, Cost(24, 192, 96), Cost(48, 192 + 2 * 96 + 192, 96 + 192))

ELEMENTS: dict[str, list[Case]] = {
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
    "complex_mul": [Case([(3, 4, 2)] * 2, {}, Cost(72, 192, 96), Cost(3 * 72, 192 + 2 * 96 + 192, 96 + 192))],
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
}
