"""Bounds that no operation can beat, by hand: launches of kernels, and the rates of data sheets."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.bounds import Bounds, kernel_floor_s
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import PRIOR_ENERGY

A30, L40S, P4 = map(find_gpu, ("A30", "L40S", "P4"))  # The A30 has 10.3 TFLOP/s in fp32 and 933 GB/s at 1440 MHz.
TINY = Operation("add", [(8,)])
LINEAR = Operation("linear", [(4096, 4096)], {"out_features": 4096})
LINEAR_S = 2 * 4096**3 / 10.3e12


def work(operation, ratio=0.5):
    """Half of the time that the data sheet allows, at any clock, unless another ratio is given."""
    return Work.of([operation], A30, 1440.0, np.array([ratio]), PRIOR_ENERGY)


@pytest.mark.parametrize(
    ("gpu", "microseconds"),
    # Published: the shortest layers of an A100 (vidur2024) and of others (aiconfigurator2026, miopen2024).
    [("A100 PCIe 40GB", 2.0), ("L40S", 1.7), ("H100 SXM", 1.5), ("B200", 1.6), ("P4", 2.0), ("MI210", 2.0)],
)
def test_the_shortest_kernel(gpu, microseconds):
    assert kernel_floor_s(find_gpu(gpu)) == pytest.approx(1e-6 * microseconds)


@pytest.mark.parametrize(
    ("operation", "kernels"),
    [
        (TINY, 1),
        (TINY.replace(mode="training"), 2),
        # A step of the optimizer has no backward, and dropout does nothing in inference.
        (Operation("sgd_step", [(8,)], mode="training"), 1),
        (Operation("dropout", [(8,)], {"p": 0.5}), 0),
    ],
    ids=str,
)
def test_a_launch_for_each_kernel(operation, kernels):
    assert Bounds.of([operation], A30).fixed_s == pytest.approx([kernels * kernel_floor_s(A30)])


def test_rates_of_the_data_sheet():
    """2 x 4096^3 FLOPs; and 4 bytes each of 4096 x 4096 inputs, weights, outputs, and 4096 of the bias."""
    bounds = Bounds.of([LINEAR], A30)
    assert bounds.compute_s == pytest.approx([LINEAR_S])
    assert bounds.fixed_s == pytest.approx([4 * (3 * 4096**2 + 4096) / 933e9], rel=1e-3)


@pytest.mark.parametrize(
    ("kernel", "stride", "saving"),
    # 28 x 28 outputs of 5 x 5 products each, for 32 x 17 complex products of four real ones.
    [(1, 1, 1.0), (3, 1, 4.0), (5, 1, 28**2 * 5**2 / (4 * 32 * 17)), (3, 2, 1.0)],
)
def test_transforms_save_multiplications_of_convolutions(kernel, stride, saving):
    window = {"kernel_size": kernel, "stride": stride, "padding": kernel // 2}
    conv = Operation("conv2d", [(32, 64, 56, 56)], {"out_channels": 64, "bias": False, **window})
    flops = 2 * 32 * (56 // stride) ** 2 * 64 * 64 * kernel**2
    assert Bounds.of([conv], A30).compute_s == pytest.approx([flops / saving / 10.3e12])


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


def test_attention_is_bounded_by_the_pairs_that_its_mask_leaves():
    shapes = [(1, 16, 4096, 128)] * 3
    full, causal = (Operation("attention", shapes, {"causal": causal}, precision="bf16") for causal in (False, True))
    # 16 heads, 4096 x 4096 pairs, four FLOPs for each of 128 elements, at 989.4 TFLOP/s; 4097 / 2 keys in the mean.
    whole_s = 16 * 4096**2 * 4 * 128 / 989.4e12
    found = Bounds.of([full, causal], find_gpu("H100 SXM")).compute_s
    assert found == pytest.approx([whole_s, whole_s * 4097 / 8192])


@pytest.mark.parametrize(
    ("gpu", "rows", "share"),
    [
        # 32, 144 and 400 MiB beside 96 MiB of L2: it serves all of them, some (up to three times its size), and none.
        pytest.param(L40S, 8, 1 / 6.6, id="all"),
        pytest.param(L40S, 36, (144 / 288) ** 0.9, id="some"),
        pytest.param(L40S, 100, 1.0, id="none"),
        # Of a chip whose cache was not measured, memory is as quick as its data sheet.
        pytest.param(P4, 0.1, 1.0, id="not measured"),
    ],
)
def test_what_fits_into_a_large_cache_may_come_from_there(gpu, rows, share):
    elements = int(rows * 2**20)
    relu = Operation("relu", [(elements,)], precision="fp16")
    assert Bounds.of([relu], gpu).fixed_s == pytest.approx([share * 4 * elements / gpu.memory_bandwidth])
