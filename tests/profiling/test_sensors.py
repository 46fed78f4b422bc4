"""The NVML sensor: the real nvidia-ml-py on a simulated driver, in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml") / "nvml.c"

LOOK = """
import json, time
from joulecast.profiling.power import estimate
from joulecast.profiling.sensors import NvmlSensor

if __name__ == "__main__":
    with NvmlSensor() as sensor:
        start_s = time.monotonic()
        time.sleep(1.2)
        end_s = time.monotonic()
        found = estimate(sensor.window(start_s, end_s), start_s, end_s, discard_s=0.2)
    print(json.dumps({"facts": sensor.facts(), "power_w": found.power_w, "counter_w": found.counter_w,
                      "clock_mhz": found.clock_mhz, "temperature_c": found.temperature_c, "remarks": found.remarks}))
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the simulated driver needs a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SOURCE)], check=True)
    return folder


def look(driver, tmp_path, **settings):
    # A file, because the sampler is a spawned process that imports its parent's main module.
    script = tmp_path / "look.py"
    script.write_text(LOOK)
    library_path = "" if driver is None else str(driver)
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path, **{k: str(v) for k, v in settings.items()}}
    return subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)


def test_power_of_a_simulated_gpu(driver, tmp_path):
    result = look(driver, tmp_path, FAKE_NVML_POWER_W=231)
    found = json.loads(result.stdout)
    assert found["power_w"] == pytest.approx(231, rel=0.01)
    assert found["counter_w"] == found["power_w"]
    assert (found["clock_mhz"], found["temperature_c"]) == (1410, 55)
    assert found["facts"]["device"] == "NVIDIA Simulated"
    assert found["facts"]["power_limit_w"] == 300
    assert found["remarks"] == []


def test_without_a_counter(driver, tmp_path):
    found = json.loads(look(driver, tmp_path, FAKE_NVML_COUNTER=0).stdout)
    assert found["counter_w"] is None
    assert found["power_w"] == pytest.approx(200, rel=0.01)
    assert "no energy counter" in found["remarks"]


def test_a_slow_reading_is_flagged_against_the_counter(driver, tmp_path):
    found = json.loads(look(driver, tmp_path, FAKE_NVML_WINDOW_MS=5000).stdout)
    assert found["power_w"] == pytest.approx(200, rel=0.01)
    assert any("differ by" in remark for remark in found["remarks"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"FAKE_NVML_INIT": 9}, "the power of this GPU cannot be read"),
        ({"FAKE_NVML_LOST_AFTER_MS": 300}, "the power sensor was lost"),
    ],
)
def test_a_driver_or_gpu_that_is_not_there_is_one_error(driver, tmp_path, settings, says):
    result = look(driver, tmp_path, **settings)
    assert result.returncode != 0
    assert f"SensorError: {says}" in result.stderr


def test_no_driver_at_all(tmp_path):
    result = look(None, tmp_path)
    assert "the power of this GPU cannot be read" in result.stderr
