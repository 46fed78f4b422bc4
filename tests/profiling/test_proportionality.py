"""Nicolai's check that time is proportional to iterations, against loops of a known law."""

import numpy as np
import pytest
import torch

from joulecast import Operation
from joulecast.errors import InputError
from joulecast.metering import Sensor
from joulecast.metering.samples import Samples
from joulecast.profiling.campaign import Campaign, Subject, Task, duration_s, lengths, proportionality
from joulecast.profiling.session import measure
from joulecast.profiling.timing import time_operation

COUNTS = [10 * 2**power for power in range(14)]
WIGGLE = [1.001, 0.999] * 7  # Noise, so that there is a deviation to compare with.


def loops(each_s):
    return [(count, each_s * count * wiggle) for count, wiggle in zip(COUNTS, WIGGLE, strict=True)]


def test_a_proportional_loop_has_slope_one_and_no_outliers():
    found = proportionality(loops(1e-4))
    assert found.slope == pytest.approx(1, abs=1e-3)
    assert found.deviation == pytest.approx(0.001 / 2.302585, rel=0.1)  # in decades
    assert found.outliers_s == ()
    assert found.doubts(0.0) == ()
    assert proportionality(loops(1e-4)[::-1]) == found  # The order of the loops does not matter.


def test_a_start_that_takes_long_is_an_outlier_of_the_shortest_loops():
    # The start doubles the two shortest loops alone; these are not fitted.
    measured = [(count, 2 * seconds if count <= 20 else seconds) for count, seconds in loops(1e-4)]
    found = proportionality(measured)
    assert found.outliers_s == pytest.approx([2e-3, 4e-3], rel=0.01)
    assert found.doubts(0.1) == ()
    assert found.doubts(0.0) == ("time is not proportional to iterations in loops of up to 0.004 s",)


def test_lengths_reach_the_wanted_duration():
    found = lengths(7, 2.0)
    assert (found[0], found[-1]) == pytest.approx((0.002, 2.0))
    assert found[1] / found[0] == pytest.approx(1000 ** (1 / 6))
    assert lengths(0, 2.0) == []


def test_a_measurement_with_many_lengths_and_a_standard_error():
    operation = Operation("linear", [(64, 64)], {"out_features": 64})
    timing = time_operation(operation, torch.device("cpu"), seconds=0.1, loop_lengths=8, floor_s=1e6)
    assert len(timing.loops) > 3  # of eight, because equal lengths are measured once
    assert 0 < timing.time_std_s < timing.time_s
    assert any("less than the floor of 1e+06 s" in warning for warning in timing.warnings)
    # The parts of the loop add up to what it took, less what other programs took from it.
    assert timing.time_s * timing.iterations <= 1.01 * (timing.end_s - timing.start_s)


class Steady(Sensor):
    """A sensor that reads the same power all the time."""

    def __init__(self, power_w):
        super().__init__()
        self._power_w = power_w

    def window(self, start_s, end_s):
        time_s = np.linspace(start_s, end_s, 5)
        return Samples.of(time_s, power_w=np.full(5, self._power_w))


@pytest.mark.parametrize(("second_w", "says"), [(101.0, None), (110.0, "the second log differs by +10.0 %")])
def test_the_second_log_checks_the_first(second_w, says):
    task, campaign = Task(Operation("relu", [(8, 8)]), 0), Campaign((Subject("x"),), seconds=0.01)
    record = measure(task, campaign, torch.device("cpu"), Steady(100.0), Steady(second_w))
    assert record["power"]["power_w"] == pytest.approx(100.0)
    assert record["second_log"]["power_w"] == pytest.approx(second_w)
    assert [w for w in record["power"]["warnings"] if "second log" in w] == ([says] if says else [])


def test_settings_of_the_protocol():
    subjects = (Subject("resnet18", ((1, 3, 8, 8),)),)
    plain, checked = (Campaign(subjects, seconds=1.0, loop_lengths=number) for number in (0, 7))
    assert duration_s(checked, 1) - duration_s(plain, 1) == pytest.approx(sum(lengths(7, 1.0)))
    with pytest.raises(InputError, match="loop_lengths of a campaign"):
        Campaign(subjects, loop_lengths=3)
    with pytest.raises(InputError, match="floor_s of a campaign"):
        Campaign(subjects, seconds=1.0, floor_s=2.0)
    with pytest.raises(InputError, match="second_log of a campaign"):
        Campaign(subjects, second_log=1)
