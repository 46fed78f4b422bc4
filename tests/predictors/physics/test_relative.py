"""Features relative to the GPU against arithmetic by hand, on a GPU with round figures."""

import math

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast import Operation
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features


def features(operation):
    """The features of an operation by name; it stands behind another, so that no row is confused with the first."""
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
    memory_s = 8e6 / 0.91e11
    least_s = (1e-6**3 + memory_s**3 + (8e6 / 720e9) ** 3) ** (1 / 3)
    assert found["log_cycles"] == pytest.approx(math.log(least_s * 2e9))
    assert found["log_compute_over_memory"] == pytest.approx(math.log(1e-6 / memory_s), abs=1e-5)


def test_tiles_and_waves_of_products():
    """Seven products of 96 x 40 outputs from 100: 14 tiles of 64 x 64, or 7 of 128 x 128, on 10 multiprocessors."""
    found = features(Operation("matmul", [(7, 96, 100), (7, 100, 40)]))
    sides = picked(found, "log_row_fill_32", "log_row_fill_128", "log_column_fill_32", "log_column_fill_128")
    assert sides == pytest.approx([0, math.log(96 / 128), math.log(40 / 64), math.log(40 / 128)])
    assert picked(found, "log_last_wave_64", "log_last_wave_128") == pytest.approx(
        [math.log(2 / 1.4), math.log(1 / 0.7)]
    )
    # The library computes 128 x 128 outputs at a time, and starts for 20 steps.
    outputs = 7 * 96 * 40 / 10
    assert found["log_library_tiles"] == pytest.approx(math.log(128 * 128 / outputs * (1 + 20 / 100)))


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (Operation("linear", [(96, 100)], {"out_features": 40}, precision="fp16", mode="training"), "linear"),
        (Operation("relu", [(96, 40)]), "relu"),
        (Operation("conv2d", [(1, 3, 9, 9)], {"out_channels": 5, "kernel_size": 3}), None),
    ],
)
def test_kind_precision_and_mode_are_marked(operation, kind):
    found = features(operation)
    assert [name for name, value in found.items() if name.startswith("kind_") and value] == [f"kind_{kind}"] * bool(
        kind
    )
    assert picked(found, "half_precision", "training") == [kind == "linear"] * 2


def test_only_products_have_tiles():
    found = features(Operation("relu", [(96, 40)]))
    of_tiles = [name for name in RELATIVE_NAMES if "_fill_" in name or "_last_wave_" in name]
    assert len(of_tiles) == 6
    assert not any(picked(found, *of_tiles, "log_library_tiles"))


def test_convolutions_by_the_quickest_algorithm():
    """256 positions, 32 to 64 channels: blocks of 128 x 32, which compute at 0.525 of the peak, for two waves."""
    found = features(Operation("conv2d", [(1, 32, 16, 16)], {"out_channels": 64, "kernel_size": 1, "bias": False}))
    memory_s, own_s = 4 * (32 * 256 + 64 * 256 + 32 * 64) / 0.91e11, 2 * 256 * 64 * 32 / 1e12
    for name, steps in (("log_least_way", 32), ("log_least_way_back", 64)):
        compute_s = 2 * 10 * 2 * 128 * 32 * (steps + 8) / 0.525 / 1e12
        assert found[name] == pytest.approx(math.log(np.cbrt(compute_s**3 + memory_s**3) / own_s))


def test_algorithms_of_a_convolution_over_the_implicit_one():
    attributes = {"out_channels": 256, "kernel_size": 3, "padding": 1, "bias": False}
    found = features(Operation("conv2d", [(46, 256, 16, 16)], attributes))
    moved = 4 * (2 * 46 * 256 * 256 + 9 * 256 * 256)
    transformed = 2 * 4 * 36 * (48 * 16 * 512 + 256 * 256)
    # Whole waves of 10 blocks: 92 x 4 blocks of 128 x 64, 46 x 2 x 8 of 32 squares, and 36 x 6 x 2 of 128 x 128.
    implicit_s = 37 * 10 * 2 * 128 * 64 * (9 * 256 + 8) / 0.75 / 1e12
    fused_s = 74 * 10 * 2 * 16 * 32 * 32 * (256 + 8) / 0.5 / 1e12
    separate_s = 44 * 10 * 2 * 128 * 128 * (256 + 8) / 0.85 / 1e12 + (moved + transformed) / 0.91e11
    implicit_s, fused_s = (np.cbrt(compute_s**3 + (moved / 0.91e11) ** 3) for compute_s in (implicit_s, fused_s))
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
    attributes = {"out_channels": channels, "kernel_size": 5, "padding": 2, "bias": False}
    found = features(Operation("conv2d", [shape], attributes))
    moved = 4 * (2 * images * channels * side**2 + 25 * channels**2)
    transformed = 2 * 2 * 4 * frequencies * (2 * images * channels + channels**2)
    fourier_s = blocks * 4 * 2 * 64 * 64 * (channels + 8) / 0.85 / 1e12 + (moved + transformed) / 0.91e11
    implicit_s = np.cbrt((implicit_flops / 1e12) ** 3 + (moved / 0.91e11) ** 3)
    assert found["log_fourier_over_implicit"] == pytest.approx(math.log(fourier_s / implicit_s))


@pytest.mark.parametrize(
    ("channels", "kernel", "flops", "elements"),
    [
        # 256 positions in two blocks of 128 x 64, one wave, at 0.6 of the peak of 8 TFLOP/s.
        pytest.param(64, 1, 10 * 2 * 128 * 64 * (32 + 64) / 0.6 / 8, 256 * (32 + 64) + 32 * 64, id="1 x 1"),
        # Images of 16 x 16 and results of 16 x 15 pixels pass four times: they are transposed, too.
        pytest.param(
            64, (1, 2), 10 * 2 * 128 * 64 * (64 + 64) / 0.75 / 8, 4 * (256 * 32 + 240 * 64) + 64 * 64, id="1 x 2"
        ),
    ],
)
def test_convolutions_on_tensor_cores(channels, kernel, flops, elements):
    attributes = {"out_channels": channels, "kernel_size": kernel, "bias": False}
    conv = Operation("conv2d", [(1, 32, 16, 16)], attributes, precision="fp16")
    least_s = np.cbrt((flops / 1e12) ** 3 + (2 * elements / 0.91e11) ** 3)
    assert features(conv)["log_least_way"] == pytest.approx(math.log(least_s / (conv.flops / 8e12)))
