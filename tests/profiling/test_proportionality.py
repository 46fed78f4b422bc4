"""Nicolai's check that time is proportional to iterations, against loops of a known law."""

import numpy as np
import pytest
import torch

from joulecast import Operation
from joulecast.errors import InputError
from joulecast.metering import Sensor
from joulecast.metering.samples import Samples
from joulecast.profiling.campaign import Campaign, Subject, Task, duration_s, lengths, outliers_s
from joulecast.profiling.session import measure
from joulecast.profiling.timing import time_operation

COUNTS = [10 * 2**power for power in range(14)]
WIGGLE = [1.001, 0.999] * 7  # Noise, so that there is a deviation to compare with.


def loops(each_s):
    return [(count, each_s * count * wiggle) for count, wiggle in zip(COUNTS, WIGGLE, strict=True)]


def test_a_start_that_takes_long_makes_outliers_of_the_shortest_loops():
    assert outliers_s(loops(1e-4)) == []
    # The start doubles the two shortest loops alone; these are not fitted.
    measured = [(count, 2 * seconds if count <= 20 else seconds) for count, seconds in loops(1e-4)]
    assert outliers_s(measured) == outliers_s(measured[::-1]) == pytest.approx([2e-3, 4e-3], rel=0.01)
    # The noise is 0.1 %, so 0.4 % are within five deviations, and 0.8 % are not.
    for more, number in ((0.004, 0), (0.008, 1)):
        assert len(outliers_s([(10, (1 + more) * 1e-3), *loops(1e-4)[1:]])) == number


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
    found = lengths(7, 2.0)
    assert (found[0], found[-1]) == pytest.approx((0.002, 2.0))
    assert found[1] / found[0] == pytest.approx(1000 ** (1 / 6))
    assert lengths(0, 2.0) == []
    subjects = (Subject("resnet18", ((1, 3, 8, 8),)),)
    plain, checked = (Campaign(subjects, seconds=2.0, loop_lengths=number) for number in (0, 7))
    assert duration_s(checked, 1) - duration_s(plain, 1) == pytest.approx(sum(found))
    for name, value in (("loop_lengths", 3), ("floor_s", 2.0), ("second_log", 1)):
        with pytest.raises(InputError, match=f"{name} of a campaign"):
            Campaign(subjects, seconds=1.0, **{name: value})
