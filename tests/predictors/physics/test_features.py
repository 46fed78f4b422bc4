"""Sizes relative to a GPU, products and the roofline against arithmetic by hand."""

import math

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.features import gpu_features
from joulecast.predictors.physics.operation_numbers import numbers_of
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features
from joulecast.predictors.physics.roofline import roofline

A30 = find_gpu("A30")


def test_roofline_by_hand():
    # 2 x 1024^3 FLOPs at 10.3 TFLOP/s; relu: 2 x 4 MiB at 933 GB/s.
    linear = Operation("linear", [(1024, 1024)], {"out_features": 1024, "bias": False})
    relu = Operation("relu", [(1024, 1024)])
    line = roofline([linear, relu, linear.replace(precision="tf32")], A30, 1440)
    assert line.time_s == pytest.approx([2 * 1024**3 / 10.3e12, 8 * 1024**2 / 933e9, 2 * 1024**3 / 82e12])


def test_half_the_clock_doubles_compute_only():
    linear = Operation("linear", [(1024, 1024)], {"out_features": 1024})
    fast, slow = (roofline([linear], A30, clock) for clock in (1440, 720))
    assert slow.compute_s == pytest.approx(2 * fast.compute_s)
    assert slow.memory_s == pytest.approx(fast.memory_s)


def test_small_batched_products_count_whole_blocks():
    # 49 x 49 x 32 in blocks of 128 x 128, with a start-up of 32 steps.
    small = Operation("matmul", [(64, 49, 32), (64, 32, 49)])
    compute_s = roofline([small], A30, 1440).compute_s[0]
    assert compute_s == pytest.approx(64 * 2 * 128 * 128 * (32 + 32) / 10.3e12)


@pytest.mark.parametrize(
    ("operation", "blocks", "touched"),
    [
        # 32 x 80 outputs in two blocks of 64 x 64; weights and biases are touched beside inputs and outputs.
        (Operation("linear", [(32, 96)], {"out_features": 80, "bias": True}), 2, 4 * (32 * 96 + 97 * 80 + 32 * 80)),
        # Seven products of 96 x 40 outputs in two blocks each.
        (Operation("matmul", [(7, 96, 100), (7, 100, 40)]), 14, 4 * 7 * (96 * 100 + 100 * 40 + 96 * 40)),
    ],
    ids=["linear", "matmul"],
)
def test_sizes_relative_to_a_gpu(operation, blocks, touched):
    """Ten multiprocessors, and a megabyte of L2."""
    found = gpu_features(OperationList([operation]), ROUND)
    assert found["log_waves"] == pytest.approx([math.log(blocks / 10)])
    assert found["log_cache_fill"] == pytest.approx([math.log(touched / 1e6)])


@pytest.mark.parametrize(
    "operation",
    [
        Operation("relu", [(1,)]),
        Operation("sum", [(3, 4)]),
        Operation("attention", [(2, 4, 8, 16)] * 3, mode="training"),
        Operation("conv3d", [(1, 2, 3, 4, 5)], {"out_channels": 2, "kernel_size": (1, 2, 3)}),
        Operation("embedding", [(4, 7)], {"num_embeddings": 100, "embedding_dim": 8}),
        Operation("dropout", [(4, 7)], {"p": 0.5}),
        Operation("cat", [(1, 2), (1, 3)], {"dim": 1}, precision="bf16"),
    ],
    ids=lambda operation: operation.kind,
)
def test_every_kind_has_finite_features(operation):
    matrix = relative_features([operation], A30)
    assert matrix.shape == (1, len(RELATIVE_NAMES))
    assert np.isfinite(matrix).all()


@pytest.mark.parametrize(
    ("operation", "product"),
    [
        # (batch, rows, columns, reduction)
        (Operation("matmul", [(2, 3, 40, 50), (2, 3, 50, 60)]), (6, 40, 60, 50)),
        (Operation("attention", [(2, 8, 30, 64), (2, 8, 70, 64), (2, 8, 70, 64)]), (16, 30, 64, 64)),
        (Operation("linear", [(2, 7, 50)], {"out_features": 60}), (1, 14, 60, 50)),
        (
            Operation("conv2d", [(2, 16, 9, 9)], {"out_channels": 32, "kernel_size": 3, "groups": 4}),
            (4, 2 * 7 * 7, 8, 4 * 9),
        ),
        (Operation("relu", [(4, 5, 6)]), (1, 20, 6, 1)),
    ],
)
def test_operations_as_products(operation, product):
    n = numbers_of([operation])
    assert tuple(float(each[0]) for each in (n.batch, n.rows, n.columns, n.reduction)) == product
