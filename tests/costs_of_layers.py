"""Costs by hand of products, experts, collectives, recurrent layers and norms."""

from hand_costs import IMAGE, Case, Cost, X, layer, product

LAYERS: dict[str, list[Case]] = {
    # y: 2 x 4 x 7 = 56 from windows of 6 x 3 = 18; weights 4 x 18 = 72 and 4 biases. Backward, dx is made of dy and the
    # weights, dw of dy and x.
    "conv1d": [product([(2, 6, 9)], {"out_channels": 4, "kernel_size": 3}, 2 * 56 * 18, 108, 76, 56)],
    # y: 2 x 4 x 3 x 3 = 72 (stride 2), windows of 3 x 3 x 3 in each of 2 groups; weights 4 x 27 = 108.
    "conv2d": [
        product(
            [IMAGE],
            {"out_channels": 4, "kernel_size": 3, "stride": 2, "padding": (1, 0), "groups": 2, "bias": False},
            *(2 * 72 * 27, 420, 108, 72),
        )
    ],
    # y: 1 x 3 x 2 x 3 x 4 = 72, windows of 2 x 2 x 2 x 2 = 16; weights 3 x 16 = 48 and 3 biases.
    "conv3d": [product([(1, 2, 3, 4, 5)], {"out_channels": 3, "kernel_size": 2}, 2 * 72 * 16, 120, 51, 72)],
    # Each of 2 x 9 positions is spread over 4 x 3 outputs in 6 channels; y: 2 x 4 x 11 = 88.
    "conv_transpose1d": [
        product([(2, 6, 9)], {"out_channels": 4, "kernel_size": 3, "bias": False}, 2 * 18 * 6 * 12, 108, 72, 88)
    ],
    # 70 positions of 6 channels over 4 x 2 x 2; y: 2 x 4 x 10 x 14 = 1120 (stride 2); weights 6 x 16 = 96 and 4 biases.
    "conv_transpose2d": [
        product([IMAGE], {"out_channels": 4, "kernel_size": 2, "stride": 2}, 2 * 70 * 6 * 16, 420, 100, 1120)
    ],
    # 60 positions of 2 channels over 3 x 2 x 2 x 2; y: 3 x 4 x 5 x 6 = 360; weights 2 x 24 = 48.
    "conv_transpose3d": [
        product([(1, 2, 3, 4, 5)], {"out_channels": 3, "kernel_size": 2, "bias": False}, 2 * 60 * 2 * 24, 120, 48, 360)
    ],
    # [6, 4] x [4, 5], 5 biases
    "linear": [product([X], {"out_features": 5}, 2 * 6 * 4 * 5, 24, 25, 30)],
    # 2 x [3, 4] x [4, 5]
    "matmul": [product([X, (2, 4, 5)], {}, 2 * 2 * 3 * 4 * 5, 24, 40, 30)],
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
    # 10 rows of 8 for 4 experts, whose matrices are 8 x 12 each: all four are read. With one row, one is.
    "grouped_linear": [
        product([(10, 8)], {"num_experts": 4, "out_features": 12}, 2 * 10 * 8 * 12, 80, 384, 120),
        product([(1, 8)], {"num_experts": 4, "out_features": 12}, 2 * 8 * 12, 8, 96, 12),
    ],
    # Gate, up and down of 4 x 6 for each expert; each of 3 tokens goes to both of two. Where each of 2 goes to one
    # of two, an expert gets none with 1 / 4: of 2 x 72 weights 108 are read.
    "experts": [
        product([(3, 4)], {"intermediate": 6, "top_k": 2, "experts": 2}, 6 * 3 * 2 * 24, 12, 144, 12),
        product([(2, 4)], {"intermediate": 6, "top_k": 1, "experts": 2}, 2 * 6 * 24, 8, 108, 8),
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
        layer({"hidden_size": 6, "num_layers": 2}, 10 * (1008 + 384), 30, 600, 60, 480),
        # Two directions: the second layer sees 12 features. 2 x (4 x 6 x 11 + 4 x 6 x (12 + 6 + 2)) = 1488 weights,
        # 2 x 2 x 4 x 6 x (9 + 18) = 2592 FLOPs in products, 4 x 6 x 32 = 768 in gates; y: 5 x 2 x 12; gates 960.
        layer({"hidden_size": 6, "num_layers": 2, "bidirectional": True}, 10 * (2592 + 768), 30, 1488, 120, 960),
        # Hidden states of 2: 4 gates of 6 from 3 + 2, then 6 x 2 weights bring 6 to 2. 24 x 5 + 12 = 132 weights.
        layer({"hidden_size": 6, "proj_size": 2, "bias": False}, 10 * (2 * 132 + 6 * 32), 30, 132, 20, 240),
    ],
    # 3 gates of 6 from 3 + 6: 18 x 11 = 198 weights and biases; 10 rows of 2 x 162 + 6 x 22 FLOPs; gates 180.
    "gru": [layer({"hidden_size": 6}, 10 * (324 + 132), 30, 198, 60, 180)],
    # One gate without biases: 6 x 9 = 54 weights, 2 x 54 + 6 x 7 FLOPs a row, gates 60.
    "rnn": [layer({"hidden_size": 6, "bias": False}, 10 * (108 + 42), 30, 54, 60, 60)],
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
}
