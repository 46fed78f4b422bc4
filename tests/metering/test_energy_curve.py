"""Joules between two moments and in windows, by hand; test_accuracy.py has loads. Unknown time never counts as zero."""

import numpy as np
import pytest

from joulecast.metering.energy_curve import EnergyCurve
from joulecast.metering.recording import Recording
from joulecast.metering.result import Metering
from joulecast.metering.samples import Samples


def test_power_readings_are_held_until_the_next_one():
    samples = Samples.of(np.array([0.0, 1.0, 2.0, 3.0]), power_w=np.array([10.0, 20.0, 30.0, 40.0]))
    joules, known = EnergyCurve.of(samples).between(np.array([0.0, 0.5]), np.array([3.0, 2.5]))
    assert joules.tolist() == [60.0, 40.0]  # 10 + 20 + 30, and 5 + 20 + 15
    assert known.all()


def test_time_without_readings_is_unknown_and_a_counter_that_stands_still_is_zero():
    slept = Samples.of(np.array([0.0, 1.0, 61.0, 62.0]), power_w=np.full(4, 10.0))
    joules, known = EnergyCurve.of(slept).between(0.0, 62.0)
    assert (joules, known) == (20.0, False)
    lost = Samples.of(np.arange(0.0, 5.0), energy_j=np.arange(0.0, 50.0, 10.0))
    assert EnergyCurve.of(lost).between(0.0, 4.0) == (40.0, True)
    assert not EnergyCurve.of(lost).between(0.0, 20.0)[1]
    for empty in (Samples.of(np.empty(0)), Samples.of(np.array([1.0, 2.0]))):
        assert EnergyCurve.of(empty).between(0.0, 1.0) == (0.0, False)
    still = Samples.of(np.array([0.0, 0.5, 1.0]), energy_j=np.full(3, 7.0))  # The counter of an idle device.
    assert EnergyCurve.of(still).between(0.0, 1.0) == (0.0, True)


def test_windows_without_counters_have_time_and_unknown_energy():
    # 6 s in "train", 2 of them in the window inside it; 10 s in all, so 4 s are in no window.
    windows = (("train.step", 1.0, 3.0), ("train", 0.0, 6.0))
    tree = Metering("program", (Recording("host", "", 0.0, 10.0, (), {}, windows),)).tree()
    train, step = tree.at("train"), tree.at("train.step")
    assert (train.own.time_s, train.total.time_s, step.own.time_s) == pytest.approx((4.0, 6.0, 2.0))
    assert tree.unattributed.time_s == pytest.approx(4.0)
    assert {train.own.source, step.own.source, tree.total.source} == {"missing"}
    assert "0 J" not in str(tree)
