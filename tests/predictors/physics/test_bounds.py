"""Bounds that no operation can beat, by hand: launches of kernels, and the rates of data sheets."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.bounds import Bounds
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import PRIOR_ENERGY

A30 = find_gpu("A30")  # It has 10.3 TFLOP/s in fp32 and 933 GB/s at 1440 MHz.
TINY = Operation("add", [(8,)])
LINEAR, LINEAR_S = Operation("linear", [(4096, 4096)], {"out_features": 4096}), 2 * 4096**3 / 10.3e12


def work(operation, ratio=0.5):
    """Half of the time that the data sheet allows, at any clock, unless another ratio is given."""
    return Work.of([operation], A30, 1440.0, np.array([ratio]), PRIOR_ENERGY)


def conv(kernel, stride=1):
    window = {"kernel_size": kernel, "stride": stride, "padding": kernel // 2}
    return Operation("conv2d", [(32, 64, 56, 56)], {"out_channels": 64, "bias": False, **window})


def attention(causal):
    return Operation("attention", [(1, 16, 4096, 128)] * 3, {"causal": causal}, precision="bf16")


def relu(mebibytes):
    """It reads and writes half of these each."""
    return Operation("relu", [(mebibytes * 2**18,)], precision="fp16")


CONV_S = 2 * 32 * 56**2 * 64 * 64 / 10.3e12  # with a window of one pixel
# 16 heads, 4096 x 4096 pairs, four FLOPs for each of 128 elements, at 989.4 TFLOP/s.
ATTENTION_S = 16 * 4096**2 * 4 * 128 / 989.4e12


@pytest.mark.parametrize(
    ("operation", "gpu", "compute_s", "fixed_s"),
    [
        # The shortest layers that were published of an A100 (vidur2024) and of others (aiconfigurator2026, miopen2024).
        *((TINY, name, None, 2.0e-6) for name in ("A100 PCIe 40GB", "MI210", "P4")),
        *((TINY, name, None, s) for name, s in (("L40S", 1.7e-6), ("H100 SXM", 1.5e-6), ("B200", 1.6e-6))),
        # A launch for each kernel. A step of the optimizer has no backward, and dropout does nothing in inference.
        (TINY.replace(mode="training"), "A30", None, 4e-6),
        (Operation("sgd_step", [(8,)], mode="training"), "A30", None, 2e-6),
        (Operation("dropout", [(8,)], {"p": 0.5}), "A30", 0.0, 0.0),
        # 2 x 4096^3 FLOPs; and 4 bytes each of 4096 x 4096 inputs, weights, outputs, and 4096 of the bias.
        (LINEAR, "A30", LINEAR_S, 4 * (3 * 4096**2 + 4096) / 933e9),
        # Transforms save multiplications: 28 x 28 outputs of 5 x 5 products each, for 32 x 17 complex ones of four.
        (conv(1), "A30", CONV_S, None),
        (conv(3), "A30", 9 * CONV_S / 4, None),
        (conv(5), "A30", 25 * CONV_S / (28**2 * 5**2 / (4 * 32 * 17)), None),
        (conv(3, stride=2), "A30", 9 * CONV_S / 4, None),  # a quarter of the outputs, and no transform
        # Of the pairs, a mask leaves 4097 / 2 keys in the mean.
        (attention(causal=False), "H100 SXM", ATTENTION_S, None),
        (attention(causal=True), "H100 SXM", ATTENTION_S * 4097 / 8192, None),
        # 32, 144 and 400 MiB beside 96 MiB of L2 of an L40S: it serves all of them, some (up to three times
        # its size), and none. Of a chip whose cache was not measured, memory is as quick as its data sheet.
        (relu(32), "L40S", None, 32 * 2**20 / 864e9 / 6.6),
        (relu(144), "L40S", None, 144 * 2**20 / 864e9 * (144 / 288) ** 0.9),
        (relu(400), "L40S", None, 400 * 2**20 / 864e9),
        (relu(1), "P4", None, 2**20 / 192e9),
    ],
    ids=str,
)
def test_bounds_by_hand(operation, gpu, compute_s, fixed_s):
    found = Bounds.of([operation], find_gpu(gpu))
    for least_s, expected_s in ((found.compute_s, compute_s), (found.fixed_s, fixed_s)):
        assert expected_s is None or least_s == pytest.approx([expected_s], rel=1e-3)


def test_an_impossible_time_is_raised_to_its_bound_at_any_clock_and_a_possible_one_is_left():
    free, slow = work(LINEAR), work(LINEAR, ratio=2.0)
    bounded = free.bounded([LINEAR])
    for clock in (1440.0, 720.0, 360.0):
        assert bounded.at(clock)[0] == pytest.approx(np.maximum(free.at(clock)[0], LINEAR_S * 1440 / clock))
        assert slow.bounded([LINEAR]).at(clock)[0].tolist() == slow.at(clock)[0].tolist()
    assert free.device_s < LINEAR_S
    assert bounded.device_s == pytest.approx([LINEAR_S])


def test_a_launch_takes_as_long_at_any_clock_and_draws_nothing_more():
    bounded, free = work(TINY).bounded([TINY]), work(TINY)
    for clock in (1440.0, 210.0):
        assert bounded.at(clock)[0] == pytest.approx([2e-6])
        assert bounded.at(clock)[1].tolist() == free.at(clock)[1].tolist()


def test_parts_of_an_operation_are_bounded_by_their_share():
    """The first layer pays two thirds of its work. A factor above one does not raise the bound."""
    bounded = work(LINEAR).bounded([LINEAR])
    assert bounded.scaled_by(2 / 3, 1.0).device_s == pytest.approx(2 / 3 * bounded.device_s)
    assert bounded.scaled_by(4.0, 1.0).bounds.compute_s == pytest.approx(bounded.bounds.compute_s)


def test_bounds_are_moved_with_their_operations():
    bounded, second = work(LINEAR).bounded([LINEAR]), np.array([False, True])
    spread = bounded.scatter(second)
    assert np.isnan(spread.device_s[0])
    assert spread.device_s[1] == bounded.device_s[0]
    tiny = work(TINY).bounded([TINY]).scatter(~second)
    assert tiny.merge(spread).device_s == pytest.approx([2e-6, bounded.device_s[0]])
    without = replace(bounded, bounds=Bounds(0.0, 0.0))
    assert without.scatter(second).device_s[1] == work(LINEAR).device_s[0]
