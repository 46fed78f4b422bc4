"""A whole campaign on the simulated driver: clocks, sensor, journal, datasets and summary; and how it stops."""

import json

import pytest

from joulecast import Network, Operation
from joulecast.datasets import load

# PyTorch computes on the CPU; power, clocks and temperature are those of the simulated GPU.
SCRIPT = """
import os, sys, time

# (the sampler, a spawned process that imports this file, too, needs none of it)
if __name__ == "__main__":
    from joulecast.profiling import command, devices, session, summary
    from joulecast.metering.sampler import nvidia_smi_sensor
    from joulecast.metering.sampler import nvml_sensor

    session.IDLE_S = 0.5
    if "--plain" in sys.argv:  # for tests that do not look at plots
        sys.argv.remove("--plain")
        summary.write_summary = lambda journal, folder: folder
    devices.sensor_of = lambda device, period_s=0.01: nvml_sensor(0, period_s)
    devices.second_sensor_of = lambda device: nvidia_smi_sensor(0)
    devices.clocks_of = lambda device: devices.Clocks(0)
    # What happens in the third measurement: the job is terminated, or the GPU falls off the bus.
    lost = os.environ.get("FAKE_NVML_LOST_FILE", "")
    events = {"interrupt": lambda: os.kill(os.getpid(), 15), "lose": lambda: open(lost, "w")}
    if sys.argv[-1] in events:
        happen, real, calls = events[sys.argv.pop()], session.measure, []
        def measure(*arguments):
            calls.append(1)
            if len(calls) == 3:
                happen()
            return real(*arguments)
        session.measure = measure
    print(command.collect(sys.argv[1:]))
"""


@pytest.fixture
def session(on_driver, tmp_path):
    Network.of([(Operation("relu", [(n, 64)]), 1) for n in (8,)]).save(tmp_path / "net.json")
    campaign = tmp_path / "sweep.toml"
    campaign.write_text(
        f'seconds = 0.03\nrepeats = 2\nclocks = ["default", 900]\n[[network]]\nmodel = "{tmp_path / "net.json"}"\n'
    )

    def run(*options, **settings):
        settings = {"FAKE_NVML_AVERAGING_MS": 50, **settings}  # A measurement takes several times as long.
        return on_driver(SCRIPT, str(campaign), "--out", str(tmp_path / "out"), "--device", "cpu", *options, **settings)

    return run


def records(tmp_path):
    return [json.loads(line) for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()[1:]]


def test_a_campaign_over_two_clocks(session, tmp_path):
    result = session("--seconds", "0.15")
    assert "4 measurements, 0 failed" in result.stdout, result.stderr
    out = tmp_path / "out"
    default, locked = load(out / "default-clock"), load(out / "900-mhz")
    assert (default.card.clock_mhz, locked.card.clock_mhz) == (None, 900)
    assert {m.clock_mhz for m in locked.measurements} == {900}
    assert {m.clock_mhz for m in default.measurements} == {1410}
    assert (tmp_path / "clock").read_text() == "0"
    assert locked.card.idle_power_w is not None

    first, last = (record for record in records(tmp_path) if record["status"] == "session")
    assert first["idle"]["power_w"] == pytest.approx(last["idle"]["power_w"], rel=0.1)
    for m in default.measurements:
        error_j = ((m.power_w * m.time_std_s) ** 2 + (m.time_s * m.power_std_w) ** 2) ** 0.5
        assert m.energy_std_j == pytest.approx(error_j)

    summary = (out / "SUMMARY.md").read_text()
    assert "NVML" in summary
    for plot in ("traces", "iterations", "repeats"):
        assert (out / f"summary-{plot}.png").read_bytes().startswith(b"\x89PNG")
        assert f"summary-{plot}.png" in summary


def test_terminated_it_stops_cleanly_and_resumes(session, tmp_path):
    result = session("--plain", "interrupt")
    assert "stopped; go on with --resume" in result.stderr
    assert "2 measurements, 0 failed" in result.stdout
    assert [r["status"] for r in records(tmp_path)] == ["session", "ok", "ok", "session"]
    assert "4 measurements, 0 failed" in session("--plain", "--resume").stdout
    done = [record["key"] for record in records(tmp_path)]
    assert len(done) == len(set(done)) == 8
    assert (tmp_path / "clock").read_text() == "0"


def test_a_gpu_that_disappears_loses_nothing(session, tmp_path):
    result = session("--plain", "lose", FAKE_NVML_LOST_FILE=tmp_path / "lost")
    assert "the power sensor was lost" in result.stderr
    assert [r["status"] for r in records(tmp_path)] == ["session", "ok", "ok"]
