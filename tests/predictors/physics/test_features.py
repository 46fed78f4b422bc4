"""The numbers and features that describe an operation, and its roofline, worked out by hand."""

import math

import pytest
from round_gpu import ROUND

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.predictors.physics.operation_numbers import number_rows, numbers_of
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features
from joulecast.predictors.physics.roofline import roofline

A30 = find_gpu("A30")
SAME = {"out_channels": 12, "kernel_size": 3, "stride": 1, "padding": 1, "bias": True}
IMAGE = (2, 6, 20, 24)
RELU, LINEAR = Operation("relu", [(2, 6)]), Operation("linear", [(2, 5)], {"out_features": 9, "bias": True})


def conv(shape=IMAGE, kind="conv2d", **changed):
    return Operation(kind, [shape], {**SAME, **changed})


def attention(queries, keys):
    return Operation("attention", [(2, 4, queries, 64), (2, 4, keys, 64), (2, 4, keys, 64)])


def channels(given, positions, made=None):
    return {"channels_in": given, "channels_out": made or given, "positions": positions}


def product(batch, rows, columns, reduction):
    return {"batch": batch, "rows": rows, "columns": columns, "reduction": reduction}


@pytest.mark.parametrize(
    ("operation", "numbers"),
    [
        # In convolutions and images channels come second, in anything for tokens last.
        (conv((2, 6, 10), "conv1d"), channels(6, 10, made=12) | {"transforms": 0}),
        (conv((2, 6, 8, 5)), channels(6, 40, made=12)),
        (Operation("max_pool3d", [(2, 6, 4, 8, 10)], {"kernel_size": 2}), channels(6, 40)),
        (Operation("batch_norm", [(2, 6, 8, 5)]), channels(6, 40)),
        (Operation("relu", [(2, 6, 8)]), channels(8, 8) | {"height": 1, "width": 8}),
        (
            RELU,
            channels(6, 1) | {"kernel": 1, "stride": 1, "groups": 1, "bias": 0, "height": 1, "width": 1, "kernels": 1},
        ),
        (RELU.replace(mode="training"), {"kernels": 2}),
        (Operation("dropout", [(2, 6)]), {"kernels": 0}),
        (Operation("relu", [(7,)]), channels(7, 1)),
        (Operation("relu", [()]), channels(1, 1)),
        (Operation("relu", [(2, 6, 8, 5)]), {"height": 8, "width": 5, "transforms": 0}),
        (Operation("relu", [(2, 3, 4, 8, 5)]), {"height": 8, "width": 5}),
        (Operation("gelu", [(2, 6, 8, 5)]), channels(5, 40)),
        (Operation("layer_norm", [(2, 6, 8, 5)], {"normalized_shape": (5,)}), channels(5, 40)),
        (
            Operation("linear", [(2, 6, 8, 5)], {"out_features": 9, "bias": False}),
            channels(5, 72, made=9) | {"bias": 0},
        ),
        (LINEAR, {"bias": 1}),
        # A window of 3 x 12 counts as the square of the same area, 6 x 6.
        (conv(kernel_size=(3, 12), stride=(1, 4), padding=0), {"kernel": 6, "stride": 2, "groups": 1}),
        # Transforms compute square windows that move step by step over images.
        (conv(), {"transforms": 1}),
        (conv(kernel_size=1, padding=0), {"transforms": 0}),
        (conv(kernel_size=(3, 5)), {"transforms": 0}),
        (conv(kernel_size=2), {"transforms": 1}),
        (conv(kernel_size=(5, 5)), {"transforms": 1}),
        (conv(stride=2), {"transforms": 0}),
        (conv(dilation=2), {"transforms": 0}),
        (conv(groups=2), {"transforms": 0}),
        # Winograd's squares of four outputs take 16 multiplications for 9 each. 3 x 5 outputs need as many as 4 x 6;
        # one alone would take more in a square than by itself.
        (conv((2, 6, 4, 4)), {"winograd": 9 / 4}),
        (conv((2, 6, 3, 5)), {"winograd": 15 * 9 / (6 * 16)}),
        (conv((2, 6, 1, 1)), {"winograd": 1}),
        (Operation("matmul", [(3, 100, 50), (3, 50, 200)]), {"flops": 2 * 3 * 100 * 200 * 50}),
        (Operation("matmul", [(2, 3, 40, 50), (2, 3, 50, 60)]), product(6, 40, 60, 50)),
        (attention(30, 70), product(8, 30, 64, 64)),
        (Operation("linear", [(2, 7, 50)], {"out_features": 60}), product(1, 14, 60, 50)),
        (
            Operation("conv2d", [(2, 16, 9, 9)], {"out_channels": 32, "kernel_size": 3, "groups": 4}),
            product(4, 2 * 7 * 7, 8, 4 * 9),
        ),
        (Operation("relu", [(4, 5, 6)]), product(1, 20, 6, 1)),
    ],
    ids=str,
)
def test_numbers_of_an_operation(operation, numbers):
    """It stands behind another one, so that no row is confused with the first."""
    found = numbers_of([Operation("tanh", [(5, 3)]), operation])
    assert {name: float(getattr(found, name)[1]) for name in numbers} == pytest.approx(numbers)


def test_many_together_as_each_alone():
    """Sixteen and more that are alike are counted together: convolutions, padded products, Winograd's sides."""
    sides = range(5, 25)
    operations = [
        *(conv((2, 6, side, 9), out_channels=side) for side in sides),
        *(conv((2, 6, side, 9), "conv_transpose2d", kernel_size=1, stride=2) for side in sides),
        *(Operation("matmul", [(3, side, 40), (3, 40, 2 * side)]) for side in sides),
        *(Operation("attention", [(2, 4, side, 8)] * 3) for side in sides),
        *(Operation("sort", [(2, 1000 * side)]) for side in sides),  # its rule compares sizes, so each is counted alone
        *(Operation("matmul", [(side, 64), (64, (2**31 - 1) // side)]) for side in sides),
        Operation("matmul", [(2**31 - 1, 64), (64, 2**31 - 1)]),  # more FLOPs than 64 bits hold
    ]
    assert number_rows(operations).tolist() == [number_rows([operation])[0].tolist() for operation in operations]


LAYER = Operation("linear", [(32, 96)], {"out_features": 80, "bias": True})
GROUPED = conv((2, 16, 10, 12), out_channels=24, stride=2, padding=0, groups=4, bias=False)
PRODUCT = Operation("matmul", [(7, 96, 100), (7, 100, 40)])


def layer(last, features):
    return Operation("linear", [(4, last)], {"out_features": features, "bias": False})


def aligned(last, channel):
    return {"last_size_alignment": last, "channel_alignment": channel}


def fills(rows_32, columns_32, rows_128, columns_128):
    sides = {
        "row_fill_32": rows_32,
        "column_fill_32": columns_32,
        "row_fill_128": rows_128,
        "column_fill_128": columns_128,
    }
    return {f"log_{name}": math.log(share) for name, share in sides.items()}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        # FLOPs and bytes count one more, so that none has no logarithm.
        (LAYER, {"log_intensity": math.log(491521) - math.log(4 * (3072 + 7760 + 2560) + 1)}),
        (LAYER, {"kernel": 1, "stride": 1, "log_groups": 0, "channels_per_group": 96, "bias": 1}),
        (LAYER, {"log_rows": math.log(32), "log_columns": math.log(80), "log_reduction": math.log(96)}),
        # 32 x 80 outputs lie in two blocks of 64 x 64; weights and biases are touched beside inputs and outputs.
        (LAYER, {"tile_fill": 32 * 80 / (64 * 128), "log_waves": math.log(2 / 10)}),
        (LAYER, {"log_cache_fill": math.log(4 * (32 * 96 + 97 * 80 + 32 * 80) / 1e6)}),
        (LAYER, {"family_matmul": 1, "family_convolution": 0, "kind_linear": 1, "kind_matmul": 0}),
        (GROUPED, {"kernel": 3, "stride": 2, "log_groups": math.log(4), "channels_per_group": 4, "bias": 0}),
        (GROUPED, {"family_matmul": 0, "family_convolution": 1, **aligned(1, 2)}),
        # Seven products of 96 x 40 outputs from 100: 14 tiles of 64 x 64, or 7 of 128 x 128, on 10 multiprocessors.
        (
            PRODUCT,
            {"log_waves": math.log(1.4), "log_last_wave_64": math.log(2 / 1.4), "log_last_wave_128": -math.log(0.7)},
        ),
        (PRODUCT, {"log_cache_fill": math.log(4 * 7 * (96 * 100 + 100 * 40 + 96 * 40) / 1e6)}),
        (PRODUCT, fills(1, 40 / 64, 96 / 128, 40 / 128)),
        # The library computes 128 x 128 outputs at a time, and starts for 20 steps.
        (PRODUCT, {"log_library_tiles": math.log(128 * 128 / (7 * 96 * 40 / 10) * (1 + 20 / 100))}),
        # What is no product has no tiles.
        (Operation("relu", [(96, 40)]), {"tile_fill": 1, "log_library_tiles": 0, **fills(1, 1, 1, 1)}),
        (Operation("relu", [(96, 40)]), {"log_last_wave_64": 0, "log_last_wave_128": 0}),
        # Alignment counts multiples of 4 and of 8.
        (layer(8, 8), aligned(2, 2)),
        (layer(12, 8), aligned(1, 1)),
        (layer(8, 12), aligned(2, 1)),
        (layer(10, 9), aligned(0, 0)),
        # A GPU is described by ratios of its figures: 1 TFLOP/s over 100 GB/s, 10 multiprocessors, 200 W for 1 TFLOP/s,
        # kernels of compute capability 8.
        (RELU, {"kernel_generation": 8, "log_ridge": math.log(10), "log_sms": math.log(10)}),
        (RELU, {"log_watts_per_tflops": math.log(200), "half_precision": 0, "training": 0, "kind_relu": 1}),
        (LAYER.replace(precision="fp16", mode="training"), {"half_precision": 1, "training": 1}),
        # A million elements: 1 us of computing, 8 MB at 91 GB/s, and 720 GB/s through the multiprocessors, at 2 GHz.
        (
            Operation("relu", [(1000, 1000)]),
            {
                "log_cycles": math.log((1e-6**3 + (8e6 / 0.91e11) ** 3 + (8e6 / 720e9) ** 3) ** (1 / 3) * 2e9),
                "log_compute_over_memory": pytest.approx(math.log(1e-6 / (8e6 / 0.91e11)), abs=1e-5),
            },
        ),
    ],
    ids=str,
)
def test_features_on_a_round_gpu(operation, expected):
    """10 multiprocessors at 2 GHz, 1 TFLOP/s, a megabyte of L2. The operation stands behind another one."""
    matrix = relative_features([Operation("tanh", [(5, 3)]), operation], ROUND)
    found = dict(zip(RELATIVE_NAMES, matrix[1].tolist(), strict=True))
    assert {name: found[name] for name in expected} == {
        name: pytest.approx(value, abs=1e-12) if isinstance(value, float | int) else value
        for name, value in expected.items()
    }
    assert sum(value for name, value in found.items() if name.startswith("kind_")) == (operation.kind != "conv2d")
    with pytest.raises(ValueError, match="read-only"):
        matrix[0, 0] = 1.0


def test_roofline_by_hand():
    """2 x 1024^3 FLOPs at 10.3 TFLOP/s; relu: 2 x 4 MiB at 933 GB/s. Half the clock doubles computing only."""
    linear = Operation("linear", [(1024, 1024)], {"out_features": 1024, "bias": False})
    operations = [linear, Operation("relu", [(1024, 1024)]), linear.replace(precision="tf32")]
    line, slow = (roofline(operations, A30, clock) for clock in (1440, 720))
    assert [*map(max, *line)] == pytest.approx([2 * 1024**3 / 10.3e12, 8 * 1024**2 / 933e9, 2 * 1024**3 / 82e12])
    assert slow.compute_s == pytest.approx(2 * line.compute_s)
    assert slow.memory_s == pytest.approx(line.memory_s)
