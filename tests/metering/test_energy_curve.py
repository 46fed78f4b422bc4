"""Joules between two moments: those of known loads are found, and time without readings never counts as zero."""

import numpy as np
import pytest

from joulecast.metering.energy_curve import EnergyCurve
from joulecast.metering.samples import Samples

LOADS = {
    "constant": lambda t: np.full_like(t, 200.0),
    "ramp": lambda t: 50 + 10 * t % 300,
    "bursts": lambda t: np.where(t % 0.8 < 0.3, 300.0, 60.0),
}


def polled(load, length_s, counter_s=0.05, period_s=0.1, resolution_j=1e-3):
    """A counter with steps and updates, polled, and the energy of the load up to any moment."""
    fine_s = np.arange(0, length_s + 4, 1e-3)
    energy_j = np.concatenate([[0.0], np.cumsum(load(fine_s))[:-1] * 1e-3])
    polls_s = np.arange(0.003, length_s + 3, period_s)
    seen = np.floor(polls_s / counter_s) * counter_s
    counted = np.floor(np.interp(seen, fine_s, energy_j) / resolution_j) * resolution_j
    power = np.interp(polls_s, fine_s, load(fine_s))
    return Samples.of(polls_s, energy_j=counted), Samples.of(polls_s, power_w=power), fine_s, energy_j


@pytest.mark.parametrize("load", LOADS, ids=str)
@pytest.mark.parametrize("length_s", [1.0, 10.0, 600.0], ids="{:g} s".format)
def test_a_counter_gives_the_joules_of_any_load_within_a_percent(load, length_s):
    samples, _, fine_s, energy_j = polled(LOADS[load], length_s, period_s=0.05)
    joules, known = EnergyCurve.of(samples).between(1.0, 1.0 + length_s)
    true_j = np.interp(1.0 + length_s, fine_s, energy_j) - np.interp(1.0, fine_s, energy_j)
    assert known
    assert joules == pytest.approx(true_j, rel=0.01)


def test_power_readings_are_held_until_the_next_one():
    samples = Samples.of(np.array([0.0, 1.0, 2.0, 3.0]), power_w=np.array([10.0, 20.0, 30.0, 40.0]))
    joules, known = EnergyCurve.of(samples).between(np.array([0.0, 0.5]), np.array([3.0, 2.5]))
    assert joules.tolist() == [60.0, 40.0]  # 10 + 20 + 30, and 5 + 20 + 15
    assert known.all()


def test_a_counter_that_starts_again_is_bridged_by_power_readings():
    time_s = np.arange(0.0, 1.1, 0.1)
    counter = np.array([100, 110, 120, 130, 140, 2, 12, 22, 32, 42, 52], dtype=float)  # 100 W, reset near 0.5 s
    with_power = Samples.of(time_s, energy_j=counter, power_w=np.full(11, 100.0))
    joules, known = EnergyCurve.of(with_power).between(0.0, 1.0)
    assert (joules, known) == (pytest.approx(100.0), True)
    joules, known = EnergyCurve.of(Samples.of(time_s, energy_j=counter)).between(0.0, 1.0)
    assert (joules, known) == (pytest.approx(90.0), False)  # A tenth of a second is unknown, and the result says so.


def test_time_without_readings_is_unknown():
    slept = Samples.of(np.array([0.0, 1.0, 61.0, 62.0]), power_w=np.full(4, 10.0))
    joules, known = EnergyCurve.of(slept).between(0.0, 62.0)
    assert (joules, known) == (20.0, False)
    lost = Samples.of(np.arange(0.0, 5.0), energy_j=np.arange(0.0, 50.0, 10.0))
    assert EnergyCurve.of(lost).between(0.0, 4.0) == (40.0, True)
    assert not EnergyCurve.of(lost).between(0.0, 20.0)[1]


def test_without_readings_nothing_is_known():
    for empty in (Samples.of(np.empty(0)), Samples.of(np.array([1.0, 2.0]))):
        joules, known = EnergyCurve.of(empty).between(0.0, 1.0)
        assert (joules, known) == (0.0, False)


def test_an_idle_counter_that_does_not_move_is_zero_and_known():
    still = Samples.of(np.array([0.0, 0.5, 1.0]), energy_j=np.full(3, 7.0))
    assert EnergyCurve.of(still).between(0.0, 1.0) == (0.0, True)
