"""Features and the roofline."""

from __future__ import annotations

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.predictors.features import FEATURE_NAMES, features, roofline

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
    matrix, line = features([operation], A30, 1440)
    assert matrix.shape == (1, len(FEATURE_NAMES))
    assert np.isfinite(matrix).all()
    assert line.time_s[0] > 0
