"""Bounds that no operation can beat, by hand: launches of kernels, and the rates of data sheets."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.bounds import Bounds, kernel_floor_s
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import PRIOR_ENERGY

A30 = find_gpu("A30")  # 10.3 TFLOP/s in fp32 and 933 GB/s at 1440 MHz
TINY = Operation("add", [(8,)])
LINEAR = Operation("linear", [(4096, 4096)], {"out_features": 4096})
WINDOW = {"out_channels": 64, "padding": 1, "bias": False}
# Half of the time that the data sheet allows, at any clock.
TOO_FAST = 0.5


def work(operation, gpu=A30, ratio=TOO_FAST, clock_mhz=None):
    clock = float(gpu.boost_clock_mhz) if clock_mhz is None else clock_mhz
    return Work.of([operation], gpu, clock, np.array([ratio]), PRIOR_ENERGY)


@pytest.mark.parametrize(
    ("gpu", "microseconds"),
    [
        ("A100 PCIe 40GB", 2.0),
        ("A30", 2.0),
        ("L40S", 1.7),
        ("H100 SXM", 1.5),
        ("B200", 1.6),
        ("P4", 2.0),
        ("MI210", 2.0),
    ],
)
def test_the_shortest_kernel(gpu, microseconds):
    assert kernel_floor_s(find_gpu(gpu)) == pytest.approx(1e-6 * microseconds)


@pytest.mark.parametrize(
    ("operation", "kernels"),
    [
        (TINY, 1),
        (Operation("add", [(8,)], mode="training"), 2),
        # A step of the optimizer has no backward, and dropout does nothing in inference.
        (Operation("sgd_step", [(8,)], mode="training"), 1),
        (Operation("dropout", [(8,)], {"p": 0.5}), 0),
    ],
)
def test_a_launch_for_each_kernel(operation, kernels):
    bounds = Bounds.of([operation], A30)
    assert bounds.fixed_s == pytest.approx([kernels * 2e-6])


def test_rates_of_the_data_sheet():
    """2 x 4096^3 FLOPs; and 4 bytes each of 4096 x 4096 inputs, weights, outputs, and 4096 of the bias."""
    bounds = Bounds.of([LINEAR], A30)
    assert bounds.compute_s == pytest.approx([2 * 4096**3 / 10.3e12])
    assert bounds.fixed_s == pytest.approx([4 * (3 * 4096**2 + 4096) / 933e9], rel=1e-3)


@pytest.mark.parametrize(
    ("kernel", "stride", "saving"),
    [
        (1, 1, 1.0),
        (3, 1, 4.0),
        # 28 x 28 outputs of 5 x 5 products each, for 32 x 17 complex products of four real ones.
        (5, 1, 28**2 * 5**2 / (4 * 32 * 17)),
        (3, 2, 1.0),
    ],
)
def test_transforms_save_multiplications_of_convolutions(kernel, stride, saving):
    attributes = {**WINDOW, "kernel_size": kernel, "stride": stride, "padding": kernel // 2}
    conv = Operation("conv2d", [(32, 64, 56, 56)], attributes)
    side = 56 // stride
    flops = 2 * 32 * side * side * 64 * 64 * kernel**2
    assert Bounds.of([conv], A30).compute_s == pytest.approx([flops / saving / 10.3e12])


def test_an_impossible_time_is_raised_to_its_bound_at_any_clock():
    bounded = work(LINEAR).bounded([LINEAR])
    for clock in (1440.0, 720.0, 360.0):
        device_s, _ = bounded.at(clock)
        assert device_s == pytest.approx(np.maximum(work(LINEAR).at(clock)[0], 2 * 4096**3 / 10.3e12 * 1440 / clock))
    assert work(LINEAR).at(1440.0)[0] < 2 * 4096**3 / 10.3e12
    assert bounded.device_s == pytest.approx([2 * 4096**3 / 10.3e12])


def test_a_possible_time_is_left_as_it_is():
    slow = work(LINEAR, ratio=2.0)
    assert slow.bounded([LINEAR]).at(900.0)[0].tolist() == slow.at(900.0)[0].tolist()


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
    bounded = work(LINEAR).bounded([LINEAR])
    spread = bounded.scatter(np.array([False, True]))
    assert np.isnan(spread.device_s[0])
    assert spread.device_s[1] == bounded.device_s[0]
    tiny = work(TINY).bounded([TINY]).scatter(np.array([True, False]))
    assert tiny.merge(spread).device_s == pytest.approx([2e-6, bounded.device_s[0]])
    without = replace(bounded, bounds=type(bounded.bounds)(0.0, 0.0))
    assert without.scatter(np.array([False, True])).device_s[1] == work(LINEAR).device_s[0]


def test_attention_is_bounded_by_the_pairs_that_its_mask_leaves():
    shapes = [(1, 16, 4096, 128)] * 3
    full, causal = (Operation("attention", shapes, {"causal": causal}, precision="bf16") for causal in (False, True))
    # 16 heads, 4096 x 4096 pairs, four FLOPs for each of 128 elements, at 989.4 TFLOP/s; 4097 / 2 keys in the mean.
    whole_s = 16 * 4096**2 * 4 * 128 / 989.4e12
    found = Bounds.of([full, causal], find_gpu("H100 SXM")).compute_s
    assert found == pytest.approx([whole_s, whole_s * 4097 / 8192])


def test_what_fits_into_the_large_cache_of_ada_may_come_from_there():
    l40s = find_gpu("L40S")
    assert l40s.l2_bytes == 96 * 2**20
    # 32, 144 and 400 MiB: the cache serves all of them, some (up to three times its size), and none.
    operations = [Operation("relu", [(n, 1024, 1024)], precision="bf16") for n in (8, 36, 100)]
    shares = [1 / 6.6, (144 / 288) ** 0.9, 1.0]
    expected = [share * 4 * n * 2**20 / 864e9 for n, share in zip((8, 36, 100), shares, strict=True)]
    assert Bounds.of(operations, l40s).fixed_s == pytest.approx(expected)


def test_memory_of_a_chip_whose_cache_was_not_measured_is_as_quick_as_its_data_sheet():
    """relu on 100,000 numbers moves 0.8 MB, which fits into the P4's cache of 2 MB."""
    p4 = find_gpu("P4")
    assert p4.l2_bytes >= 800_000
    expected = 800_000 / p4.memory_bandwidth
    assert Bounds.of([Operation("relu", [(100_000,)])], p4).fixed_s.tolist() == pytest.approx([expected])
