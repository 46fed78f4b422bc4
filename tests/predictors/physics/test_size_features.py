"""The features of operations that are the same on all GPUs, each worked out by hand."""

import math

import pytest

from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.features import FEATURE_PLACES, size_features

LINEAR = Operation("linear", [(32, 96)], {"out_features": 80, "bias": True})
CONV = Operation(
    "conv2d", [(2, 16, 10, 12)], {"out_channels": 24, "kernel_size": 3, "stride": 2, "groups": 4, "bias": False}
)


def feature(operation, name):
    return float(size_features(OperationList([operation]))[0, FEATURE_PLACES[name]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log_intensity", math.log(491521) - math.log(4 * (3072 + 7760 + 2560) + 1)),
        ("kernel", 1.0),
        ("stride", 1.0),
        ("log_groups", 0.0),
        ("channels_per_group", 96.0),
        ("bias", 1.0),
        ("log_rows", math.log(32)),
        ("log_columns", math.log(80)),
        ("log_reduction", math.log(96)),
        # 32 x 80 outputs lie in two blocks of 64 x 64.
        ("tile_fill", 32 * 80 / (64 * 128)),
        # 96 is a multiple of 4 and of 8, and so is 80.
        ("last_size_alignment", 2.0),
        ("channel_alignment", 2.0),
        ("family_matmul", 1.0),
        ("family_convolution", 0.0),
    ],
)
def test_a_linear_layer(name, expected):
    assert feature(LINEAR, name) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel", 3.0),
        ("stride", 2.0),
        ("log_groups", math.log(4)),
        ("channels_per_group", 4.0),
        ("bias", 0.0),
        ("last_size_alignment", 1.0),  # 12 is a multiple of 4 only
        ("channel_alignment", 2.0),
        ("family_convolution", 1.0),
        ("family_matmul", 0.0),
    ],
)
def test_a_grouped_convolution(name, expected):
    assert feature(CONV, name) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shape", "features", "last", "channels"),
    [((4, 8), 8, 2, 2), ((4, 12), 8, 1, 1), ((4, 8), 12, 2, 1), ((4, 10), 9, 0, 0)],
)
def test_alignment_counts_multiples_of_4_and_8(shape, features, last, channels):
    layer = Operation("linear", [shape], {"out_features": features, "bias": False})
    assert (feature(layer, "last_size_alignment"), feature(layer, "channel_alignment")) == (last, channels)


def test_an_operation_that_is_no_product_has_no_tiles():
    assert feature(Operation("relu", [(5, 7)]), "tile_fill") == 1.0


def test_features_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        size_features(OperationList([LINEAR]))[0, 0] = 1.0
