"""Instructions of PyTorch's own kernels, against arithmetic by hand."""

import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.least_times import LeastTimes

LANES = 128 * 10 * 2e9  # Threads per second of 10 multiprocessors at 2 GHz.


def depthwise(kernel, shape=(8, 64, 32, 32), **changes):
    settings = {"out_channels": shape[1], "groups": shape[1], "kernel_size": kernel, "padding": kernel // 2}
    return Operation("conv2d", [shape], settings | {"bias": False}).replace(**changes)


def compute_s(operation, gpu=ROUND, clock_mhz=2000.0):
    return LeastTimes.of([operation], gpu, clock_mhz).compute_s[0]


@pytest.mark.parametrize(
    ("kernel", "lanes"),
    [pytest.param(3, 176 + 13.2 * 9, id="unrolled"), pytest.param(7, 21.6 * 49, id="not unrolled")],
)
def test_a_depthwise_convolution_counts_the_positions_of_its_window(kernel, lanes):
    assert compute_s(depthwise(kernel)) == pytest.approx(8 * 64 * 32 * 32 * lanes / LANES)
    assert compute_s(depthwise(kernel), clock_mhz=1000.0) == pytest.approx(8 * 64 * 32 * 32 * lanes / LANES * 2)


def test_the_gradient_of_a_depthwise_weight_has_a_block_for_each_position():
    operation = depthwise(3)
    elements, blocks = 8 * 64 * 32 * 32, 64 * 9
    gradients = elements * (290 + 41 * 9 + 39 * 9) + blocks * 1150 * 128
    more = compute_s(operation.replace(mode="training")) - compute_s(operation)
    assert more == pytest.approx(gradients / LANES)


def test_other_libraries_compute_depthwise_convolutions_in_half_precision_and_on_other_boards():
    """cuDNN in fp16, where memory decides, and MIOpen on AMD's boards."""
    full, half = depthwise(7), depthwise(7, precision="fp16")
    assert compute_s(half) < compute_s(full) / 20
    mi210 = find_gpu("MI210")
    assert compute_s(full, mi210) < LeastTimes.of([full], mi210, 1700.0).memory_s[0]


def test_maximum_pooling_reads_a_window_for_each_output_and_writes_its_place():
    pool = Operation("max_pool2d", [(8, 64, 32, 32)], {"kernel_size": 3, "stride": 2, "padding": 1})
    inputs, outputs = 8 * 64 * 32 * 32, 8 * 64 * 16 * 16
    found = LeastTimes.of([pool], ROUND, 2000.0)
    assert found.compute_s[0] == pytest.approx(outputs * 54.6 * 9 / LANES)
    assert found.memory_s[0] == pytest.approx((4 * inputs + (4 + 8) * outputs) / 0.91e11)
    more = compute_s(pool.replace(mode="training")) - compute_s(pool)
    assert more == pytest.approx(inputs * (750 + 17 * 9 / 4) / LANES)


@pytest.mark.parametrize(("side", "cycles"), [pytest.param(1, 60, id="mean"), pytest.param(6, 650, id="blocks")])
def test_adaptive_pooling_counts_channels_of_images(side, cycles):
    pool = Operation("adaptive_avg_pool2d", [(8, 64, 8, 8)], {"output_size": side})
    assert compute_s(pool) == pytest.approx(8 * 64 * cycles * 128 / LANES)


@pytest.mark.parametrize(("channels", "busiest"), [(4, 1), (40, 4)])
def test_batch_norm_in_training_reduces_each_channel_on_one_multiprocessor(channels, busiest):
    norm = Operation("batch_norm", [(8, channels, 32, 32)], mode="training")
    assert compute_s(norm) == pytest.approx(8 * 32 * 32 * busiest * 4.4 / 2e9)
