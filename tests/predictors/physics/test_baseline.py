"""What measuring loops show, against arithmetic by hand."""

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.baseline import Baseline, GroupConstants, Loops, group_of

RELU = Operation("relu", [(1000, 1000)])
GELU = Operation("gelu", [(1000, 1000)])
HOST_S = {"short": 10e-6, "long": 30e-6}


def baseline(accumulates=(), method="short", **groups):
    known = groups or {"relu": GroupConstants(HOST_S, slowdown=2.0, device_slowdown=1.5, active_power_w=150.0)}
    return Baseline({f"{kind} fp32": row for kind, row in known.items()}, 50.0, method, frozenset(accumulates))


def loops(*seconds_and_watts):
    seconds, watts = (np.array(column) for column in zip(*seconds_and_watts, strict=True))
    return Loops(seconds, watts)


@pytest.mark.parametrize(("precision", "group"), [("fp32", "relu fp32"), ("bf16", "relu bf16"), ("tf32", "relu tf32")])
def test_a_group_is_a_kind_in_the_precision_that_it_runs_in(precision, group):
    assert group_of(RELU.replace(precision=precision), ROUND) == group


def test_kinds_that_were_not_measured_have_stand_ins_in_their_order():
    constants = GroupConstants(HOST_S, 1.0, 1.0, 100.0)
    assert baseline().stand_in(RELU, ROUND) == "relu fp32"
    assert baseline(relu=constants, silu=constants).stand_in(GELU, ROUND) == "relu fp32"
    assert baseline(gelu=constants, silu=constants).stand_in(RELU, ROUND) == "silu fp32"
    copy = Operation("copy", [(10, 10)])
    assert baseline(relu=constants).stand_in(copy, ROUND) == "relu fp32"
    assert baseline(linear=constants).stand_in(copy, ROUND) is None
    assert baseline(relu=constants).stand_in(RELU.replace(precision="bf16"), ROUND) is None


def test_a_loop_takes_the_norm_of_host_and_device():
    """The device needs twice its roofline of 40 us, the host 10 us or 30 us."""
    found = baseline().loop_s(["relu fp32"], np.array([40e-6]))
    assert found == pytest.approx([1e-6 * (80**4 + 10**4) ** 0.25])
    found = baseline().loop_s(["relu fp32"], np.array([40e-6]), ["long"])
    assert found == pytest.approx([1e-6 * (80**4 + 30**4) ** 0.25])
    assert baseline().device_s(["relu fp32"], np.array([40e-6])) == pytest.approx([60e-6])
    assert baseline().host_s(["relu fp32"]).tolist() == [10e-6]
    assert baseline(method="long").host_s(["relu fp32"]).tolist() == [30e-6]
    assert baseline().active_power_w(["relu fp32"]).tolist() == [150.0]


def test_the_device_time_follows_from_the_power():
    """At 50 W static and 150 W active, 75 W mean busy for a quarter. Loops of twice the host's time show the device."""
    found = baseline().device_costs(
        [RELU] * 5,
        ["relu fp32"] * 5,
        loops((12e-6, 75.0), (20e-6, 75.0), (21e-6, 75.0), (12e-6, 160.0), (12e-6, 40.0)),
        ROUND,
    )
    assert found.time_s == pytest.approx([3e-6, 5e-6, 21e-6, 12e-6, 0.0])
    assert found.dynamic_energy_j == pytest.approx([25 * 12e-6, 25 * 20e-6, 25 * 21e-6, 110 * 12e-6, 0.0])


def test_gradients_that_a_loop_adds_up_are_taken_off():
    """relu moves 5 passes of 4 MB in training; three more (12 MB) at 100 GB/s / 1.17 add up its gradient."""
    training = RELU.replace(mode="training")
    accumulation_s = 12e6 * 1.17 / 1e11
    found = baseline(["short"]).device_costs([training], ["relu fp32"], loops((1e-3, 150.0)), ROUND)
    assert found.time_s == pytest.approx([1e-3 - accumulation_s])
    assert found.dynamic_energy_j == pytest.approx([0.1 * (1 - accumulation_s / 1e-3)])
    # In the cache it is as much quicker as the rest: its share of the bytes, 3 of 8.
    found = baseline(["short"]).device_costs([training], ["relu fp32"], loops((100e-6, 150.0)), ROUND)
    assert found.time_s == pytest.approx([100e-6 * 5 / 8])
    other = baseline(["long"]).device_costs([training], ["relu fp32"], loops((1e-3, 150.0)), ROUND)
    assert other.time_s == pytest.approx([1e-3])


def test_constants_are_read_off_loops():
    """Twenty loops of 10 to 29 us wait for the host; three of 400, 500 and 800 us show the device: 2 to 4 times 200."""
    small, large = [RELU] * 20, [RELU] * 3
    seconds = np.array([*(1e-6 * (10 + n) for n in range(20)), 400e-6, 500e-6, 800e-6])
    watts = np.array([*[60.0] * 20, 140.0, 160.0, 150.0])
    found = Baseline.fit(small + large, Loops(seconds, watts), ["loop"] * 23, np.full(23, 200e-6), ROUND)
    row = found.groups["relu fp32"]
    # The 5 % quantile of 23 values lies at 1.1 of 22 steps: 11.1 us.
    assert row.host_s == {"loop": pytest.approx(11.1e-6)}
    assert row.slowdown == row.device_slowdown == pytest.approx(500 / 200)
    assert row.active_power_w == 150.0
    assert row.large_loops == 3
    assert found.static_power_w == 60.0
    assert found.method == "loop"


def test_a_kind_that_always_waits_for_the_host_is_as_slow_as_others_if_its_quickest_loop_allows():
    operations = [RELU] * 4 + [GELU] * 4
    seconds = np.array([10e-6, 100e-6, 120e-6, 140e-6, 10e-6, 11e-6, 12e-6, 13e-6])
    line_s = np.array([1e-6, 50e-6, 60e-6, 70e-6, 3e-6, 3e-6, 3e-6, 10e-6])
    found = Baseline.fit(operations, Loops(seconds, np.full(8, 100.0)), ["loop"] * 8, line_s, ROUND)
    assert found.groups["relu fp32"].slowdown == pytest.approx(2.0)
    # Its quickest loop takes 13 us, and its roofline 10 us.
    assert found.groups["gelu fp32"].slowdown == pytest.approx(1.3)
    assert found.groups["gelu fp32"].large_loops == 0
    assert found.groups["gelu fp32"].active_power_w == 100.0


def test_baselines_survive_json():
    known = baseline(["short"])
    assert Baseline.from_dict(known.to_dict()) == known


def test_host_times_are_those_of_the_method_that_most_loops_were_run_by():
    seconds = np.array([10e-6, 10e-6, 10e-6, 40e-6, 40e-6])
    methods = ["often", "often", "often", "seldom", "seldom"]
    found = Baseline.fit([RELU] * 5, Loops(seconds, np.full(5, 60.0)), methods, np.full(5, 1e-6), ROUND)
    assert found.method == "often"
    assert found.groups["relu fp32"].host_s == pytest.approx({"often": 10e-6, "seldom": 40e-6})
    # A method that never ran a kind launches it about as fast as the others.
    both = Baseline.fit(
        [*[RELU] * 5, GELU],
        Loops(np.append(seconds, 7e-6), np.full(6, 60.0)),
        [*methods, "often"],
        np.full(6, 1e-6),
        ROUND,
    )
    assert both.groups["gelu fp32"].host_s == pytest.approx({"often": 7e-6, "seldom": 7e-6})


def test_without_power_in_large_loops_all_powers_tell():
    """The large loop has no power that can be used; the median of 50, 60 and 90 W stands for it."""
    found = Baseline.fit(
        [RELU] * 4,
        Loops(np.array([10e-6, 10e-6, 10e-6, 400e-6]), np.array([50.0, 60.0, 90.0, np.nan])),
        ["loop"] * 4,
        np.full(4, 1e-5),
        ROUND,
    )
    assert found.groups["relu fp32"].active_power_w == 60.0
