"""Constants that are read off loops of several kinds and methods, against arithmetic by hand."""

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.baseline import Baseline, GroupConstants, Loops

RELU, GELU = Operation("relu", [(1000, 1000)]), Operation("gelu", [(1000, 1000)])
IDENTITY = Operation("dropout", [(1000, 1000)])  # which does nothing in inference


def fitted(rows, accumulates=frozenset()):
    """Rows of operation, seconds, watts, roofline seconds and method."""
    operations, seconds, watts, line_s, methods = zip(*rows, strict=True)
    powers = np.array([np.nan if watt is None else watt for watt in watts])
    loops = Loops(np.array(seconds), powers)
    return Baseline.fit(operations, loops, methods, np.array(line_s), ROUND, accumulates)


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


def test_the_default_method_is_that_of_most_loops():
    rows = [(RELU, 20e-6, 60.0, 200e-6, "often")] * 3 + [(RELU, 10e-6, 60.0, 200e-6, "always")] * 2
    assert fitted(rows).method == "often"
    assert fitted(rows).host_s(["relu fp32"]).tolist() == pytest.approx([20e-6])


def test_a_kind_without_work_has_the_slowdown_of_the_others_or_one():
    idle = [(IDENTITY, 10e-6, 60.0, 1e-9, "loop")] * 3
    assert fitted(idle).groups["dropout fp32"].slowdown == 1.0
    large = [(RELU, 20e-6, 60.0, 200e-6, "loop"), *[(RELU, 1e-3, 150.0, 200e-6, "loop")] * 3]
    assert fitted([*idle, *large]).groups["dropout fp32"].slowdown == pytest.approx(5.0)


def test_kinds_without_a_stand_in_are_reported():
    """Collectives are known only where they were measured: no other kind of their family stands in for them."""
    constants = GroupConstants({"loop": 1e-5}, 1.0, 1.0, 100.0)
    gather = Operation("all_gather", [(1000,)], {"gpus": 2})
    reduce = Operation("all_reduce", [(1000,)], {"gpus": 2})
    known = Baseline({"all_reduce fp32": constants}, 50.0, "loop")
    assert known.stand_in(reduce, ROUND) == "all_reduce fp32"
    assert known.stand_in(gather, ROUND) is None


def test_the_difference_of_active_and_static_power_is_at_least_a_watt():
    """Static 50 W, active 50.5 W: the difference counts as 1 W, so that 50.25 W means busy for a quarter."""
    constants = GroupConstants({"loop": 10e-6}, 1.0, 1.0, 50.5)
    found = Baseline({"relu fp32": constants}, 50.0, "loop").device_costs(
        [RELU], ["relu fp32"], Loops(np.array([12e-6]), np.array([50.25])), ROUND
    )
    assert found.time_s == pytest.approx([3e-6])


def test_the_number_of_large_loops_survives_json():
    known = Baseline({"relu fp32": GroupConstants({"loop": 1e-5}, 2.0, 1.5, 100.0, large_loops=7)}, 50.0, "loop")
    assert Baseline.from_dict(known.to_dict()).groups["relu fp32"].large_loops == 7
