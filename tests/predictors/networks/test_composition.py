"""From operations to networks, against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast import Network, Operation
from joulecast.hardware import find_gpu
from joulecast.hardware.host import find_host
from joulecast.predictors.intervals.conformal import power_range_w, within_range
from joulecast.predictors.intervals.network_calibration import NetworkCalibration
from joulecast.predictors.networks.composition import (
    LEAST_HOST_S,
    HostModel,
    compose,
    counts_of,
    overlap,
    plain_sum,
)
from joulecast.predictors.networks.execution import Execution
from joulecast.predictors.networks.knowledge import NetworkKnowledge
from joulecast.predictors.operation_predictions import OperationPredictions
from joulecast.zoo import find_predictor

A30 = find_gpu("A30")
RELU = Operation("relu", [(8, 8)])


@pytest.mark.parametrize(("half_s", "errors"), [(0.4, "all"), (0.6, "half"), (0.8, "half")])
def test_networks_mostly_in_half_precision_have_errors_of_their_own(half_s, errors):
    known = {
        name: NetworkCalibration.of_errors(dict.fromkeys(("time", "power", "energy", "edp"), (0.1,) * 9), name)
        for name in ("all", "half")
    }
    operations = find_predictor("T4", "inference").operations
    knowledge = NetworkKnowledge("test", operations, HostModel(0.0), "overlap", known["all"], known["half"])
    found = replace(
        predictions([half_s / 2, 1 - half_s], [0.0] * 2, [1.0] * 2),
        operations=(RELU.replace(precision="fp16"), RELU),
    )
    assert knowledge.errors_on(np.array([2.0, 1.0]), found) is known[errors]


def predictions(device_s, host_s, dynamic_j, static_w=50.0, time_s=None, energy_j=None):
    count = len(device_s)
    time_s = device_s if time_s is None else time_s
    return OperationPredictions(
        operations=(RELU,) * count,
        time_s=np.array(time_s),
        power_w=np.full(count, 100.0),
        energy_j=np.array(dynamic_j if energy_j is None else energy_j),
        device_time_s=np.array(device_s),
        dynamic_energy_j=np.array(dynamic_j),
        host_time_s=np.array(host_s),
        source=tuple("missing" if np.isnan(value) else "modelled" for value in device_s),
        static_power_w=static_w,
        held_clock_mhz=np.full(count, 1440.0),
    )


def test_host_and_device_overlap():
    """3 x 1 ms + 2 x 2 ms of device, 3 x 1 ms + 2 x 0.5 ms + 5 x 0.2 ms of host; 3 x 0.1 J + 2 x 0.3 J; 50 W."""
    found = compose(np.array([3.0, 2.0]), predictions([1e-3, 2e-3], [1e-3, 0.5e-3], [0.1, 0.3]), HostModel(0.2e-3), 1e9)
    assert found.device_time_s == pytest.approx(7e-3)
    assert found.host_time_s == pytest.approx(5e-3)
    assert found.time_s == pytest.approx(1e-3 * (7**4 + 5**4) ** 0.25)
    assert found.energy_j == pytest.approx(0.9 + 50 * found.time_s)


def test_mean_power_is_within_the_cap():
    found = compose(np.array([1.0]), predictions([1e-3], [1e-9], [0.2]), HostModel(0.0), 165.0)
    assert found.energy_j == pytest.approx(165.0 * found.time_s)
    assert overlap(3.0, 4.0, 10.0, 2.0, 1e9) == pytest.approx((337**0.25, 10 + 2 * 337**0.25))
    time_s, energy_j = overlap(np.array([1.0, 3.0]), 0.0, np.array([5.0, 5.0]), np.array([1.0, 2.0]), 4.0)
    assert time_s == pytest.approx([1.0, 3.0])
    assert energy_j == pytest.approx([4.0, 11.0])


def test_what_is_missing_is_left_out():
    nan = float("nan")
    found = compose(np.array([2.0, 7.0]), predictions([1e-3, nan], [1e-3, nan], [0.1, nan]), HostModel(0.0), 1e9)
    assert (found.device_time_s, found.host_time_s) == pytest.approx((2e-3, 2e-3))
    assert found.time_s == pytest.approx(2e-3 * 2**0.25)


def test_no_call_costs_the_host_less_than_a_launch():
    """In training a call costs 125 us less than in a loop, but never less than 5 us."""
    found = HostModel.prior("training").calls_s(predictions([0.0, 0.0], [200e-6, 100e-6], [0.0, 0.0]))
    assert found == pytest.approx([75e-6, 5e-6])
    assert LEAST_HOST_S == 5e-6
    found = HostModel.prior("inference").calls_s(predictions([0.0], [20e-6], [0.0]))
    assert found == pytest.approx([25e-6])
    assert not HostModel.prior("inference").learned


def test_the_offset_of_the_host_is_learned_from_networks():
    """100 calls of 50 us in a loop took 3 ms in a network: each 20 us less. The device takes next to nothing."""
    one = predictions([1e-9], [50e-6], [0.0])
    found = HostModel.fit([(np.array([100.0]), one, 3e-3)], "inference")
    assert found.learned
    assert found.offset_s == pytest.approx(-20e-6, abs=0.5e-6)
    # Networks that the device bounds say nothing of the host.
    bound = HostModel.fit([(np.array([1.0]), predictions([1.0], [50e-6], [0.0]), 1.0)], "training")
    assert bound == HostModel.prior("training")
    assert HostModel.fit([], "inference") == HostModel.prior("inference")
    assert HostModel.from_dict(found.to_dict()) == found


def test_a_network_that_the_device_bounds_says_a_little_of_its_host():
    """3 ms of device and 80 calls of 50 us: with 20 us less for each call, the 4-norm of 3 ms and 2.4 ms."""
    one = predictions([37.5e-6], [50e-6], [0.0])
    found = HostModel.fit([(np.array([80.0]), one, 1e-3 * (3**4 + 2.4**4) ** 0.25)], "inference")
    assert found.learned
    assert found.offset_s == pytest.approx(-20e-6, abs=0.5e-6)


def test_a_compiled_network_is_launched_without_the_dispatcher():
    """On a host that takes twice as long as the reference: 2 x 3 us and 2 x 7 us, and no offset of eager networks."""
    compiled = Execution.of("compiled", replace(find_host("reference"), factor=2.0))
    found = HostModel(0.2e-3, execution=compiled).calls_s(predictions([1e-3, 2e-3], [3e-6, 7e-6], [0.1, 0.3]))
    assert found == pytest.approx([6e-6, 14e-6])


def test_where_many_offsets_are_as_good_the_nearest_to_the_prior_is_taken():
    """All calls below a launch are as long as one: offsets from -200 to -195 us leave 5 us of 200 us."""
    one = predictions([1e-9], [200e-6], [0.0])
    found = HostModel.fit([(np.array([100.0]), one, 0.5e-3)], "training")
    assert found.offset_s == pytest.approx(-195e-6, abs=0.1e-6)


def test_plain_sums_add_up_loops():
    found = plain_sum(
        np.array([3.0, 2.0]),
        predictions([1e-3, 2e-3], [1e-3, 0.5e-3], [0.1, 0.3], time_s=[2e-3, 4e-3], energy_j=[0.5, 0.25]),
    )
    assert (found.time_s, found.energy_j) == pytest.approx((14e-3, 2.0))
    assert (found.device_time_s, found.host_time_s) == pytest.approx((7e-3, 4e-3))


def test_counts_are_calls_of_each_operation():
    network = Network.of([(RELU, 3), (Operation("gelu", [(8, 8)]), 2)])
    assert counts_of(network).tolist() == [3.0, 2.0]


def test_a_board_draws_from_idle_to_its_cap():
    assert power_range_w(replace(A30, idle_power_w=21.0), 100.0) == (21.0, 100.0)
    assert power_range_w(replace(A30, idle_power_w=21.0), 20.0) == (20.0, 20.0)
    curve = replace(A30.idle_curve, clock_mhz=(210.0, 1440.0), power_w=(25.0, 40.0)) if A30.idle_curve else None
    known = replace(A30, idle_power_w=None, idle_curve=curve)
    assert power_range_w(known, 165.0) == ((25.0, 165.0) if curve else (0.0, 165.0))
    assert power_range_w(replace(A30, idle_power_w=None, idle_curve=None), 165.0) == (0.0, 165.0)


def test_intervals_of_power_stay_within_what_a_board_draws():
    low, high = within_range(np.array([5.0, 90.0]), np.array([60.0, 100.0]), np.array([70.0, 300.0]), (20.0, 165.0))
    assert low.tolist() == [20.0, 90.0]
    assert high.tolist() == [70.0, 165.0]
    # A value beyond them stays within its own interval.
    assert within_range(170.0, 180.0, 190.0, (20.0, 165.0)) == (170.0, 180.0)
