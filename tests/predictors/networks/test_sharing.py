"""The time and energy of a network, shared among its operations, against arithmetic by hand."""

import numpy as np
import pytest
from made_predictions import predictions

from joulecast import Network, Operation
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.composition import EAGER, Execution, HostModel
from joulecast.predictors.networks.prepared import NetworkPredictor
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.least_times import LeastTimes

A30 = find_gpu("A30")
OPERATIONS = [Operation("relu", [(8, 8)]), Operation("gelu", [(8, 8)])]


class FixedPredictor:
    """A predictor that returns given values for two operations, which only memory decides: the same at any clock."""

    gpu, mode, coverage = A30, "inference", ("all",)

    def __init__(self, device_s, dynamic_j, static_w=40.0):
        self.fixed = device_s, dynamic_j, static_w

    def predict(self, operations, clock_mhz=None, power_limit_w=None):
        device_s, dynamic_j, static_w = self.fixed
        device, nothing = np.array(device_s), np.zeros(2)
        work = Work(A30, np.full(2, 1440.0), LeastTimes(nothing, device, nothing), *(nothing,) * 2, np.array(dynamic_j))
        return predictions(device_s, [0.0, 0.0], dynamic_j, static_w, operations=operations, work=work)

    def predict_for_network(self, operations, power_limit_w):
        return self.predict(operations)

    def in_network(self, predictions):
        return predictions

    def not_of_chip(self, operations):
        return ()

    def remarks(self, operations):
        return ()


def costs(device_s, dynamic_j, counts=(1, 1), execution=EAGER, **more):
    host = HostModel(0.0, learned=True, execution=execution)
    predictor = NetworkPredictor("fixed", FixedPredictor(device_s, dynamic_j, **more), host)
    network = Network.of(list(zip(OPERATIONS, counts, strict=True)))
    return predictor.predict(network)


def test_static_energy_is_shared_by_device_time():
    """1 ms with 50 mJ and 3 ms with 90 mJ; the host takes 2 x 5 us, which is nothing beside. 40 W x 4 ms are 160 mJ."""
    found = costs([1e-3, 3e-3], [0.05, 0.09])
    assert found.time_s == pytest.approx(4e-3)
    assert found.energy_j == pytest.approx(0.30)
    assert [cost.energy_j for cost in found.operations] == pytest.approx([0.05 + 0.04, 0.09 + 0.12])
    assert [cost.device_time_s for cost in found.operations] == pytest.approx([1e-3, 3e-3])
    assert [cost.power_w for cost in found.operations] == pytest.approx([40 + 50, 40 + 30])


def test_calls_are_counted():
    found = costs([1e-3, 3e-3], [0.05, 0.09], counts=(2, 1))
    assert [cost.energy_j for cost in found.operations] == pytest.approx([0.10 + 0.08, 0.09 + 0.12])
    assert [cost.device_time_s for cost in found.operations] == pytest.approx([2e-3, 3e-3])


def test_nothing_draws_more_than_the_cap():
    """At 165 W 4 ms are 0.66 J; alone the operations would take 0.3 and 0.5 J, and draw 340 and 207 W."""
    found = costs([1e-3, 3e-3], [0.3, 0.5])
    assert found.energy_j == pytest.approx(0.66)
    assert [cost.power_w for cost in found.operations] == pytest.approx([165.0, 165.0])
    assert sum(cost.energy_j for cost in found.operations) == pytest.approx(0.66)
    # Dynamic energies of 0.8 J in total shrink to 0.66 J, so that no static energy is left to share.
    assert [cost.energy_j for cost in found.operations] == pytest.approx([0.3 * 0.66 / 0.8, 0.5 * 0.66 / 0.8])


def test_the_device_waits_between_the_kernels_of_an_engine_and_draws_static_power():
    """Two gaps of 1 ms beside 4 ms of kernels: 40 W x 6 ms and 0.14 J. Without kernels, the clock is the usual one."""
    found = costs([1e-3, 3e-3], [0.05, 0.09], execution=Execution("graph", gap_s=1e-3))
    assert (found.time_s, found.device_time_s) == pytest.approx((6e-3, 6e-3))
    assert found.energy_j == pytest.approx(0.14 + 40 * 6e-3)
    assert costs([0.0, 0.0], [0.0, 0.0]).held_clock_mhz == 1440.0
