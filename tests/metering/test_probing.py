"""Traits of a sensor, found from its simulated answers to steps of load."""

import numpy as np
import pytest

from joulecast.metering import Samples
from joulecast.metering.estimate import traits_of

IDLE_W, LOAD_W = 60.0, 260.0
STEPS = [(1.5, 3.5), (5.0, 7.0), (8.5, 10.5)]


def answer(averaging_s, update_s, counter_s, *, load_w=LOAD_W):
    """A sensor that averages over a window and updates now and then, polled every millisecond."""
    time_s = np.arange(0, 10.5, 0.001)
    loaded = np.any([(time_s >= a) & (time_s < b) for a, b in STEPS], axis=0)
    true_w = np.where(loaded, load_w, IDLE_W)
    energy_j = np.concatenate([[0], np.cumsum(true_w) * 0.001])

    def at(t):
        return np.interp(t, np.arange(energy_j.size) * 0.001, energy_j)

    updates = np.floor(time_s / update_s)
    read_s = updates * update_s
    power_w = (at(read_s) - at(read_s - averaging_s)) / averaging_s + 0.001 * (updates % 3)
    power_w[read_s < averaging_s] = IDLE_W
    return Samples.of(time_s, power_w=power_w, energy_j=at(np.floor(time_s / counter_s) * counter_s))


@pytest.mark.parametrize(
    ("averaging_s", "update_s", "counter_s"),
    [(0.02, 0.02, 0.02), (0.025, 0.1, 0.1), (1.0, 0.1, 0.1), (1.0, 0.02, 0.05)],
)
def test_traits_of_a_sensor(averaging_s, update_s, counter_s):
    found = traits_of(answer(averaging_s, update_s, counter_s), STEPS)
    assert found.power_update_s == pytest.approx(update_s, abs=0.002)
    assert found.counter_update_s == pytest.approx(counter_s, abs=0.002)
    assert found.averaging_s == pytest.approx(averaging_s, abs=update_s)


def test_without_a_step_in_power_there_is_nothing_to_tell():
    found = traits_of(answer(1.0, 0.1, 0.1, load_w=IDLE_W), STEPS)
    assert found.averaging_s is None
    nothing = traits_of(Samples.of(np.arange(5.0)), STEPS)
    assert (nothing.power_update_s, nothing.counter_update_s, nothing.averaging_s) == (None, None, None)
