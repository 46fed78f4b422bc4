"""Softmax and layer norm on chips that were never measured: threads, steps and rows, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast import Operation, predict_operations
from joulecast.hardware import GPU, find_gpu
from joulecast.predictors.physics.fp32_kernels import counted_ratio
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.row_kernels import softmax_steps, softmax_threads

A100 = find_gpu("A100 PCIe 40GB")
ENDLESS_MEMORY = replace(A100, memory_bandwidth=1e18)


def times_s(gpu: GPU, *operations: Operation) -> np.ndarray:
    return counted_ratio(operations, gpu) * LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s


@pytest.mark.parametrize(
    ("length", "threads"),
    # The blocks that NeuSight recorded (operations.parquet, block_x of softmax on all five GPUs).
    [(1025, 128), (1031, 128), (1038, 256), (2049, 256), (2053, 256), (2065, 512), (4094, 512)],
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


def test_rows_wait_for_their_steps_where_memory_is_not_the_limit():
    # Layer norm over 1024 elements takes two steps of 512; each multiprocessor holds 16 blocks of 128 threads.
    rows = 108 * 16 * 50
    softmax, norm, twice = times_s(
        ENDLESS_MEMORY,
        Operation("softmax", [(108 * 4 * 50, 4096)]),
        Operation("layer_norm", [(rows, 1024)]),
        Operation("layer_norm", [(2 * rows, 1024)]),
    )
    assert norm == pytest.approx(50 * (3600 + 2 * 2900) / 1410e6 + 4e-6, rel=1e-3)
    assert softmax == pytest.approx(50 * (8000 + 2 * 1500) / 1410e6 + 3e-6, rel=1e-3)
    assert (twice - 4e-6) == pytest.approx(2 * (norm - 4e-6), rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "rows", "length", "most_us"),
    # Calls of NeuSight that waited for the host: their time less the launch, 34.5, 25.4 and 41.6 us, bounds the kernel.
    [("A100 PCIe 40GB", 28, 2000, 12), ("P100 PCIe 16GB", 32, 740, 21), ("V100 PCIe 32GB", 64, 768, 17)],
)
def test_few_rows_of_layer_norm_end_before_the_host_does(gpu, rows, length, most_us):
    operation = Operation("layer_norm", [(rows, length)])
    assert times_s(find_gpu(gpu), operation)[0] < most_us * 1e-6
    assert predict_operations([operation], gpu).device_time_s[0] < 1.15 * most_us * 1e-6


def test_short_rows_of_softmax_take_the_time_of_their_bytes():
    operation = Operation("softmax", [(200_000, 1024)])
    least = LeastTimes.of([operation], A100, 1410.0)
    assert times_s(A100, operation)[0] == pytest.approx(1.05 * least.memory_s[0] + 3e-6)
    longer = Operation("softmax", [(100_000, 2048)])  # The same bytes.
    assert times_s(A100, longer)[0] > 1.1 * times_s(A100, operation)[0]


@pytest.mark.parametrize("kind", ["softmax", "layer_norm"])
def test_a_single_long_row_takes_as_many_steps_in_half_precision(kind):
    attributes = {"normalized_shape": (10**6,)} if kind == "layer_norm" else {}
    one, half = (Operation(kind, [(1, 10**6)], attributes, precision=each) for each in ("fp32", "fp16"))
    assert times_s(A100, half) == pytest.approx(times_s(A100, one), rel=1e-3)


def test_turing_holds_half_of_the_threads():
    t4 = replace(find_gpu("T4"), memory_bandwidth=1e18)
    as_volta = replace(t4, compute_capability="7.0")
    operation = Operation("layer_norm", [(100_000, 1024)])
    assert times_s(t4, operation)[0] == pytest.approx(2 * times_s(as_volta, operation)[0], rel=0.01)


def test_other_operations_precisions_and_makers_are_not_counted():
    rows = [
        Operation("relu", [(64, 1024)]),
        Operation("softmax", [(64, 1024)], precision="fp64"),
        Operation("layer_norm", [(64, 1024)], mode="training"),
        Operation("softmax", [(64, 1024)]),
    ]
    assert (counted_ratio(rows, A100) == 1).tolist() == [True, True, True, False]
    assert (counted_ratio(rows, find_gpu("MI210")) == 1).all()
