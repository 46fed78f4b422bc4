"""From operations to networks, and from their time and energy back to operations, against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest
from made_predictions import RELU, predictions

from joulecast import Network, Operation
from joulecast.errors import UnknownNameError
from joulecast.hardware import IdleCurve, find_gpu
from joulecast.hardware.host import Host
from joulecast.predictors.intervals.conformal import power_range_w, within_range
from joulecast.predictors.intervals.network_calibration import NetworkCalibration
from joulecast.predictors.networks.composition import EAGER, Execution, HostModel, compose, overlap, plain_sum
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.physics.clock import Work
from joulecast.zoo import find_predictor

A30 = find_gpu("A30")


@pytest.mark.parametrize(("half_s", "errors"), [(0.4, "all"), (0.6, "half"), (0.8, "half")])
def test_networks_mostly_in_half_precision_have_errors_of_their_own(half_s, errors):
    known = {
        name: NetworkCalibration.of_errors(dict.fromkeys(("time", "power", "energy", "edp"), (0.1,) * 9), name)
        for name in ("all", "half")
    }
    operations = find_predictor("T4", "inference").operations
    knowledge = NetworkPredictor("test", operations, HostModel(0.0), known["all"], known["half"])
    both = RELU.replace(precision="fp16"), RELU
    found = predictions([half_s / 2, 1 - half_s], [0.0] * 2, [1.0] * 2, operations=both)
    assert knowledge.errors_on(np.array([2.0, 1.0]), found) is known[errors]


def test_host_and_device_overlap():
    """3 x 1 ms + 2 x 2 ms of device, 3 x 1 ms + 2 x 0.5 ms + 5 x 0.2 ms of host; 3 x 0.1 J + 2 x 0.3 J; 50 W.

    What is missing is left out.
    """
    nan = float("nan")
    operations = predictions([1e-3, 2e-3, nan], [1e-3, 0.5e-3, nan], [0.1, 0.3, nan])
    found = compose(np.array([3.0, 2.0, 7.0]), operations, HostModel(0.2e-3), 1e9)
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


# 1 ms and 2 ms of device, 20 us and 40 us of host in a loop.
TWO = predictions([1e-3, 2e-3], [20e-6, 40e-6], [0.05, 0.1])
COUNTS = np.array([3.0, 2.0])
SLOW = Host("slow", 2.0, "a test")


def test_an_eager_call_costs_the_offset_more_but_never_less_than_a_launch():
    """3 x (20 + 5) + 2 x (40 + 5) us; in training a call costs 125 us less than in a loop, but never less than 5 us."""
    assert HostModel.prior("inference").total_s(COUNTS, TWO) == pytest.approx(165e-6)
    found = HostModel.prior("training").calls_s(predictions([0.0, 0.0], [200e-6, 100e-6], [0.0, 0.0]))
    assert found == pytest.approx([75e-6, 5e-6])
    assert not HostModel.prior("inference").learned
    # A copy inside a network costs a launch whatever it costs in a loop.
    copies = replace(TWO, operations=(RELU, Operation("copy", [(8, 8)])))
    assert HostModel(5e-6).total_s(COUNTS, copies) == pytest.approx(85e-6)
    # Where no gradient is asked for, the host launches half of what a loop in training does, and one kernel at least.
    frozen = replace(TWO, operations=(RELU.replace(mode="training", gradients="none"),) * 2)
    found = HostModel(5e-6).calls_s(replace(frozen, host_time_s=np.array([100e-6, 1e-6])))
    assert found == pytest.approx([52.5e-6, 5e-6])
    # Loops hold the gaps between kernels already.
    assert HostModel(5e-6).device_s(COUNTS, TWO) == pytest.approx(7e-3)


@pytest.mark.parametrize(
    ("execution", "calls_s", "total_s"),
    [
        ("eager", [50e-6, 90e-6], 330e-6),
        ("graph", [0.0, 0.0], 20e-6),  # one launch of 10 us for all calls
        ("compiled", [40e-6, 80e-6], 2 * 50e-6 + 280e-6),  # without the offset, which the dispatcher causes
    ],
)
def test_what_a_host_takes_that_is_twice_as_slow(execution, calls_s, total_s):
    host = HostModel(5e-6, execution=Execution(execution, SLOW))
    assert host.calls_s(TWO).tolist() == pytest.approx(calls_s)
    assert host.total_s(COUNTS, TWO) == pytest.approx(total_s)


def test_an_execution_has_a_name_that_is_known_a_host_and_a_profile():
    found = Execution.of("graph", SLOW, "a profile")
    assert (found.name, found.host, found.profile) == ("graph", SLOW, "a profile")
    with pytest.raises(UnknownNameError, match="unknown execution") as caught:
        Execution.of("graphs", SLOW)
    assert (caught.value.given, caught.value.allowed) == ("'graphs'", "compiled, eager, graph")


def test_the_device_waits_between_the_kernels_of_an_engine():
    """Five calls; and an empty network takes no time."""
    graph = HostModel(5e-6, execution=Execution("graph", gap_s=1e-6))
    assert graph.device_s(COUNTS, TWO) == pytest.approx(7e-3 + 5e-6)
    assert graph.device_s(np.empty(0), predictions([], [], [])) == 0.0


@pytest.mark.parametrize(
    ("mode", "device_s", "host_s", "calls", "measured_s", "offset_s"),
    [
        # 100 calls of 50 us in a loop took 3 ms in a network: each 20 us less. The device takes next to nothing.
        ("inference", 1e-9, 50e-6, 100.0, [3e-3], -20e-6),
        # 3 ms of device and 80 calls of 50 us: with 20 us less for each call, the 4-norm of 3 ms and 2.4 ms.
        ("inference", 37.5e-6, 50e-6, 80.0, [1e-3 * (3**4 + 2.4**4) ** 0.25], -20e-6),
        # Calls of 100 us: two networks took 130 us a call and one 120 us, and 30 us is best for two of three.
        ("inference", 1e-9, 100e-6, 2.0, [260e-6, 260e-6, 240e-6], 30e-6),
        # All calls below a launch are as long as one: of -200 to -195 us, the nearest to the prior is taken.
        ("training", 1e-9, 200e-6, 100.0, [0.5e-3], -195e-6),
    ],
)
def test_the_offset_of_the_host_is_learned_from_networks(mode, device_s, host_s, calls, measured_s, offset_s):
    one = predictions([device_s], [host_s], [0.0])
    found = HostModel.fit([(np.array([calls]), one, seconds) for seconds in measured_s], mode)
    assert found.learned
    assert found.offset_s == pytest.approx(offset_s, abs=0.5e-6)
    assert HostModel.from_dict(found.to_dict()) == found
    # A network that the device bounds says nothing of the host, as none does.
    bound = [(np.array([1.0]), predictions([1.0], [50e-6], [0.0]), 1.0)]
    assert HostModel.fit(bound, mode) == HostModel.fit([], mode) == HostModel.prior(mode)


def test_plain_sums_add_up_loops():
    found = plain_sum(
        np.array([3.0, 2.0]),
        predictions([1e-3, 2e-3], [1e-3, 0.5e-3], [0.1, 0.3], time_s=[2e-3, 4e-3], energy_j=[0.5, 0.25]),
    )
    assert (found.time_s, found.energy_j) == pytest.approx((14e-3, 2.0))
    assert (found.device_time_s, found.host_time_s) == pytest.approx((7e-3, 4e-3))


def test_a_board_draws_from_idle_to_its_cap():
    known = replace(A30, idle_power_w=None, idle_curve=IdleCurve((210.0, 1440.0), (25.0, 40.0)))
    for cap_w, low_w in ((100.0, 21.0), (20.0, 20.0)):
        assert power_range_w(replace(A30, idle_power_w=21.0), cap_w) == (low_w, cap_w)
    assert power_range_w(known, 165.0) == (25.0, 165.0)
    assert power_range_w(replace(known, idle_curve=None), 165.0) == (0.0, 165.0)


def test_intervals_of_power_stay_within_what_a_board_draws():
    low, high = within_range(np.array([5.0, 90.0]), np.array([60.0, 100.0]), np.array([70.0, 300.0]), (20.0, 165.0))
    assert low.tolist() == [20.0, 90.0]
    assert high.tolist() == [70.0, 165.0]
    # A value beyond them stays within its own interval.
    assert within_range(170.0, 180.0, 190.0, (20.0, 165.0)) == (170.0, 180.0)


# Time and energy of a network are shared among its operations.

OPERATIONS = [Operation("relu", [(8, 8)]), Operation("gelu", [(8, 8)])]


class FixedPredictor:
    """A predictor that returns given values for two operations, which only memory decides: the same at any clock."""

    gpu, mode, coverage = A30, "inference", ("all",)

    def __init__(self, device_s, dynamic_j, static_w=40.0):
        self.fixed = device_s, dynamic_j, static_w

    def predict(self, operations, clock_mhz=None, power_limit_w=None):
        device_s, dynamic_j, static_w = self.fixed
        device, nothing = np.array(device_s), np.zeros(2)
        work = Work(A30, np.full(2, 1440.0), nothing, device, *(nothing,) * 3, np.array(dynamic_j))
        return predictions(device_s, [0.0, 0.0], dynamic_j, static_w, operations=operations, work=work)

    def predict_for_network(self, operations, power_limit_w):
        return self.predict(operations)

    def in_network(self, predictions):
        return predictions

    def not_of_chip(self, operations):
        return ()

    def remarks(self, operations):
        return ()


GAPS = Execution("graph", gap_s=1e-3)


@pytest.mark.parametrize(
    ("dynamic_j", "counts", "execution", "whole", "device_s", "energy_j"),
    [
        # 1 and 3 ms; the host takes 5 us for each, which is nothing beside. 40 W x 4 ms are 160 mJ.
        ([0.05, 0.09], (1, 1), EAGER, (4e-3, 0.30), [1e-3, 3e-3], [0.05 + 0.04, 0.09 + 0.12]),
        ([0.05, 0.09], (2, 1), EAGER, (5e-3, 0.39), [2e-3, 3e-3], [0.10 + 0.08, 0.09 + 0.12]),
        # Nothing draws more than the cap: at 165 W 4 ms are 0.66 J. Dynamic energies of 0.8 J in all shrink to that, so
        # that no static energy is left to share.
        ([0.3, 0.5], (1, 1), EAGER, (4e-3, 0.66), [1e-3, 3e-3], [0.3 * 0.66 / 0.8, 0.5 * 0.66 / 0.8]),
        # Between the kernels of an engine the device waits, and draws static power: two gaps of 1 ms.
        ([0.05, 0.09], (1, 1), GAPS, (6e-3, 0.38), [1e-3, 3e-3], [0.05 + 0.06, 0.09 + 0.18]),
    ],
    ids=["alone", "calls are counted", "at the cap", "gaps"],
)
def test_static_energy_is_shared_by_device_time(dynamic_j, counts, execution, whole, device_s, energy_j):
    predictor = FixedPredictor([1e-3, 3e-3], dynamic_j)
    network = Network.of(list(zip(OPERATIONS, counts, strict=True)))
    idle = NetworkPredictor("fixed", FixedPredictor([0.0, 0.0], [0.0, 0.0]), HostModel(0.0))
    assert idle.predict(network).held_clock_mhz == 1440.0  # Without kernels the clock is the usual one.
    found = NetworkPredictor("fixed", predictor, HostModel(0.0, learned=True, execution=execution)).predict(network)
    assert (found.time_s, found.energy_j) == pytest.approx(whole)
    assert found.device_time_s == pytest.approx(sum(device_s) + (2e-3 if execution is GAPS else 0.0))
    assert [cost.device_time_s for cost in found.operations] == pytest.approx(device_s)
    assert [cost.energy_j for cost in found.operations] == pytest.approx(energy_j)
    watts = [40 + joules / seconds for joules, seconds in zip(dynamic_j, (1e-3, 3e-3), strict=True)]
    assert [cost.power_w for cost in found.operations] == pytest.approx(np.minimum(watts, 165.0).tolist())
