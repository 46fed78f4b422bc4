"""Errors of physics alone, on boards that follow it but for a slowdown of each kind."""

import pytest
from simulated_measurements import SLOWER_THAN_PHYSICS, simulated_gpu

from conftest import benchmark
from joulecast import Operation
from joulecast.datasets import Card, Dataset, Measurement

with benchmark("counted") as counted:
    pass


def test_errors_of_physics_alone_are_the_slowdowns():
    found = counted.errors(simulated_gpu("V100 PCIe 32GB"))
    for kind in ("conv2d", "relu", "batch_norm"):
        assert found[kind][1:] == pytest.approx([1 - 1 / SLOWER_THAN_PHYSICS[kind]] * 2, rel=1e-6)


def test_single_products_that_are_counted_over_their_call():
    """A product of 2 x 512^3 FLOPs takes 17 us at the peak of a V100: a call of 1 us is too short for it."""
    sizes = [(1, 512, 512), (1, 512, 512)]
    calls = [(sizes, 1e-6), ([(1, 512, 256), (1, 256, 512)], 1e-3), ([(8, 512, 512), (8, 512, 512)], 1e-6)]
    measurements = [Measurement(Operation("matmul", shapes), each_s, 100.0, each_s * 100.0) for shapes, each_s in calls]
    card = Card("Tesla V100-PCIE-32GB", None, "simulated", "none", {"simulated": "simulated"})
    assert counted.single_products(Dataset(card, tuple(measurements))) == (2, 1)
