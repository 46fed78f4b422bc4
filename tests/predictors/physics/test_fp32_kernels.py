"""Products, softmax and layer norm in fp32 on chips that were never measured: tiles, waves, rows and the power cap."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import GPU, find_gpu, gpus
from joulecast.predictors.physics.fp32_kernels import counted_ratio, tile_ratio
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.operation_numbers import numbers_of
from joulecast.predictors.physics.pytorch_kernels import softmax_steps, softmax_threads

A100, V100, T4, P100, MI300X = map(find_gpu, ("A100 PCIe 40GB", "V100 PCIe 32GB", "T4", "P100 PCIe", "MI300X"))
# Without a cap and with memory that is never the limit, the tiles alone decide; rows wait for their steps.
TILES_ALONE = replace(A100, memory_bandwidth=1e16, power_limit_w=1e6, l2_bytes=10**9)
ENDLESS_MEMORY = replace(A100, memory_bandwidth=1e18)
WAVE = 2 * 108 * 128 * 128 / A100.peak_flops["fp32"]  # a step of a wave of tiles on 108 multiprocessors


def batched(batch: int, rows: int, columns: int, reduction: int) -> Operation:
    return Operation("matmul", [(batch, rows, reduction), (batch, reduction, columns)])


def linear(rows: int, reduction: int, columns: int) -> Operation:
    return Operation("linear", [(rows, reduction)], {"out_features": columns})


def softmax(rows: int, length: int, precision: str = "fp32") -> Operation:
    return Operation("softmax", [(rows, length)], precision=precision)


def norm(rows: int, length: int, precision: str = "fp32") -> Operation:
    return Operation("layer_norm", [(rows, length)], precision=precision)


def times_s(gpu: GPU, *operations: Operation, capped: bool = True) -> np.ndarray:
    return counted_ratio(operations, gpu, capped) * LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s


def tiled(gpu: GPU, *operations: Operation) -> np.ndarray:
    return tile_ratio(numbers_of(operations), gpu)


def test_whole_tiles_in_whole_waves_cost_what_they_compute():
    # 108 multiprocessors with 128 x 128 outputs each, and the same again; 20 steps of 1000 to start up.
    full, one_more, half = (batched(n, rows, 128, 1000) for n, rows in ((108, 128), (109, 128), (108, 64)))
    assert tiled(A100, full, batched(216, 128, 128, 1000)) == pytest.approx(1.02)
    # One tile more costs a wave and half a tile a whole one; 20 steps to start up, for a single step of work.
    assert tiled(A100, one_more, half) == pytest.approx([1.02 * 2 * 108 / 109, 2.04])
    assert tiled(A100, batched(108, 128, 128, 1)) == pytest.approx(21.0)
    # Volta's tiles are smaller, and four of them run on a multiprocessor at once. Other makers' choose among tiles.
    assert tiled(V100, batched(160, 64, 128, 1000))[0] == pytest.approx(1.02)
    assert tiled(MI300X, batched(7, 101, 3, 2110)) == 1


@pytest.mark.parametrize(
    ("gpu", "operation", "seconds", "rel"),
    [
        # Caches are not endless, so the time is a little longer than that of one wave, two waves, and half tiles.
        (TILES_ALONE, batched(108, 128, 128, 1000), WAVE * 1020, 0.05),
        (TILES_ALONE, batched(109, 128, 128, 1000), WAVE * 1020 * 2, 0.05),
        (TILES_ALONE, batched(108, 64, 128, 1000), WAVE * 1020, 0.05),
        # A split reduction has parts of at least 64 steps: one part of a tile of 32 x 128, and the start of a tile.
        (TILES_ALONE, linear(128, 256, 256), 1.1 * 1.65 * WAVE / 4 * (64 + 20), 0.01),
        # A batch splits reductions longer than any that was measured whole: 1025 steps in one part, 8192 in eight.
        (TILES_ALONE, batched(2, 96, 64, 1025), WAVE * 1045, 0.01),
        (TILES_ALONE, batched(2, 96, 64, 8192), WAVE * 1045, 0.01),
        # A product with a vector takes the time of the bytes of its matrix.
        (A100, batched(8, 1, 4096, 4096), 8 * 4 * 4096**2 / (0.91 * 1555e9), 0.05),
        (A100, batched(8, 4096, 1, 4096), 8 * 4 * 4096**2 / (0.91 * 1555e9), 0.05),
        (A100, batched(1, 1, 4096, 4096), 4 * 4096**2 / (0.91 * 1555e9), 0.05),
        # Rows wait for their steps where memory is not the limit. Layer norm over 1024 elements takes two steps of 512;
        # each multiprocessor holds 16 blocks of 128 threads. A single row takes as long as one turn of a full one.
        *((ENDLESS_MEMORY, norm(108 * 16 * n, 1024), n * (4500 + 2 * 2000) / 1410e6 + 3e-6, 1e-3) for n in (50, 100)),
        (ENDLESS_MEMORY, softmax(108 * 4 * 50, 4096), 50 * (6000 + 2 * 2000) / 1410e6 + 3e-6, 1e-3),
        (ENDLESS_MEMORY, norm(1, 1024), (4500 + 2 * 2000) / 1410e6 + 3e-6, 1e-3),
        (ENDLESS_MEMORY, softmax(1, 4096), (6000 + 2 * 2000) / 1410e6 + 3e-6, 1e-3),
        # Short rows of softmax take the time of their bytes.
        (A100, softmax(200_000, 1024), 1.05 * 8 * 200_000 * 1024 / (0.91 * 1555e9) + 3e-6, 1e-3),
        # On Pascal, long rows of softmax that exceed L2 are read again: 56 multiprocessors of 2048 threads work on 224
        # rows of 512 threads, in and out 7,340,032 bytes. All fit, just fill it, or none; short ones stay in registers.
        *(
            (
                replace(P100, memory_bandwidth=1e9, l2_bytes=l2_bytes),
                *(softmax(10_000, length), 1.05 * again * 8 * 10_000 * length / 0.76e9, 2e-3),
            )
            for length, l2_bytes, again in ((4096, 10**12, 1), (4096, 7_340_032, 1.5), (4096, 1, 2), (1024, 1, 1))
        ),
    ],
    ids=str,
)
def test_seconds_by_hand(gpu, operation, seconds, rel):
    assert times_s(gpu, operation) == pytest.approx([seconds], rel=rel)


def as_generation(generation):
    return replace(T4, memory_bandwidth=1e18, compute_capability=generation)


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    # A GPU and an operation; another GPU and operation, which takes so many times as long.
    [
        # A linear layer with few tiles splits its reduction: 16 tiles would leave 92 multiprocessors idle.
        ((TILES_ALONE, linear(256, 32768, 1024)), (TILES_ALONE, linear(256 * 108, 32768, 1024)), 92, 127),
        # A single product is computed as a linear layer is. (NeuSight's in batches of one take 0.2 to 1 of the time.)
        ((A100, linear(64, 4096, 96)), (A100, batched(1, 64, 96, 4096)), 0.99, 1.01),
        ((A100, batched(1, 64, 96, 4096)), (A100, batched(2, 64, 96, 4096)), 5, 100),
        # On an MI300X a gradient of few outputs made training take up to 94 times as long as inference.
        ((MI300X, batched(1, 101, 3, 2110)), (MI300X, batched(7, 101, 3, 2110)), 1, 7),
        # TF32 that no unit computes counts as fp32.
        ((T4, linear(512, 512, 512)), (T4, linear(512, 512, 512).replace(precision="tf32")), 1 - 1e-9, 1 + 1e-9),
        # Rows of twice the length have the same bytes, and take longer where they wait for their steps.
        ((A100, softmax(200_000, 1024)), (A100, softmax(100_000, 2048)), 1.05, 3),
        # A single long row takes as many steps in half precision.
        ((A100, softmax(1, 10**6)), (A100, softmax(1, 10**6, "fp16")), 0.999, 1.001),
        ((A100, norm(1, 10**6)), (A100, norm(1, 10**6, "fp16")), 0.999, 1.001),
        # A multiprocessor of Volta holds 2048 threads, of Turing 1024, and of later ones 1536.
        *(
            ((as_generation("7.0"), norm(10**6, 1024)), (as_generation(each), norm(10**6, 1024)), 0.99 * n, 1.01 * n)
            for each, n in (("7.5", 2), ("8.6", 4 / 3), ("8.9", 4 / 3), ("12.0", 4 / 3))
        ),
    ],
    ids=str,
)
def test_one_takes_as_long_as_another(one, other, low, high):
    assert low < times_s(*other)[0] / times_s(*one)[0] < high


def test_the_cap_slows_long_kernels_by_the_power_that_they_want_and_short_ones_by_less():
    short, long = batched(4, 512, 512, 512), batched(4096, 512, 512, 512)
    slower = times_s(T4, short, long) / times_s(T4, short, long, capped=False)
    assert 1 < slower[0] < 1.6 < 2 < slower[1] < 3
    assert times_s(TILES_ALONE, long) == pytest.approx(times_s(TILES_ALONE, long, capped=False))


@pytest.mark.parametrize(("gpu", "low", "high"), [(P100, 2, 5), (V100, 0.95, 1.05)])
def test_long_reductions_slow_linear_layers_on_pascal_only(gpu, low, high):
    long, short = times_s(gpu, linear(4096, 65536, 1024), linear(4096, 4096, 1024), capped=False)
    assert low < long / short / 16 < high


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.slug)
def test_no_gpu_beats_its_peak_and_more_rows_never_take_less_time(gpu):
    rows = [2**n for n in range(5, 15)]
    for operations in ([batched(96, n, 512, 512) for n in rows], [linear(n, 1024, 4096) for n in rows]):
        for capped in (True, False):
            found = times_s(gpu, *operations, capped=capped)
            assert (found >= [each.flops / gpu.peak_flops["fp32"] for each in operations]).all()
            assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("make", [linear, lambda m, k, c: batched(4, m, c, k)], ids=["linear", "matmul"])
def test_training_takes_the_three_products_of_its_passes(make):
    m, k, c = 512, 4096, 128
    passes = [make(*sizes) for sizes in ((m, k, c), (m, c, k), (c, m, k))]
    # A bias and its gradient are a small part of the bytes.
    trained = times_s(TILES_ALONE, passes[0].replace(mode="training"))
    assert trained == pytest.approx(times_s(TILES_ALONE, *passes).sum(), rel=0.05)


def test_only_fp32_products_and_rows_of_a_forward_are_counted_and_on_nvidia():
    counted = [batched(109, 128, 128, 1000), softmax(64, 1024)]
    others = [
        Operation("conv2d", [(8, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3}),
        batched(8, 512, 512, 512).replace(precision="bf16"),
        linear(512, 512, 512).replace(precision="tf32"),
        Operation("relu", [(64, 1024)]),
        softmax(64, 1024).replace(precision="fp64"),
        norm(64, 1024).replace(mode="training"),
    ]
    found = counted_ratio([*counted, *others], A100)
    assert (found[:2] > 1.5).all()  # Two waves of tiles for 109 products, of which 108 fit into one.
    assert (found[2:] == 1).all()
    assert (counted_ratio([softmax(64, 1024), *others[3:]], find_gpu("MI210")) == 1).all()


@pytest.mark.parametrize(
    ("length", "threads"),
    # The blocks that NeuSight recorded (operations.parquet, block_x of softmax on all five GPUs).
    [(100, 32), (1025, 128), (1031, 128), (1038, 256), (2049, 256), (2053, 256), (2065, 512), (4094, 512)],
)
def test_threads_of_softmax_are_those_that_were_recorded(length, threads):
    assert softmax_threads(length) == threads


@pytest.mark.parametrize(
    ("length", "steps"),
    [
        # Aligned rows: whole steps of 4 x 512 elements, and steps of 512 for the rest.
        (4096, 2),
        (2356, 2),
        # Odd lengths: three of four rows begin with a step of single elements. 2419 - 512 = 1907 is less than one whole
        # step, so four steps of 512 follow; a row that happens to be aligned takes 1 + 1.
        (2419, 0.25 * 2 + 0.75 * 5),
        # Even lengths: half of the rows are aligned. 2570 - 512 = 2058 is one whole step and one of 512.
        (2570, 0.5 * 3 + 0.5 * 3),
    ],
)
def test_steps_of_softmax_depend_on_the_alignment_of_rows(length, steps):
    assert softmax_steps(length, softmax_threads(length)) == pytest.approx(steps)
