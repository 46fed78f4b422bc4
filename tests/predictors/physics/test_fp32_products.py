"""Products in fp32 on chips that were never measured: tiles, waves, distant rows and the power cap."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import GPU, find_gpu, gpus
from joulecast.predictors.physics.fp32_kernels import counted_ratio
from joulecast.predictors.physics.fp32_products import kernel_generation, tile_ratio
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.operation_numbers import numbers_of

# Without a cap and with memory that is never the limit, the tiles alone decide.
A100 = replace(find_gpu("A100 PCIe 40GB"), memory_bandwidth=1e16, power_limit_w=1e6, l2_bytes=10**9)
PEAK = A100.peak_flops["fp32"]


def batched(batch: int, rows: int, columns: int, reduction: int) -> Operation:
    return Operation("matmul", [(batch, rows, reduction), (batch, reduction, columns)])


def linear(rows: int, reduction: int, columns: int) -> Operation:
    return Operation("linear", [(rows, reduction)], {"out_features": columns})


def times_s(gpu: GPU, *operations: Operation, capped: bool = True) -> np.ndarray:
    return counted_ratio(operations, gpu, capped) * LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s


def test_a_batched_product_takes_whole_tiles_of_128_by_128_and_whole_waves():
    full, one_more, half = times_s(
        A100, batched(108, 128, 128, 980), batched(109, 128, 128, 980), batched(108, 64, 64, 980)
    )
    # 108 multiprocessors compute a tile each, and 20 steps of the reduction are added for the start. Caches are not
    # endless, so the time is a little longer.
    assert full == pytest.approx(2 * 108 * 128 * 128 * 1000 / PEAK, rel=0.05)
    assert one_more == pytest.approx(2 * full, rel=0.02)
    assert half == pytest.approx(full, rel=0.05)


def test_a_linear_layer_with_few_tiles_splits_its_reduction():
    few, many = times_s(A100, linear(256, 32768, 1024), linear(256 * 108, 32768, 1024))
    # 16 tiles of 128 x 128 would leave 92 multiprocessors idle for the time of a whole wave.
    assert few < 0.2 * 2 * 108 * 128 * 128 * 32768 / PEAK
    assert few * 108 == pytest.approx(many, rel=0.15)


def test_reading_rows_that_are_far_apart_takes_longer_where_the_product_is_narrow():
    v100 = find_gpu("V100 PCIe 32GB")
    narrow, short, wide = (
        batched(512, 1024, columns, reduction) for columns, reduction in ((8, 1024), (8, 32), (1024, 1024))
    )
    ratios = times_s(v100, narrow, short, wide, capped=False)
    memory_s = LeastTimes.of([narrow, short, wide], v100, float(v100.boost_clock_mhz)).memory_s
    # Nearly all bytes are those of the left matrix, which take 1 + 2 x 1024 / 1524 times as long.
    assert ratios[0] >= 2.3 * memory_s[0]
    assert ratios[0] / memory_s[0] > 1.5 * ratios[1] / memory_s[1]


def test_the_cap_slows_long_kernels_by_the_power_that_they_want_and_short_ones_by_less():
    gpu = find_gpu("T4")
    short, long = batched(4, 512, 512, 512), batched(4096, 512, 512, 512)
    slower = times_s(gpu, short, long) / times_s(gpu, short, long, capped=False)
    assert 1 < slower[0] < 1.6 < 2 < slower[1] < 3
    assert times_s(A100, long) == pytest.approx(times_s(A100, long, capped=False))


def test_long_reductions_slow_linear_layers_on_pascal_only():
    per_step = {
        name: np.divide(*times_s(find_gpu(name), linear(4096, 65536, 1024), linear(4096, 4096, 1024), capped=False))
        / 16
        for name in ("P100 PCIe", "V100 PCIe 32GB")
    }
    assert per_step["P100 PCIe"] > 2
    assert per_step["V100 PCIe 32GB"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.slug)
def test_no_gpu_beats_its_peak_and_more_rows_never_take_less_time(gpu):
    rows = [2**n for n in range(5, 15)]
    for make in (lambda n: batched(96, n, 512, 512), lambda n: linear(n, 1024, 4096)):
        operations = [make(n) for n in rows]
        flops = np.array([operation.flops for operation in operations])
        for capped in (True, False):
            found = times_s(gpu, *operations, capped=capped)
            assert (found >= flops / gpu.peak_flops["fp32"]).all()
            assert (np.diff(found) >= 0).all()


def tiled(gpu: str, *operations: Operation) -> np.ndarray:
    return tile_ratio(numbers_of(operations), find_gpu(gpu))


def test_whole_tiles_in_whole_waves_cost_what_they_compute():
    # 108 multiprocessors with 128 x 128 outputs each, and the same again; 20 steps of 1000 to start up.
    assert tiled("A100 PCIe 40GB", batched(108, 128, 128, 1000), batched(216, 128, 128, 1000)) == pytest.approx(1.02)
    # 20 steps to start up, for a single step of work.
    assert tiled("A100 PCIe 40GB", batched(108, 128, 128, 1)) == pytest.approx(21.0)


def test_one_tile_more_costs_a_wave_and_half_a_tile_a_whole_one():
    full, one_more, half = (batched(n, rows, 128, 1000) for n, rows in ((108, 128), (109, 128), (108, 64)))
    assert tiled("A100 PCIe 40GB", one_more)[0] * 109 / 108 == pytest.approx(2 * tiled("A100 PCIe 40GB", full)[0])
    assert tiled("A100 PCIe 40GB", half) == pytest.approx(2.04)
    # Volta's tiles are smaller, and four of them run on a multiprocessor at once.
    assert tiled("V100 PCIe 32GB", batched(80, 64, 128, 1000))[0] < 0.95 * 2.04


@pytest.mark.parametrize(
    ("name", "generation"), [("P4", 6), ("V100 PCIe 16GB", 7), ("T4", 7), ("A30", 8), ("L4", 8), ("H100 SXM", 8)]
)
def test_new_gpus_run_amperes_kernels(name, generation):
    assert kernel_generation(find_gpu(name)) == generation


@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_training_takes_the_three_products_of_its_passes(kind):
    m, k, c = 512, 4096, 128
    makes = {"linear": linear, "matmul": lambda m, k, c: batched(1, m, c, k)}
    passes = [makes[kind](*sizes) for sizes in ((m, k, c), (m, c, k), (c, m, k))]
    trained = times_s(A100, passes[0].replace(mode="training"))
    # A bias and its gradient are a small part of the bytes.
    assert trained == pytest.approx(times_s(A100, *passes).sum(), rel=0.05)


def test_only_fp32_products_are_counted():
    others = [
        Operation("conv2d", [(8, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3}),
        Operation("matmul", [(8, 512, 512), (8, 512, 512)], precision="bf16"),
        Operation("linear", [(512, 512)], {"out_features": 512}, precision="tf32"),
    ]
    counted = counted_ratio([batched(109, 128, 128, 1000), *others], find_gpu("A100 PCIe 40GB"))
    assert counted[1:].tolist() == [1.0, 1.0, 1.0]
    assert counted[0] > 1.5  # Two waves of tiles for 109 products, of which 108 fit into one.
