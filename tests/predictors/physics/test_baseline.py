"""What measuring loops show, and constants that are read off them, against arithmetic by hand."""

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.baseline import Baseline, GroupConstants, Loops, group_of

RELU = Operation("relu", [(1000, 1000)])
GELU = Operation("gelu", [(1000, 1000)])
IDENTITY = Operation("dropout", [(1000, 1000)])  # which does nothing in inference
HOST_S = {"short": 10e-6, "long": 30e-6}


def baseline(accumulates=(), method="short", **groups):
    known = groups or {
        "relu": GroupConstants(HOST_S, slowdown=2.0, device_slowdown=1.5, active_power_w=150.0, large_loops=7)
    }
    return Baseline({f"{kind} fp32": row for kind, row in known.items()}, 50.0, method, frozenset(accumulates))


def loops(*seconds_and_watts):
    seconds, watts = (np.array(column) for column in zip(*seconds_and_watts, strict=True))
    return Loops(seconds, watts)


def fitted(rows, accumulates=frozenset()):
    """Rows of operation, seconds, watts, roofline seconds and method."""
    operations, seconds, watts, line_s, methods = zip(*rows, strict=True)
    powers = np.array([np.nan if watt is None else watt for watt in watts])
    loops = Loops(np.array(seconds), powers)
    return Baseline.fit(operations, loops, methods, np.array(line_s), ROUND, accumulates)


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
    # Collectives are known only where they were measured.
    gather, reduce = (Operation(kind, [(1000,)], {"gpus": 2}) for kind in ("all_gather", "all_reduce"))
    assert baseline(all_reduce=constants).stand_in(reduce, ROUND) == "all_reduce fp32"
    assert baseline(all_reduce=constants).stand_in(gather, ROUND) is None


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
    # An active power of 50.5 W counts as 1 W above the static power: 50.25 W means busy for a quarter.
    near = baseline(relu=GroupConstants(HOST_S, 1.0, 1.0, 50.5))
    assert near.device_costs([RELU], ["relu fp32"], loops((12e-6, 50.25)), ROUND).time_s == pytest.approx([3e-6])


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
    rows = [(RELU, 1e-6 * (10 + n), 60.0, 200e-6, "loop") for n in range(20)]
    large = ((400e-6, 140.0), (500e-6, 160.0), (800e-6, 150.0))
    found = fitted([*rows, *((RELU, seconds, watts, 200e-6, "loop") for seconds, watts in large)])
    row = found.groups["relu fp32"]
    # The 5 % quantile of 23 values lies at 1.1 of 22 steps: 11.1 us.
    assert row.host_s == {"loop": pytest.approx(11.1e-6)}
    assert row.slowdown == row.device_slowdown == pytest.approx(500 / 200)
    assert row.active_power_w == 150.0
    assert row.large_loops == 3
    assert found.static_power_w == 60.0
    assert found.method == "loop"


def test_a_kind_that_always_waits_for_the_host_is_as_slow_as_others_if_its_quickest_loop_allows():
    relus = ((10e-6, 1e-6), (100e-6, 50e-6), (120e-6, 60e-6), (140e-6, 70e-6))
    gelus = ((10e-6, 3e-6), (11e-6, 3e-6), (12e-6, 3e-6), (13e-6, 10e-6))
    found = fitted(
        [(kind, s, 100.0, line_s, "loop") for kind, rows in ((RELU, relus), (GELU, gelus)) for s, line_s in rows]
    )
    assert found.groups["relu fp32"].slowdown == pytest.approx(2.0)
    # Its quickest loop takes 13 us, and its roofline 10 us.
    assert found.groups["gelu fp32"].slowdown == pytest.approx(1.3)
    assert found.groups["gelu fp32"].large_loops == 0
    assert found.groups["gelu fp32"].active_power_w == 100.0


def test_baselines_survive_json():
    known = baseline(["short"])
    assert Baseline.from_dict(known.to_dict()) == known


def test_host_times_are_those_of_the_method_that_most_loops_were_run_by():
    often, seldom = (RELU, 10e-6, 60.0, 1e-6, "often"), (RELU, 40e-6, 60.0, 1e-6, "seldom")
    found = fitted([often] * 3 + [seldom] * 2)
    assert found.method == "often"
    assert found.groups["relu fp32"].host_s == pytest.approx({"often": 10e-6, "seldom": 40e-6})
    assert found.host_s(["relu fp32"]).tolist() == pytest.approx([10e-6])
    # A method that never ran a kind launches it about as fast as the others.
    both = fitted([often] * 3 + [seldom] * 2 + [(GELU, 7e-6, 60.0, 1e-6, "often")])
    assert both.groups["gelu fp32"].host_s == pytest.approx({"often": 7e-6, "seldom": 7e-6})


def test_without_power_in_large_loops_all_powers_tell():
    """The large loop has no power that can be used; the median of 50, 60 and 90 W stands for it."""
    small = [(RELU, 10e-6, watts, 1e-5, "loop") for watts in (50.0, 60.0, 90.0)]
    assert fitted([*small, (RELU, 400e-6, None, 1e-5, "loop")]).groups["relu fp32"].active_power_w == 60.0


def test_gradients_that_loops_add_up_are_part_of_a_loop_but_not_of_a_network():
    """relu moves 4 MB five times in training; adding gradients up moves it three times more, at 100 GB/s / 1.17."""
    training = RELU.replace(mode="training")
    small = [(training, 20e-6, 60.0, 200e-6, "adds")] * 3
    found = fitted([*small, *[(training, 1e-3, 150.0, 200e-6, "adds")] * 3], frozenset({"adds"}))
    row = found.groups["relu fp32"]
    assert row.slowdown == pytest.approx(1e-3 / 200e-6)
    assert row.device_slowdown == pytest.approx((1e-3 - 12e6 * 1.17 / 1e11) / 200e-6)
    assert found.accumulates_gradients == {"adds"}
    other = fitted([*small, *[(training, 1e-3, 150.0, 200e-6, "adds")] * 3], frozenset({"another"}))
    assert other.groups["relu fp32"].device_slowdown == pytest.approx(1e-3 / 200e-6)


def test_gradients_of_parameters_are_added_up_with_those_of_the_input():
    """linear, 1000 x 1000 to 1000: input and weights are 4 MB each. 24 MB at 100 GB/s / 1.17."""
    linear = Operation("linear", [(1000, 1000)], {"out_features": 1000, "bias": False}, mode="training")
    found = fitted([(linear, 20e-6, 60.0, 6e-3, "adds"), (linear, 9e-3, 150.0, 6e-3, "adds")], frozenset({"adds"}))
    assert found.groups["linear fp32"].device_slowdown == pytest.approx((9e-3 - 24e6 * 1.17 / 1e11) / 6e-3)


def test_a_kind_that_waits_for_the_host_is_as_slow_as_the_others_with_and_without_added_gradients():
    training, waiting = RELU.replace(mode="training"), GELU.replace(mode="training")
    large = [(training, 20e-6, 60.0, 200e-6, "adds"), *[(training, 1e-3, 150.0, 200e-6, "adds")] * 3]
    found = fitted([*large, *[(waiting, 20e-6, 60.0, 1e-6, "adds")] * 3], frozenset({"adds"}))
    relu, gelu = found.groups["relu fp32"], found.groups["gelu fp32"]
    assert gelu.slowdown == pytest.approx(relu.slowdown) == pytest.approx(5.0)
    assert gelu.device_slowdown == pytest.approx(relu.device_slowdown) == pytest.approx(5 - 12e6 * 1.17 / 1e11 / 200e-6)


def test_power_while_the_device_works_is_that_of_large_loops():
    """Small loops draw 60 W, large ones 150 W and 170 W. gelu has no large loop, so it gets the median of all large."""
    rows = [(RELU, 20e-6, 60.0, 200e-6, "loop")] * 9 + [(RELU, 1e-3, 150.0, 200e-6, "loop")] * 2
    rows += [(RELU, 1e-3, 170.0, 200e-6, "loop")] * 3 + [(GELU, 20e-6, 61.0, 1e-6, "loop")] * 9
    found = fitted(rows)
    assert found.groups["relu fp32"].active_power_w == 170.0
    assert found.groups["gelu fp32"].active_power_w == 170.0
    # A large loop of a kind whose power cannot be used: the median of all large loops stands in.
    unread = fitted([*rows[:14], (GELU, 20e-6, 61.0, 1e-6, "loop"), (GELU, 1e-3, None, 200e-6, "loop")])
    assert unread.groups["gelu fp32"].active_power_w == 170.0
    assert unread.groups["gelu fp32"].large_loops == 1


def test_each_kind_has_the_power_of_its_own_large_loops():
    rows = [(RELU, 20e-6, 60.0, 200e-6, "loop"), (GELU, 20e-6, 60.0, 200e-6, "loop")]
    found = fitted([*rows, (RELU, 1e-3, 150.0, 200e-6, "loop"), (GELU, 1e-3, 90.0, 200e-6, "loop")])
    assert (found.groups["relu fp32"].active_power_w, found.groups["gelu fp32"].active_power_w) == (150.0, 90.0)


def test_a_kind_without_work_has_the_slowdown_of_the_others_or_one():
    idle = [(IDENTITY, 10e-6, 60.0, 1e-9, "loop")] * 3
    assert fitted(idle).groups["dropout fp32"].slowdown == 1.0
    large = [(RELU, 20e-6, 60.0, 200e-6, "loop"), *[(RELU, 1e-3, 150.0, 200e-6, "loop")] * 3]
    assert fitted([*idle, *large]).groups["dropout fp32"].slowdown == pytest.approx(5.0)
    # Of three other kinds, 5, 3 and 2 times as slow as their rooflines, the median counts.
    more = [
        (Operation(kind, [(9, 9)]), slower * 200e-6, 150.0, 200e-6, "loop")
        for kind, slower in (("gelu", 3), ("exp", 2))
    ]
    quick = [(Operation(kind, [(9, 9)]), 20e-6, 60.0, 200e-6, "loop") for kind in ("gelu", "exp")]
    found = fitted([*idle, *large, *quick, *more * 3])
    assert found.groups["dropout fp32"].slowdown == pytest.approx(3.0)
