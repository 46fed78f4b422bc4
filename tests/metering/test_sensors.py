"""Sensors: NVML through the real nvidia-ml-py on a simulated driver, nvidia-smi and powercap.

These tests look at which reading goes where. The accuracy of estimates is tested in simulated time (test_accuracy.py,
test_estimate.py), because a busy machine reads sensors late.
"""

import json
import time

import pytest
from waiting import until

from joulecast.errors import SensorError
from joulecast.metering import Sensor, estimate
from joulecast.metering.sampler import powercap_sensor

LOOK = """
import json, sys, time
from joulecast.metering import estimate
from joulecast.metering.sampler import nvml_sensor
from joulecast.metering.sampler import nvidia_smi_sensor

if __name__ == "__main__":
    sensor = {"nvml": nvml_sensor, "smi": nvidia_smi_sensor}[sys.argv[1]]()
    schedule = sys.argv[2] if len(sys.argv) > 2 else None
    with sensor:
        if schedule:
            open(schedule, "w").write(f"{time.monotonic()} 250\\n")
        start_s = time.monotonic()
        time.sleep(1.2)  # the window that is measured
        end_s = time.monotonic()
        found = estimate(sensor.window(start_s, end_s), start_s, end_s, discard_s=0.2)
    print(json.dumps({"facts": sensor.facts, **vars(found)}))
"""


LATE = 0.05  # Relative error that late readings may cause.


def look(on_driver, sensor="nvml", *arguments, **settings):
    # The more often the counter is updated, the less it matters that some readings are late.
    result = on_driver(LOOK, sensor, *arguments, **{"FAKE_NVML_COUNTER_MS": 10, **settings})
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_nvml_reads_everything(on_driver):
    """Of a board that its power cap holds at 1200 of 1410 MHz, and that another process uses, too."""
    found = look(on_driver, FAKE_NVML_INSTANT=1, FAKE_NVML_REASONS=4, FAKE_NVML_PROCESSES=2)
    assert found["power_w"] == pytest.approx(200, rel=LATE)
    assert found["counter_w"] == found["power_w"]
    assert found["instant_w"] == pytest.approx(200, rel=1e-3)
    assert (found["clock_mhz"], found["memory_clock_mhz"], found["temperature_c"]) == (1200, 1215, 55)
    assert found["utilization"] == 1.0
    assert found["facts"]["device"] == "NVIDIA Simulated"
    assert (found["facts"]["power_limit_w"], found["facts"]["max_clock_mhz"]) == (300, 1410)
    assert found["warnings"] == ["throttled by the power cap for 100 % of the time", "1 other process on the device"]


def test_nvidia_smi_reads_what_it_can(on_driver):
    found = look(on_driver, "smi")
    assert found["power_w"] == pytest.approx(200, rel=0.01)
    assert found["counter_w"] is None
    assert (found["clock_mhz"], found["utilization"], found["temperature_c"]) == (1410, 1.0, None)  # "[N/A]"
    assert found["facts"]["driver"] == "999.1"
    assert found["warnings"] == ["no energy counter"]


@pytest.mark.parametrize(
    ("sensor", "settings", "says"),
    [
        *(("nvml", each, "the power of this GPU cannot be read") for each in ({"FAKE_NVML_INIT": 9}, {"nvml": False})),
        ("nvml", {"FAKE_NVML_LOST_AFTER_MS": 300}, "the power sensor was lost given:   GPU is lost"),
        ("smi", {"FAKE_NVML_INIT": 9}, "nvidia-smi failed"),
        ("smi", {"smi": False}, "nvidia-smi is not installed"),
        ("smi", {"FAKE_NVML_LOST_AFTER_MS": 600}, "the power sensor was lost given:   nvidia-smi: GPU is lost"),
    ],
    ids=["no driver", "no library", "lost", "smi without driver", "no smi", "smi loses it"],
)
def test_a_driver_or_gpu_that_is_not_there_is_one_error(on_driver, sensor, settings, says):
    result = on_driver(LOOK, sensor, **settings)
    assert result.returncode != 0
    assert says in result.stderr.replace("\n", " ")


@pytest.fixture
def zones(tmp_path):
    """Two packages, one with memory apart, and a zone that holds them all."""
    names = {"a:0": "package-0", "a:0:0": "core", "a:0:1": "dram", "a:1": "package-1", "p": "psys"}
    for zone, name in names.items():
        (tmp_path / zone).mkdir()
        for file, content in {"name": name, "energy_uj": 900_000, "max_energy_range_uj": 1_000_000}.items():
            (tmp_path / zone / file).write_text(f"{content}\n")
    return tmp_path


def test_powercap_adds_packages_and_memory_up_over_turning_counters(zones):
    def joules():
        energy_j = sensor.window(start_s, time.monotonic()).energy_j
        return energy_j[-1] - energy_j[0]

    with powercap_sensor(zones) as sensor:
        start_s = time.monotonic()
        # 0.05, 0.07 and 0.04 J more in each of three zones
        for energy_uj, total_j in ((950_000, 3 * 0.05), (20_000, 3 * 0.12), (60_000, 3 * 0.16)):
            for zone in zones.iterdir():
                (zone / "new").write_text(f"{energy_uj}\n")
                (zone / "new").replace(zone / "energy_uj")
            until(lambda total_j=total_j: joules() == pytest.approx(total_j), otherwise=lambda: f"{joules()} J")
    assert sensor.facts["sensor"] == "powercap: energy counters of 3 zones"


def test_a_campaign_reads_the_counters_where_the_environment_says_or_none(zones, monkeypatch):
    torch = pytest.importorskip("torch")
    from joulecast.profiling.devices import sensor_of

    monkeypatch.setenv("JOULECAST_POWERCAP", str(zones))
    assert "of 3 zones" in sensor_of(torch.device("cpu")).facts["sensor"]
    with Sensor() as sensor:
        assert sensor.facts == {"sensor": "none"}
        assert estimate(sensor.window(0.0, 1.0), 0.0, 1.0).power_w is None
    with pytest.raises(SensorError, match="no energy counter"):
        powercap_sensor(zones / "nothing")
    (zones / "a:0" / "energy_uj").unlink()  # It is removed, because root may read what is closed.
    with pytest.raises(SensorError, match="chmod a\\+r"):
        powercap_sensor(zones)
