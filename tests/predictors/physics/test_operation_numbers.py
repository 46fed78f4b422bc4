"""The numbers that describe operations on any GPU, each worked out by hand."""

import pytest

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.operation_numbers import number_rows, numbers_of

CONV = {"out_channels": 12, "kernel_size": 3, "stride": 1, "padding": 1, "bias": True}


@pytest.mark.parametrize(
    ("operation", "channels_in", "channels_out", "positions"),
    [
        pytest.param(Operation("conv1d", [(2, 6, 10)], CONV), 6, 12, 10, id="conv1d: channels come second"),
        pytest.param(Operation("conv2d", [(2, 6, 8, 5)], CONV), 6, 12, 40, id="conv2d"),
        pytest.param(Operation("max_pool3d", [(2, 6, 4, 8, 10)], {"kernel_size": 2}), 6, 6, 40, id="volumes"),
        pytest.param(Operation("batch_norm", [(2, 6, 8, 5)]), 6, 6, 40, id="images: channels come second"),
        pytest.param(Operation("relu", [(2, 6, 8)]), 8, 8, 8, id="sequences: channels come last"),
        pytest.param(Operation("relu", [(2, 6)]), 6, 6, 1, id="a matrix"),
        pytest.param(Operation("relu", [(7,)]), 7, 7, 1, id="a vector"),
        pytest.param(Operation("relu", [()]), 1, 1, 1, id="a number"),
        pytest.param(Operation("gelu", [(2, 6, 8, 5)]), 5, 5, 40, id="gelu is for tokens"),
        pytest.param(
            Operation("layer_norm", [(2, 6, 8, 5)], {"normalized_shape": (5,)}), 5, 5, 40, id="layer norm, too"
        ),
        pytest.param(
            Operation("linear", [(2, 6, 8, 5)], {"out_features": 9, "bias": False}), 5, 9, 72, id="linear layers, too"
        ),
    ],
)
def test_channels_and_positions(operation, channels_in, channels_out, positions):
    n = numbers_of([operation])
    assert (n.channels_in[0], n.channels_out[0], n.positions[0]) == (channels_in, channels_out, positions)


def test_sides_of_windows():
    """A window of 3 x 12 counts as the square of the same area, 6 x 6."""
    attributes = {"out_channels": 4, "kernel_size": (3, 12), "stride": (1, 4), "padding": 0, "bias": False}
    n = numbers_of([Operation("conv2d", [(2, 6, 20, 24)], attributes), Operation("relu", [(2, 6)])])
    assert n.kernel.tolist() == pytest.approx([6, 1])
    assert n.stride.tolist() == pytest.approx([2, 1])
    assert n.groups.tolist() == [1, 1]


def test_bias_is_a_number_of_its_own():
    linear = {"out_features": 9, "bias": True}
    operations = [Operation("linear", [(2, 5)], linear), Operation("linear", [(2, 5)], {**linear, "bias": False})]
    assert numbers_of([*operations, Operation("relu", [(2, 5)])]).bias.tolist() == [1, 0, 0]


def test_height_and_width_of_the_output():
    n = numbers_of([Operation("relu", [shape]) for shape in [(2, 6, 8, 5), (2, 6, 8), (2, 6), (2, 3, 4, 8, 5)]])
    assert n.height.tolist() == [8, 1, 1, 8]
    assert n.width.tolist() == [5, 8, 1, 5]


@pytest.mark.parametrize(
    ("changed", "has"),
    [
        ({}, 1),
        ({"kernel_size": 1, "padding": 0}, 0),
        ({"kernel_size": (3, 5)}, 0),
        ({"kernel_size": 2}, 1),
        ({"kernel_size": (5, 5)}, 1),
        ({"stride": 2}, 0),
        ({"dilation": 2}, 0),
        ({"groups": 2}, 0),
    ],
)
def test_transforms_compute_square_windows_that_move_step_by_step(changed, has):
    assert numbers_of([Operation("conv2d", [(2, 6, 20, 24)], {**CONV, **changed})]).transforms[0] == has


def test_transforms_compute_convolutions_of_images_only():
    assert numbers_of([Operation("conv1d", [(2, 6, 10)], CONV), Operation("relu", [(2, 6)])]).transforms.tolist() == [
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("height", "width", "saved"),
    [
        # 4 x 4 outputs are 4 squares of 16 multiplications; one by one they take 9 each: 144 / 64.
        (4, 4, 9 / 4),
        # 3 x 5 outputs need as many squares as 4 x 6, which is 6: 15 x 9 / (6 x 16).
        (3, 5, 15 * 9 / (6 * 16)),
        # A single output would take more multiplications in a square of four than by itself.
        (1, 1, 1.0),
    ],
)
def test_winograd_computes_squares_of_outputs(height, width, saved):
    assert numbers_of([Operation("conv2d", [(2, 6, height, width)], CONV)]).winograd[0] == pytest.approx(saved)


def test_tiles_of_batched_products_are_filled_up():
    """100 x 200 outputs take tiles of 128, so 128 x 256 are computed, and 32 steps beside the 50 of the reduction."""
    n = numbers_of([Operation("matmul", [(3, 100, 50), (3, 50, 200)])])
    assert n.flops[0] == 2 * 3 * 100 * 200 * 50
    assert n.computed_flops[0] == pytest.approx(2 * 3 * 128 * 256 * (50 + 32))


def test_tiles_of_attention_are_filled_up_with_queries_and_keys():
    """100 queries and 200 keys take tiles of 128, too: 128 x 256 pairs, and 32 steps beside the 64 of a head."""
    n = numbers_of([Operation("attention", [(2, 4, 100, 64), (2, 4, 200, 64), (2, 4, 200, 64)])])
    assert n.computed_flops[0] / n.flops[0] == pytest.approx(128 * 256 * (64 + 32) / (100 * 200 * 64))


def test_kernels_run_in_forward_and_backward():
    relu, identity = Operation("relu", [(2, 6)]), Operation("dropout", [(2, 6)])
    assert numbers_of([relu, relu.replace(mode="training"), identity]).kernels.tolist() == [1, 2, 0]


def test_many_together_as_each_alone():
    """Sixteen and more that are alike are counted together: convolutions, padded products, Winograd's sides."""
    sides = range(5, 25)
    operations = [
        *(Operation("conv2d", [(2, 6, side, 9)], {**CONV, "out_channels": side}) for side in sides),
        *(Operation("conv_transpose2d", [(2, 6, side, 9)], {**CONV, "kernel_size": 1, "stride": 2}) for side in sides),
        *(Operation("matmul", [(3, side, 40), (3, 40, 2 * side)]) for side in sides),
        *(Operation("attention", [(2, 4, side, 8)] * 3) for side in sides),
        *(Operation("sort", [(2, 1000 * side)]) for side in sides),  # its rule compares sizes, so each is counted alone
        *(Operation("matmul", [(side, 64), (64, (2**31 - 1) // side)]) for side in sides),
        Operation("matmul", [(2**31 - 1, 64), (64, 2**31 - 1)]),  # more FLOPs than 64 bits hold
    ]
    alone = [number_rows([operation])[0].tolist() for operation in operations]
    assert number_rows(operations).tolist() == alone
