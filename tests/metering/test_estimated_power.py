"""Estimates of power where nothing can be read: from utilization and data sheets, never mixed with measured power."""

import json
import os
import subprocess
import sys

import pytest

from joulecast.energy import EnergyTree
from joulecast.errors import InputError, SensorError
from joulecast.hardware import find_gpu
from joulecast.metering.estimated_power import open_cpu_reader, thread_power
from joulecast.metering.machine import find_machine

MEASURE = """
import json, threading
from joulecast.metering.meter import Meter
with Meter(interval_s=0.02) as meter:
    with meter.window("part"):
        threading.Event().wait(0.3)
print(json.dumps(meter.result().to_dict()))
print(meter.result())
"""
CPUINFO = (
    "processor\t: {}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {}\nmodel name\t: Intel(R) Xeon(R)\n\n"
)


def measured(tmp_path, **environment):
    """A measurement in a process that finds neither powercap nor perf."""
    hidden = {"JOULECAST_POWERCAP": str(tmp_path), "PATH": str(tmp_path), **environment}
    result = subprocess.run(
        [sys.executable, "-c", MEASURE], env={**os.environ, **hidden}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    report, line = result.stdout.strip().splitlines()
    return json.loads(report), line


def test_a_cpu_draws_between_idle_and_busy_in_proportion_to_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    ticks = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"

    def busy(seconds):  # user, nice, system, idle, waiting, interrupts, soft ones, stolen
        stat.write_text(f"cpu  {int(seconds * ticks / 2)} 0 {int(seconds * ticks / 2)} 77 5 0 0 9 0 0\n")

    busy(100)
    read = open_cpu_reader(idle_w=10, busy_w=50, stat=str(stat))
    first = read()
    busy(108)  # eight seconds of four threads: two seconds of the whole machine
    second = read()
    idle_j = 10 * (second["time_s"] - first["time_s"])
    assert second["energy_j"] - first["energy_j"] == pytest.approx(idle_j + 40 * 2)


def test_watts_of_a_thread_are_those_of_servers_with_this_processor(tmp_path):
    listed = tmp_path / "cpuinfo"
    listed.write_text(CPUINFO.format(0, 85) + CPUINFO.format(1, 85))
    power = thread_power(listed)
    # kepler: (0.645 + 0.639) / 2 and (4.193 + 3.967) / 2
    assert (power["idle_w"], power["busy_w"]) == (0.64, 4.08)
    listed.write_text(CPUINFO.format(0, 999))
    assert thread_power(listed)["generation"] == "servers of 2017 to 2019"
    assert thread_power(tmp_path / "none") == thread_power(listed)
    with pytest.raises(SensorError, match="busy cannot be read"):
        open_cpu_reader(1, 2, str(tmp_path / "none"))
    assert [device.name for device in find_machine(("estimate",)).devices][:1] == ["cpu-estimate"]
    with pytest.raises(InputError, match="stands alone"):
        find_machine(("cpu", "estimate"))


def test_a_machine_without_sensors_gets_an_estimate_that_says_so(tmp_path):
    found, line = measured(tmp_path)
    (device,) = found["devices"]
    assert (device["name"], device["method"], found["source"]) == ("cpu-estimate", "modelled", "modelled")
    assert device["idle_j"] is None
    power, threads = thread_power(), os.cpu_count()
    least_j, most_j = (threads * watts * found["duration_s"] for watts in (power["idle_w"], power["busy_w"]))
    assert 0.9 * least_j < found["energy_j"] < 1.1 * most_j + 0.01 * threads * power["busy_w"]
    assert {figure["source"] for row in found["tree"]["rows"] for figure in row["energy_j"]} == {"modelled"}
    assert "estimated, not measured" in line


def test_with_a_sensor_nothing_is_estimated(driver, tmp_path):
    found, line = measured(tmp_path, LD_LIBRARY_PATH=str(driver))
    assert [device["name"] for device in found["devices"]] == ["gpu0"]
    assert found["source"] == "measured"
    assert "estimated" not in line


def test_a_gpu_that_states_no_power_is_estimated_from_its_data_sheet(driver, tmp_path):
    """The simulated GPU always runs kernels, so it is at its cap."""
    settings = {"FAKE_NVML_POWER": "0", "FAKE_NVML_COUNTER_MS": "0", "FAKE_NVML_NAME": "NVIDIA A30"}
    found, _ = measured(tmp_path, LD_LIBRARY_PATH=str(driver), **settings)
    gpu = next(device for device in found["devices"] if device["name"] == "gpu0-estimate")
    assert gpu["method"] == "modelled"
    assert gpu["mean_w"] == pytest.approx(find_gpu("A30").power_limit_w, rel=0.02)
    assert any("states no power" in note for note in found["notes"])


def test_estimated_joules_are_not_compared_with_a_prediction(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from joulecast.accounting.account import account

    monkeypatch.setenv("JOULECAST_POWERCAP", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = account(torch.nn.Linear(8, 8), (4, 8), loop_s=0.1, profiled_iterations=1)
    assert found.estimated
    assert not found.measured
    assert found.energy_j is not None
    assert "estimated, not measured" in str(found)
    assert "estimated from utilization and data sheets, not measured" in found.notes[0]
    with pytest.raises(InputError, match="no joules were measured"):
        found.compare(EnergyTree.of("prediction", []))
