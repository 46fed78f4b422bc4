"""What the host and the gaps of a graph cost, by way of running and by host, against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast.hardware.host import Host
from joulecast.operations.operation import Operation
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.networks.execution import Execution
from joulecast.predictors.operation_predictions import OperationPredictions

COUNTS = np.array([3.0, 2.0])
SLOW = Host("slow", 2.0, "a test")


def predictions(mode="inference", operations=2):
    """1 ms and 2 ms of device, 20 us and 40 us of host in a loop."""
    return OperationPredictions(
        operations=(Operation("relu", [(8, 8)], mode=mode),) * operations,
        time_s=np.array([1e-3, 2e-3])[:operations],
        power_w=np.full(operations, 100.0),
        energy_j=np.array([0.1, 0.2])[:operations],
        device_time_s=np.array([1e-3, 2e-3])[:operations],
        dynamic_energy_j=np.array([0.05, 0.1])[:operations],
        host_time_s=np.array([20e-6, 40e-6])[:operations],
        source=("modelled",) * operations,
        static_power_w=50.0,
        held_clock_mhz=np.full(operations, 1440.0),
    )


def test_an_eager_call_costs_the_offset_more_and_a_slow_host_twice_as_much():
    """3 x (20 + 5) + 2 x (40 + 5) us."""
    assert HostModel(5e-6).total_s(COUNTS, predictions()) == pytest.approx(165e-6)
    slow = HostModel(5e-6, execution=Execution("eager", SLOW))
    assert slow.calls_s(predictions()).tolist() == pytest.approx([50e-6, 90e-6])
    assert slow.total_s(COUNTS, predictions()) == pytest.approx(330e-6)


def test_a_copy_inside_a_network_costs_a_launch_whatever_it_costs_in_a_loop():
    """3 x (20 + 5) us of relu, and 2 x 5 us of copies."""
    relu, _ = predictions().operations
    found = replace(predictions(), operations=(relu, Operation("copy", [(8, 8)])))
    assert HostModel(5e-6).total_s(COUNTS, found) == pytest.approx(85e-6)


def test_eager_loops_hold_their_gaps_already():
    assert HostModel(5e-6).device_s(COUNTS, predictions()) == pytest.approx(7e-3)


def test_a_graph_costs_one_launch_of_10_us_for_all_calls():
    graph = HostModel(5e-6, execution=Execution("graph", SLOW))
    assert graph.calls_s(predictions()).tolist() == [0.0, 0.0]
    assert graph.total_s(COUNTS, predictions()) == pytest.approx(20e-6)


def test_the_device_waits_between_the_kernels_of_an_engine():
    """Five calls."""
    graph = HostModel(5e-6, execution=Execution("graph", gap_s=1e-6))
    assert graph.device_s(COUNTS, predictions()) == pytest.approx(7e-3 + 5e-6)


def test_an_empty_network_takes_no_time():
    graph = HostModel(5e-6, execution=Execution("graph"))
    assert graph.device_s(np.empty(0), predictions(operations=0)) == 0.0


def test_the_offset_is_the_one_with_the_least_error_over_all_networks():
    """Two calls of 100 us in a loop. Two networks took 130 us a call and one 120 us: 30 us is best for two of three."""
    waiting = predictions()
    fast = OperationPredictions(
        **{
            **{name: getattr(waiting, name) for name in waiting.__dataclass_fields__},
            "device_time_s": np.array([1e-9, 1e-9]),
            "host_time_s": np.array([100e-6, 100e-6]),
        }
    )
    networks = [(np.ones(2), fast, 2 * seconds) for seconds in (130e-6, 130e-6, 120e-6)]
    found = HostModel.fit(networks, "inference")
    assert found.learned
    assert found.offset_s == pytest.approx(30e-6, abs=1e-9)
