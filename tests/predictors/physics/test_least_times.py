"""Least device times against arithmetic by hand."""

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.least_times import LeastTimes

WAY = 36 * 10 * 2e9  # Bytes per second between caches and 10 SMs: 36 bytes per cycle of each, at 2 GHz.


def least(operation, clock_mhz=2000.0):
    found = LeastTimes.of([operation], ROUND, clock_mhz)
    return found.compute_s[0], found.memory_s[0], found.cache_s[0]


def test_point_wise_work_moves_its_bytes_once():
    """A million elements of 4 bytes, read and written: at 0.91 of 100 GB/s, and through the SMs."""
    assert least(Operation("relu", [(1000, 1000)])) == pytest.approx((1e6 / 1e12, 8e6 / 0.91e11, 8e6 / WAY))


def test_an_instruction_moves_an_element_however_narrow():
    half = least(Operation("relu", [(1000, 1000)], precision="fp16"))
    assert half == pytest.approx((1e6 / 8e12, 4e6 / 0.91e11, 8e6 / WAY))


def test_half_the_clock_doubles_computing_and_the_way_only():
    relu = Operation("relu", [(1000, 1000)])
    compute_s, memory_s, cache_s = least(relu)
    assert least(relu, 1000.0) == pytest.approx((2 * compute_s, memory_s, 2 * cache_s))


def test_products_load_their_rows_and_columns_tile_by_tile():
    """2 x 512^3 FLOPs in fp32; tiles of 128 x 128 read 4 bytes for 128 FLOPs."""
    linear = Operation("linear", [(512, 512)], {"out_features": 512, "bias": False})
    flops, moved = 2 * 512**3, 4 * 3 * 512**2
    assert least(linear) == pytest.approx((flops / 1e12, moved / 0.91e11, (moved + flops * 4 / 128) / WAY))


def test_products_on_tensor_cores_load_for_warps_and_lose_what_they_would_at_the_full_rate():
    """Warps read 2 bytes for 64 FLOPs. 400 FLOPs per cycle, of the 2049 of an A100 (312 TFLOP/s, 108 SMs, 1.41 GHz)."""
    linear = Operation("linear", [(512, 512)], {"out_features": 640, "bias": False}, precision="bf16")
    flops, moved = 2 * 512 * 512 * 640, 2 * (512 * 512 + 512 * 640 + 512 * 640)
    assert least(linear) == pytest.approx(
        (flops / 8e12 * (0.6 + 0.4 * 400 / (312e12 / 108 / 1.41e9)), moved / 0.91e11, (moved + flops * 2 / 64) / WAY)
    )


def test_a_convolution_takes_the_blocks_that_take_least():
    """Blocks of 128 x 32: 40 steps at 0.525 of the peak, and the time of two waves. Blocks of 128 x 64 take longer."""
    conv = Operation("conv2d", [(1, 32, 16, 16)], {"out_channels": 64, "kernel_size": 1, "bias": False})
    flops, moved = 2 * 10 * 2 * 128 * 32 * (32 + 8) / 0.525, 4 * (32 * 256 + 64 * 256 + 32 * 64)
    once = np.array([flops / 1e12, moved / 0.91e11, (moved + flops * 4 / 128) / WAY])
    assert least(conv) == pytest.approx(once)
    # Both gradients are convolutions of the same size.
    assert least(conv.replace(mode="training")) == pytest.approx(3 * once)


def test_kernels_of_a_convolution_that_run_in_turn_do_not_overlap():
    """Winograd's algorithm in separate kernels: 36 products of 48 x 16 squares and 256 channels, in 44 waves."""
    attributes = {"out_channels": 256, "kernel_size": 3, "padding": 1, "bias": False}
    compute_s, memory_s, cache_s = least(Operation("conv2d", [(46, 256, 16, 16)], attributes))
    flops = 44 * 10 * 2 * 128 * 128 * (256 + 8) / 0.85
    moved = 4 * (2 * 46 * 256 * 256 + 9 * 256 * 256) + 2 * 4 * 36 * (48 * 16 * 512 + 256 * 256)
    assert np.cbrt(compute_s**3 + memory_s**3) == pytest.approx(flops / 1e12 + moved / 0.91e11)
    assert compute_s / memory_s == pytest.approx(flops / 1e12 / (moved / 0.91e11))
    assert cache_s / memory_s == pytest.approx((moved + flops * 4 / 128) / WAY / (moved / 0.91e11))


def test_times_overlap_as_a_norm_of_cubes():
    found = LeastTimes(np.array([3e-3]), np.array([4e-3]), np.array([5e-3]))
    assert found.time_s == found.overlapped_s == pytest.approx([6e-3])
    # Slower by two: 6, 4 and 10 ms.
    assert found.slowed_s(2.0) == pytest.approx([1e-3 * (216 + 64 + 1000) ** (1 / 3)])
    slowed = found.slowed(2.0)
    assert (slowed.compute_s[0], slowed.memory_s[0], slowed.cache_s[0]) == pytest.approx((6e-3, 4e-3, 10e-3))
    assert found.times(np.array([3.0])).time_s == pytest.approx([18e-3])


def test_what_does_nothing_takes_a_nanosecond():
    dropout = Operation("dropout", [(8, 8)], {"p": 0.5})
    assert LeastTimes.of([dropout], ROUND, 2000.0).time_s.tolist() == [1e-9]
    assert LeastTimes.of([dropout], ROUND, 2000.0).overlapped_s.tolist() == [0.0]
