"""The estimator against simulated sensors of known power: averaging, updates, quantization, polls."""

from __future__ import annotations

import numpy as np
import pytest

from joulecast.errors import InputError
from joulecast.profiling.power import Samples, estimate

STEP_S = 1e-3
IDLE_W = 60.0
# Averaging window, power update, sampled share of each update period, counter update: seconds. The classes of
# Yang et al. (arXiv 2312.02741) and NVML's documentation.
SENSORS = {
    "volta": (0.02, 0.02, 1.0, 0.02),
    "ga100": (0.1, 0.1, 0.25, 0.1),
    "ampere-ada": (1.0, 0.1, 1.0, 0.1),
    "hopper-average": (1.0, 0.1, 1.0, 0.05),
    "hopper-instant": (0.025, 0.025, 1.0, 0.05),
}


def simulate(sensor: str, load_w: float, duration_s: float, *, seed: int = 0, counter: bool = True):
    """Samples of a loop between 2 s of idling on both sides, and the mean power that it truly drew."""
    window_s, update_s, share, counter_s = SENSORS[sensor]
    rng = np.random.default_rng(seed)
    time_s = np.arange(0, duration_s + 4, STEP_S)
    running = (time_s >= 2) & (time_s < 2 + duration_s)
    # A loop of kernels ripples faster than any sensor, and warms up a little.
    ripple = 1 + 0.1 * np.sign(np.sin(2 * np.pi * 37 * time_s)) + 0.02 * rng.standard_normal(time_s.size)
    true_w = np.where(running, load_w * ripple * (1 + 0.002 * (time_s - 2)), IDLE_W)
    energy_j = np.cumsum(true_w) * STEP_S
    averaged = np.array(
        [true_w[max(0, i - round(share * window_s / STEP_S)) : i + 1].mean() for i in range(time_s.size)]
    )
    held = (np.floor(time_s / update_s) * update_s / STEP_S).astype(int)
    power_w = np.round(averaged[held], 3)
    counted = (np.floor((time_s + 0.007) / counter_s) * counter_s / STEP_S).astype(int)
    counter_j = np.round(energy_j[np.minimum(counted, time_s.size - 1)], 3) if counter else np.full(time_s.size, np.nan)
    polls = np.sort(rng.choice(time_s.size, time_s.size // 10, replace=False))
    nothing = np.full(polls.size, np.nan)
    samples = Samples(time_s[polls], power_w[polls], counter_j[polls], nothing, nothing, nothing)
    return samples, float(true_w[running].mean())


def naive_w(samples: Samples) -> float:
    """The mean of all polls from the loop's start on, as scripts do that stop polling a second late."""
    return float(np.mean(samples.power_w[(samples.time_s >= 2)][:-200]))


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("duration_s", [3.0, 10.0])
@pytest.mark.parametrize("load_w", [90.0, 300.0])
def test_power_within_one_percent_of_the_truth(sensor, duration_s, load_w):
    samples, true_w = simulate(sensor, load_w, duration_s)
    found = estimate(samples, 2.0, 2.0 + duration_s)
    assert found.power_w == pytest.approx(true_w, rel=0.01)


@pytest.mark.parametrize("sensor", ["ampere-ada", "hopper-average"])
def test_the_naive_mean_is_far_off_on_slow_sensors(sensor):
    samples, true_w = simulate(sensor, 300.0, 3.0)
    assert naive_w(samples) / true_w < 0.9
    assert estimate(samples, 2.0, 5.0).power_w == pytest.approx(true_w, rel=0.01)


@pytest.mark.parametrize("sensor", SENSORS)
def test_without_a_counter_the_readings_are_integrated(sensor):
    samples, true_w = simulate(sensor, 250.0, 5.0, counter=False)
    found = estimate(samples, 2.0, 7.0)
    assert found.counter_w is None
    assert found.power_w == pytest.approx(true_w, rel=0.01)
    assert "no energy counter" in found.remarks


def test_disagreement_is_flagged():
    samples, _ = simulate("volta", 250.0, 5.0)
    low = Samples(
        samples.time_s,
        0.7 * samples.power_w,
        *(getattr(samples, n) for n in ("energy_j", "clock_mhz", "temperature_c", "throttled")),
    )
    found = estimate(low, 2.0, 7.0)
    assert any("differ by" in remark for remark in found.remarks)
    assert not estimate(samples, 2.0, 7.0).remarks


def test_missing_is_missing():
    nothing = np.full(5, np.nan)
    found = estimate(Samples(np.arange(5.0), *[nothing] * 5), 0.0, 4.0)
    assert found.power_w is None
    assert found.remarks == ("no power reading",)
    partly = Samples(np.arange(5.0), np.array([np.nan, 100, np.nan, 100, 100]), *[nothing] * 4)
    assert estimate(partly, 0.0, 4.0).power_w == pytest.approx(100.0)


def test_three_sigma_drops_a_spike():
    power_w = np.full(1000, 100.0)
    power_w[500] = 5000.0
    nothing = np.full(1000, np.nan)
    samples = Samples(np.linspace(0, 10, 1000), power_w, *[nothing] * 4)
    assert estimate(samples, 0, 10, three_sigma=True).power_w == pytest.approx(100.0)
    assert estimate(samples, 0, 10).power_w > 104


def test_throttling_and_clock_are_told():
    n = 100
    samples = Samples(
        np.linspace(0, 4, n), np.full(n, 300.0), np.full(n, np.nan), np.full(n, 1400.0), np.full(n, 61.0), np.ones(n)
    )
    found = estimate(samples, 0.0, 4.0)
    assert (found.clock_mhz, found.temperature_c) == (1400.0, 61.0)
    assert "throttled for 100 % of the time" in found.remarks


def test_samples_must_be_in_order():
    with pytest.raises(InputError, match="order"):
        Samples(np.array([1.0, 0.0]), *[np.full(2, 1.0)] * 5)
    with pytest.raises(InputError, match="ends after"):
        estimate(Samples(np.arange(3.0), *[np.full(3, 1.0)] * 5), 2.0, 2.0)
