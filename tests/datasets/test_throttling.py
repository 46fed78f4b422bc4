"""Throttled boards, found in tables of times."""

import numpy as np
import pytest

from joulecast.datasets.importers.neusight2025 import throttled_kinds


def times(share, count=60, least_s=1e-3):
    """A number of rows that reach a share of the peak of the data sheet."""
    return np.full(count, least_s / share), np.full(count, least_s)


@pytest.mark.parametrize(
    ("linear", "batched", "throttled"),
    [
        (times(0.22), times(0.43), {"linear"}),  # P4
        (times(0.57), times(0.61), set()),  # P100
        (times(0.74), times(0.62), set()),  # A100
        (times(0.37), times(0.31), set()),  # T4: its cap holds for both
        (times(0.5), times(0.2), {"batched"}),
        # A board counts as throttled from 0.7 of the other's share downwards.
        (times(0.34), times(0.5), {"linear"}),
        (times(0.36), times(0.5), set()),
        # Short products, or only a few of them, are not enough to tell.
        (times(0.1, least_s=0.4e-3), times(0.5), set()),
        (times(0.1, count=49), times(0.5), set()),
    ],
)
def test_long_products_of_one_gpu_reach_about_the_same(linear, batched, throttled):
    assert throttled_kinds({"linear": linear, "batched": batched}) == throttled


def test_one_kind_alone_cannot_be_compared():
    assert throttled_kinds({"linear": times(0.01)}) == set()
    assert throttled_kinds({}) == set()
