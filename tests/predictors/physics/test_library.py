"""How libraries and the power cap slow fp32 products down, on GPUs that were not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast import Operation
from joulecast.hardware import find_gpu, gpus
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.library import expected_ratio, kernel_generation, tile_ratio, wanted_power
from joulecast.predictors.physics.operation_numbers import numbers_of


def batched(batch: int, rows: int, columns: int, reduction: int) -> Operation:
    return Operation("matmul", [(batch, rows, reduction), (batch, reduction, columns)])


def tiled(gpu: str, *operations: Operation) -> np.ndarray:
    return tile_ratio(numbers_of(operations), find_gpu(gpu))


def test_whole_tiles_in_whole_waves_cost_what_they_compute():
    # 108 multiprocessors with 128 x 128 outputs each, and the same again; 20 steps of 1000 to start up.
    assert tiled("A100 PCIe 40GB", batched(108, 128, 128, 1000), batched(216, 128, 128, 1000)) == pytest.approx(1.02)


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


def test_boards_with_a_low_cap_want_more_power_than_they_have():
    wanted = {name: wanted_power(find_gpu(name)) for name in ("H100 SXM", "A30", "A100 PCIe 40GB", "T4", "L4")}
    assert wanted["H100 SXM"] == wanted["A30"] == 1
    assert 1 < wanted["A100 PCIe 40GB"] < 1.3
    assert 2 < wanted["T4"] < wanted["L4"] < 4


def test_wanted_power_by_hand():
    """8 pJ for each of 10^12 FLOPs, 0.4 W for each of 10 SMs and 2 GHz, and 50 W static: 66 W."""
    assert wanted_power(replace(ROUND, power_limit_w=33.0)) == pytest.approx(2.0)
    assert wanted_power(replace(ROUND, power_limit_w=100.0)) == 1.0


WEAK = replace(ROUND, power_limit_w=33.0)
"""A board that needs twice its cap for products."""


def test_a_batched_product_under_a_low_cap_by_hand():
    """10 products of a tile and 4,096 steps each, on 10 SMs; starting takes as long as 20 steps.

    Each reads 2 x 128 x 4096 elements of 4 bytes and writes 128 x 128. Tiles load 4 bytes for 128 FLOPs, those of 32
    steps at the start included.
    """
    product = batched(10, 128, 128, 4096)
    flops, moved = 2 * 10 * 128 * 128 * 4096, 10 * 4 * (2 * 128 * 4096 + 128 * 128)
    compute_s = flops / 1e12 * (1 + 20 / 4096)
    memory_s, cache_s = moved / 0.91e11, (moved + 4 / 128 * flops * 4128 / 4096) / (36 * 10 * 2e9)
    tiled_s = (compute_s**3 + memory_s**3 + cache_s**3) ** (1 / 3)
    least_s = LeastTimes.of([product], WEAK, 2000.0).time_s
    assert expected_ratio([product], WEAK, capped=False) * least_s == pytest.approx([tiled_s])
    exponent = 0.5 * (1 + tiled_s / (tiled_s + 1e-3)) * compute_s / tiled_s
    assert expected_ratio([product], WEAK) * least_s == pytest.approx([tiled_s * 2**exponent])


@pytest.mark.parametrize("rows", [64, 4096])
def test_a_linear_layer_under_a_low_cap_is_slower_the_longer_it_takes(rows):
    layer = Operation("linear", [(rows, 4096)], {"out_features": 4096, "bias": False})
    least = LeastTimes.of([layer], WEAK, 2000.0)
    seconds, compute_s = float(least.time_s[0]), float(least.compute_s[0])
    exponent = 0.5 * seconds / (seconds + 1e-3) * compute_s / seconds
    assert expected_ratio([layer], WEAK) == pytest.approx([2**exponent])
    assert expected_ratio([layer], WEAK, capped=False) == pytest.approx([1.0])


@pytest.mark.parametrize(("reduction", "slower"), [(3 * 4096, 1.2 * 2), (8 * 4096, 1.2 * 3)])
def test_linear_layers_on_pascal_are_slower_by_the_root_of_their_reduction(reduction, slower):
    layer = Operation("linear", [(512, reduction)], {"out_features": 512})
    pascal, volta = (replace(ROUND, compute_capability=capability) for capability in ("6.0", "7.0"))
    assert expected_ratio([layer], pascal) == pytest.approx(slower * expected_ratio([layer], volta))


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.slug)
def test_no_gpu_computes_faster_than_its_peak_and_more_rows_never_take_less_time(gpu):
    rows = [2**n for n in range(5, 15)]
    for make in (
        lambda n: batched(96, n, 512, 512),
        lambda n: Operation("linear", [(n, 1024)], {"out_features": 4096}),
    ):
        operations = [make(n) for n in rows]
        least_s = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s
        time_s = expected_ratio(operations, gpu) * least_s
        flops = np.array([operation.flops for operation in operations])
        assert np.all(np.diff(time_s) >= 0)
        assert np.all(flops / time_s <= gpu.peak_flops["fp32"])


def test_only_fp32_products_are_corrected():
    others = [
        Operation("softmax", [(64, 512)]),
        Operation("conv2d", [(8, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3}),
        Operation("matmul", [(8, 512, 512), (8, 512, 512)], precision="bf16"),
        Operation("linear", [(512, 512)], {"out_features": 512}, precision="tf32"),
    ]
    assert expected_ratio(others, find_gpu("A100 PCIe 40GB")) == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "slower"), [("P100 PCIe", True), ("V100 PCIe 32GB", False), ("L4", False)])
def test_long_reductions_are_slow_on_pascal_only(name, slower):
    short, long = (Operation("linear", [(4096, n)], {"out_features": 4096}) for n in (1024, 16384))
    ratio = expected_ratio([short, long], find_gpu(name))
    assert bool(ratio[1] > 1.5 * ratio[0]) is slower


def test_batched_products_with_long_reductions_are_as_quick_on_pascal():
    """Only the kernels of linear layers are slow. Batched products have as many tiles for any long reduction."""
    short, long = (batched(8, 1024, 1024, n) for n in (4096, 65536))
    ratio = expected_ratio([short, long], find_gpu("P100 PCIe"))
    assert ratio[1] == pytest.approx(ratio[0], rel=0.05)


def test_a_short_reduction_is_mostly_start_up():
    # 20 steps to start up, for a single step of work.
    assert tiled("A100 PCIe 40GB", batched(108, 128, 128, 1)) == pytest.approx(21.0)


def test_operations_beside_products_are_left_as_they_are():
    a100 = find_gpu("A100 PCIe 40GB")
    product, layer = batched(109, 128, 128, 1000), Operation("linear", [(512, 512)], {"out_features": 512})
    others = [Operation("softmax", [(64, 512)]), Operation("matmul", [(8, 512, 512), (8, 512, 512)], precision="bf16")]
    ratio = expected_ratio([product, others[0], layer, others[1]], a100)
    assert ratio[[1, 3]].tolist() == [1.0, 1.0]
    assert ratio[[0]] == pytest.approx(expected_ratio([product], a100))
    assert ratio[[2]] == pytest.approx(expected_ratio([layer], a100))
    # Two waves of tiles for 109 products, of which 108 fit into one.
    assert ratio[0] > 1.5
