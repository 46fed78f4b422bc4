"""The numbers and features that describe an operation, and its roofline, worked out by hand."""

import math

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.features import FEATURE_PLACES, gpu_features, size_features
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
        # 100 x 200 outputs take tiles of 128, so 128 x 256 are computed, and 32 steps beside the 50 of the reduction.
        (
            Operation("matmul", [(3, 100, 50), (3, 50, 200)]),
            {"flops": 2 * 3 * 100 * 200 * 50, "computed_flops": 2 * 3 * 128 * 256 * (50 + 32)},
        ),
        # So do 100 queries and 200 keys, twice: for the scores and for the sums of values.
        (attention(100, 200), {"computed_flops": 2 * 2 * 8 * 128 * 256 * (64 + 32)}),
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


def layer(last, features):
    return Operation("linear", [(4, last)], {"out_features": features, "bias": False})


LAYER = Operation("linear", [(32, 96)], {"out_features": 80, "bias": True})
GROUPED = conv((2, 16, 10, 12), out_channels=24, stride=2, padding=0, groups=4, bias=False)


def aligned(last, channel):
    return {"last_size_alignment": last, "channel_alignment": channel}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        # FLOPs and bytes count one more, so that none has no logarithm.
        (LAYER, {"log_intensity": math.log(491521) - math.log(4 * (3072 + 7760 + 2560) + 1)}),
        (LAYER, {"kernel": 1, "stride": 1, "log_groups": 0, "channels_per_group": 96, "bias": 1}),
        (LAYER, {"log_rows": math.log(32), "log_columns": math.log(80), "log_reduction": math.log(96)}),
        # 32 x 80 outputs lie in two blocks of 64 x 64.
        (LAYER, {"tile_fill": 32 * 80 / (64 * 128), "family_matmul": 1, "family_convolution": 0}),
        (GROUPED, {"kernel": 3, "stride": 2, "log_groups": math.log(4), "channels_per_group": 4, "bias": 0}),
        (GROUPED, {"family_matmul": 0, "family_convolution": 1, **aligned(1, 2)}),
        (Operation("relu", [(5, 7)]), {"tile_fill": 1}),
        # Alignment counts multiples of 4 and of 8.
        (layer(8, 8), aligned(2, 2)),
        (layer(12, 8), aligned(1, 1)),
        (layer(8, 12), aligned(2, 1)),
        (layer(10, 9), aligned(0, 0)),
    ],
    ids=str,
)
def test_features_that_are_the_same_on_all_gpus(operation, expected):
    row = size_features(OperationList([operation]))[0]
    assert {name: float(row[FEATURE_PLACES[name]]) for name in expected} == pytest.approx(expected)
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1.0


@pytest.mark.parametrize(
    ("operation", "blocks", "touched"),
    [
        # 32 x 80 outputs in two blocks of 64 x 64; weights and biases are touched beside inputs and outputs.
        (LAYER, 2, 4 * (32 * 96 + 97 * 80 + 32 * 80)),
        # Seven products of 96 x 40 outputs in two blocks each.
        (Operation("matmul", [(7, 96, 100), (7, 100, 40)]), 14, 4 * 7 * (96 * 100 + 100 * 40 + 96 * 40)),
    ],
    ids=str,
)
def test_sizes_relative_to_a_gpu(operation, blocks, touched):
    """Ten multiprocessors, and a megabyte of L2."""
    found = gpu_features(OperationList([operation]), ROUND)
    assert found["log_waves"] == pytest.approx([math.log(blocks / 10)])
    assert found["log_cache_fill"] == pytest.approx([math.log(touched / 1e6)])


def test_roofline_by_hand():
    """2 x 1024^3 FLOPs at 10.3 TFLOP/s; relu: 2 x 4 MiB at 933 GB/s. Half the clock doubles computing only."""
    linear = Operation("linear", [(1024, 1024)], {"out_features": 1024, "bias": False})
    operations = [linear, Operation("relu", [(1024, 1024)]), linear.replace(precision="tf32")]
    line, slow = (roofline(operations, A30, clock) for clock in (1440, 720))
    assert line.time_s == pytest.approx([2 * 1024**3 / 10.3e12, 8 * 1024**2 / 933e9, 2 * 1024**3 / 82e12])
    assert slow.compute_s == pytest.approx(2 * line.compute_s)
    assert slow.memory_s == pytest.approx(line.memory_s)


@pytest.mark.parametrize(
    "operation",
    [
        Operation("relu", [(1,)]),
        Operation("sum", [(3, 4)]),
        Operation("attention", [(2, 4, 8, 16)] * 3, mode="training"),
        Operation("conv3d", [(1, 2, 3, 4, 5)], {"out_channels": 2, "kernel_size": (1, 2, 3)}),
        Operation("embedding", [(4, 7)], {"num_embeddings": 100, "embedding_dim": 8}),
        Operation("dropout", [(4, 7)], {"p": 0.5}),
        Operation("cat", [(1, 2), (1, 3)], {"dim": 1}, precision="bf16"),
    ],
    ids=lambda operation: operation.kind,
)
def test_every_kind_has_finite_features(operation):
    matrix = relative_features([operation], A30)
    assert matrix.shape == (1, len(RELATIVE_NAMES))
    assert np.isfinite(matrix).all()


# Features relative to the GPU: 10 multiprocessors at 2 GHz, 1 TFLOP/s, of 100 GB/s copies reach 91.

PEAK, REACHED = 1e12, 0.91e11


def features(operation):
    """By name; the operation stands behind another one."""
    matrix = relative_features([Operation("tanh", [(5, 3)]), operation], ROUND)
    return dict(zip(RELATIVE_NAMES, matrix[1].tolist(), strict=True))


def picked(found, *names):
    return [found[name] for name in names]


def test_a_gpu_is_described_by_ratios_of_its_figures():
    """1 TFLOP/s over 100 GB/s, 10 multiprocessors, 200 W for 1 TFLOP/s, kernels of compute capability 8."""
    found = features(Operation("relu", [(77, 13)]))
    machine = picked(found, "kernel_generation", "log_ridge", "log_sms", "log_watts_per_tflops")
    assert machine == pytest.approx([8, math.log(10), math.log(10), math.log(200)])


def test_work_is_counted_in_cycles():
    """A million elements: 1 us of computing, 8 MB at 91 GB/s, and 720 GB/s through the multiprocessors, at 2 GHz."""
    found = features(Operation("relu", [(1000, 1000)]))
    memory_s = 8e6 / REACHED
    least_s = (1e-6**3 + memory_s**3 + (8e6 / 720e9) ** 3) ** (1 / 3)
    assert found["log_cycles"] == pytest.approx(math.log(least_s * 2e9))
    assert found["log_compute_over_memory"] == pytest.approx(math.log(1e-6 / memory_s), abs=1e-5)


def test_tiles_and_waves_of_products():
    """Seven products of 96 x 40 outputs from 100: 14 tiles of 64 x 64, or 7 of 128 x 128, on 10 multiprocessors."""
    found = features(Operation("matmul", [(7, 96, 100), (7, 100, 40)]))
    sides = picked(found, "log_row_fill_32", "log_row_fill_128", "log_column_fill_32", "log_column_fill_128")
    assert sides == pytest.approx([0, math.log(96 / 128), math.log(40 / 64), math.log(40 / 128)])
    waves = picked(found, "log_last_wave_64", "log_last_wave_128")
    assert waves == pytest.approx([math.log(2 / 1.4), math.log(1 / 0.7)])
    # The library computes 128 x 128 outputs at a time, and starts for 20 steps.
    outputs = 7 * 96 * 40 / 10
    assert found["log_library_tiles"] == pytest.approx(math.log(128 * 128 / outputs * (1 + 20 / 100)))
    of_relu = features(Operation("relu", [(96, 40)]))
    of_tiles = [name for name in RELATIVE_NAMES if "_fill_" in name or "_last_wave_" in name]
    assert len(of_tiles) == 6
    assert not any(picked(of_relu, *of_tiles, "log_library_tiles"))


@pytest.mark.parametrize(
    ("operation", "kinds", "marked"),
    [
        (Operation("linear", [(96, 100)], {"out_features": 40}, precision="fp16", mode="training"), ["kind_linear"], 1),
        (Operation("relu", [(96, 40)]), ["kind_relu"], 0),
        (Operation("conv2d", [(1, 3, 9, 9)], {"out_channels": 5, "kernel_size": 3}), [], 0),
    ],
    ids=str,
)
def test_kind_precision_and_mode_are_marked(operation, kinds, marked):
    found = features(operation)
    assert [name for name, value in found.items() if name.startswith("kind_") and value] == kinds
    assert picked(found, "half_precision", "training") == [marked] * 2


def of_window(shape, channels, kernel, **more):
    padding = kernel // 2 if isinstance(kernel, int) else 0
    settings = {"out_channels": channels, "kernel_size": kernel, "padding": padding, "bias": False}
    return Operation("conv2d", [shape], settings, **more)


def overlapped_s(flops, moved, peak=PEAK):
    return np.cbrt((flops / peak) ** 3 + (moved / REACHED) ** 3)


def test_convolutions_by_the_quickest_algorithm():
    """256 positions, 32 to 64 channels: blocks of 128 x 32, which compute at 0.525 of the peak, for two waves."""
    found = features(of_window((1, 32, 16, 16), 64, 1))
    moved, own_s = 4 * (32 * 256 + 64 * 256 + 32 * 64), 2 * 256 * 64 * 32 / PEAK
    for name, steps in (("log_least_way", 32), ("log_least_way_back", 64)):
        flops = 2 * 10 * 2 * 128 * 32 * (steps + 8) / 0.525
        assert found[name] == pytest.approx(math.log(overlapped_s(flops, moved) / own_s))


def test_algorithms_of_a_convolution_over_the_implicit_one():
    """Whole waves of 10 blocks: 92 x 4 blocks of 128 x 64, 46 x 2 x 8 of 32 squares, and 36 x 6 x 2 of 128 x 128."""
    found = features(of_window((46, 256, 16, 16), 256, 3))
    moved, transformed = 4 * (2 * 46 * 256 * 256 + 9 * 256 * 256), 2 * 4 * 36 * (48 * 16 * 512 + 256 * 256)
    implicit_s = overlapped_s(37 * 10 * 2 * 128 * 64 * (9 * 256 + 8) / 0.75, moved)
    fused_s = overlapped_s(74 * 10 * 2 * 16 * 32 * 32 * (256 + 8) / 0.5, moved)
    separate_s = 44 * 10 * 2 * 128 * 128 * (256 + 8) / 0.85 / PEAK + (moved + transformed) / REACHED
    assert found["log_fused_over_implicit"] == pytest.approx(math.log(fused_s / implicit_s))
    assert found["log_separate_over_implicit"] == pytest.approx(math.log(separate_s / implicit_s))


@pytest.mark.parametrize(
    ("shape", "frequencies", "blocks", "implicit_flops"),
    [
        # Images of 12 x 12 and a window of 5 x 5 just fit into 16 x 16; 72 blocks of 128 x 64 outputs in eight waves.
        pytest.param((64, 64, 12, 12), 16 * 9, 150, 80 * 2 * 128 * 64 * (64 * 25 + 8) / 0.75, id="16 x 16"),
        # Images of 28 x 28 just fit into 32 x 32; 98 blocks of 128 x 32 outputs in ten waves.
        pytest.param((16, 32, 28, 28), 32 * 17, 550, 100 * 2 * 128 * 32 * (32 * 25 + 8) / 0.525, id="32 x 32"),
    ],
)
def test_fourier_transforms_over_the_implicit_algorithm(shape, frequencies, blocks, implicit_flops):
    """A block of 64 x 64 complex numbers for each of half of the frequencies: four times the FLOPs, twice the bytes.

    Transformed images, results and filters are written and read again.
    """
    images, channels, side, _ = shape
    moved = 4 * (2 * images * channels * side**2 + 25 * channels**2)
    transformed = 2 * 2 * 4 * frequencies * (2 * images * channels + channels**2)
    fourier_s = blocks * 4 * 2 * 64 * 64 * (channels + 8) / 0.85 / PEAK + (moved + transformed) / REACHED
    expected = math.log(fourier_s / overlapped_s(implicit_flops, moved))
    assert features(of_window(shape, channels, 5))["log_fourier_over_implicit"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kernel", "flops", "elements"),
    [
        # 256 positions in two blocks of 128 x 64, one wave, at 0.6 of the peak.
        pytest.param(1, 10 * 2 * 128 * 64 * (32 + 64) / 0.6, 256 * (32 + 64) + 32 * 64, id="1 x 1"),
        # Images of 16 x 16 and results of 16 x 15 pixels pass four times: they are transposed, too.
        pytest.param((1, 2), 10 * 2 * 128 * 64 * (64 + 64) / 0.75, 4 * (256 * 32 + 240 * 64) + 64 * 64, id="1 x 2"),
    ],
)
def test_convolutions_on_tensor_cores(kernel, flops, elements):
    """They compute 8 TFLOP/s."""
    found = of_window((1, 32, 16, 16), 64, kernel, precision="fp16")
    expected = math.log(overlapped_s(flops, 2 * elements, 8 * PEAK) / (found.flops / (8 * PEAK)))
    assert features(found)["log_least_way"] == pytest.approx(expected)
