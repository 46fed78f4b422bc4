"""The estimator against simulated sensors of known power: averaging, updates, quantization, polls."""

import numpy as np
import pytest

from conftest import benchmark
from joulecast.errors import InputError
from joulecast.metering import Samples, estimate

with benchmark("simulated_sensors") as simulated_sensors:
    BEFORE_S, SENSOR_CLASSES, simulate = (
        simulated_sensors.BEFORE_S,
        simulated_sensors.SENSOR_CLASSES,
        simulated_sensors.simulate,
    )


def measured(sensor, load_w, duration_s, **options):
    samples, true_w = simulate(SENSOR_CLASSES[sensor], load_w, duration_s, **options)
    return estimate(samples, BEFORE_S, BEFORE_S + duration_s), true_w


@pytest.mark.parametrize("sensor", SENSOR_CLASSES)
@pytest.mark.parametrize("duration_s", [3.0, 10.0])
@pytest.mark.parametrize("load_w", [90.0, 300.0])
def test_power_within_one_percent_of_the_truth(sensor, duration_s, load_w):
    for seed in range(10):
        found, true_w = measured(sensor, load_w, duration_s, seed=seed)
        assert found.power_w == pytest.approx(true_w, rel=0.01)
    # Without a counter, the readings are integrated.
    found, true_w = measured(sensor, load_w, duration_s, counter=False)
    assert found.power_w == pytest.approx(true_w, rel=0.02 if duration_s < 5 else 0.01)
    assert found.counter_w is None
    assert "no energy counter" in found.warnings


def test_disagreement_is_flagged():
    samples, _ = simulate(SENSOR_CLASSES["volta"], 250.0, 5.0)
    low = Samples.of(samples.time_s, power_w=0.7 * samples.power_w, energy_j=samples.energy_j)
    assert any("differ by" in warning for warning in estimate(low, 2.0, 7.0).warnings)
    assert not estimate(samples, 2.0, 7.0).warnings


def test_outliers_by_hand():
    """A reading held for 3 s counts as much as one of ten that were held for 0.1 s, and the outlier not at all."""
    time_s = np.array([0.0, *(3 + 0.1 * np.arange(10)), 4.0, 4.0, 4.001])
    power_w = np.array([100.0, *[200.0] * 10, 200.0, 5000.0, 200.0])
    samples = Samples.of(time_s, power_w=power_w)
    found, trimmed = (
        estimate(samples, 0.0, 4.01, discard_s=0.0, three_sigma=three_sigma) for three_sigma in (False, True)
    )
    assert found.nicolai_w == pytest.approx((100 + 12 * 200) / 13)
    assert found.three_sigma_w == pytest.approx((3 * 100 + 1.009 * 200) / 4.009, rel=1e-3)
    assert found.naive_w == pytest.approx((100 + 12 * 200 + 5000) / 14)
    assert trimmed.power_w == found.three_sigma_w != found.power_w


def test_missing_is_missing():
    found = estimate(Samples.of(np.arange(5.0)), 0.0, 4.0)
    assert found.power_w is None
    assert found.warnings == ("no power reading",)
    partly = Samples.of(np.arange(5.0), power_w=np.array([np.nan, 100, np.nan, 100, 100]))
    assert estimate(partly, 0.0, 4.0).power_w == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("readings", "warnings"),
    [
        ({"throttle_reasons": 4.0}, ["throttled by the power cap for 100 % of the time"]),
        ({"throttle_reasons": 0x40}, ["throttled by a hardware slowdown because of heat for 100 % of the time"]),
        ({"processes": 3.0}, ["2 other processes on the device"]),
        # Reason 1 is "idle", and one process is our own.
        ({"throttle_reasons": 1.0, "processes": 1.0}, []),
        # Of 20 degrees and 200 MHz, those of the first 1.5 s of 4 do not count.
        ({"temperature_c": np.linspace(40, 60, 100)}, ["temperature changed by +13 degrees"]),
        ({"clock_mhz": np.linspace(1400, 1200, 100)}, ["clock varied from 1200 to 1325 MHz"]),
    ],
)
def test_disturbances_give_warnings(readings, warnings):
    steady = {"power_w": 300.0, "instant_w": 310.0, "energy_j": 0.0, "clock_mhz": 1400.0, "temperature_c": 61.0}
    columns = {name: np.broadcast_to(values, 100).copy() for name, values in (steady | readings).items()}
    found = estimate(Samples.of(np.linspace(0, 4, 100), **columns), 0.0, 4.0)
    assert (found.power_w, found.instant_w) == (pytest.approx(300.0), pytest.approx(310.0))
    assert "clock_mhz" in readings or found.clock_mhz == 1400.0
    assert "temperature_c" in readings or found.temperature_c == 61.0
    assert {*found.warnings} == {"no energy counter", *warnings}


def test_a_trace_holds_what_the_estimator_sees():
    samples, true_w = simulate(SENSOR_CLASSES["hopper-average"], 250.0, 5.0)
    window = samples.between(2.0, 7.0)
    trace = window.trace(2.0)
    assert len(trace["time_s"]) < len(window) / 2
    again = Samples.of(*(np.array(trace[name]) for name in ("time_s",)), power_w=np.array(trace["power_w"]),
                       energy_j=np.array(trace["energy_j"]))  # fmt: skip
    assert estimate(again, 0.0, 5.0).power_w == pytest.approx(true_w, rel=0.01)


def test_samples_must_be_in_order():
    with pytest.raises(InputError, match="times of samples do not ascend"):
        Samples.of(np.array([1.0, 0.0]))
    with pytest.raises(InputError, match="end of the loop in seconds is out of range"):
        estimate(Samples.of(np.arange(3.0)), 2.0, 2.0)
