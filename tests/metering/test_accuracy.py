"""Known joules come back through the sampler's own loop, a recording and its reading, on a clock that is simulated.

Nothing sleeps: ten minutes pass in a second, and the counters have their exact values at the moment they are read.
"""

import math
import time
from dataclasses import asdict

import numpy as np
import pytest

from joulecast.errors import SensorError
from joulecast.metering.cpu import open_zones
from joulecast.metering.polling import PolledDevice, Recorder, poll
from joulecast.metering.recording import DeviceInfo, Writer, read_recording
from joulecast.metering.result import Metering

START_S = 1000.0
BEFORE_S = 0.7371  # Seconds without load before and after the load.
IDLE_W = 40.0
READING_S = 2e-4  # Seconds that a reading takes; sometimes one is delayed.


def bursts_j(t):
    """300 W for 0.3 s of every 0.8 s, 60 W for the rest, from the middle of a burst on."""
    since = t + 0.2
    return 60.0 * since + 240.0 * (since // 0.8 * 0.3 + min(since % 0.8, 0.3)) - (0.2 * 300.0)


# Joules after so many seconds of a load of a length.
LOADS = {
    "constant": lambda t, length_s: 200.0 * t,
    "ramp": lambda t, length_s: 60.0 * t + 240.0 * t * t / (2 * length_s),
    "bursts": lambda t, length_s: bursts_j(t),
}


@pytest.fixture(autouse=True)
def without_disk(monkeypatch):
    """Writing to disk is not waited for. For 600 blocks it would take longer than everything else."""
    monkeypatch.setattr("os.fsync", lambda _: None)


class Machine:
    """A clock, a load between two times of idling, and requests as a meter sends them."""

    def __init__(self, load, length_s, seed=0):
        self.now_s, self.load, self.length_s = START_S, LOADS[load], length_s
        self.dice = np.random.default_rng(seed)
        self.start_s = START_S + BEFORE_S
        self.end_s = self.start_s + length_s
        self.ended = False
        self.requests = [
            (self.start_s, {"do": "mark"}),
            (self.end_s, {"do": "mark"}),
            (self.end_s, {"do": "windows", "windows": [["load", self.start_s, self.end_s]]}),
            (self.end_s + BEFORE_S, {"do": "end", "exit_code": 0}),
        ]

    def clock(self):
        return self.now_s

    def wait(self, seconds):
        until_s = self.now_s + seconds
        if not self.requests or self.requests[0][0] > until_s:
            self.now_s = until_s
            return []
        self.now_s = max(self.now_s, self.requests[0][0])
        due = [request for at_s, request in self.requests if at_s <= self.now_s]
        self.requests = self.requests[len(due) :]
        return due

    def rest(self, seconds):
        self.now_s += max(0.0, seconds)

    def pass_reading(self):
        self.now_s += READING_S + (0.02 if self.dice.random() < 0.005 else 0.0)

    def energy_j(self, at_s):
        """Joules from the start to a moment."""
        before_s = min(at_s, self.start_s) - START_S
        after_s = max(0.0, at_s - self.end_s)
        loaded_s = min(max(0.0, at_s - self.start_s), self.length_s)
        return IDLE_W * (before_s + after_s) + (self.load(loaded_s, self.length_s) if loaded_s else 0.0)


def counter(machine, update_s, factor=1.0, resolution_j=1e-3):
    """A reader of a counter with an update period, as GPUs have them."""

    def read():
        machine.pass_reading()
        seen_s = math.floor(machine.now_s / update_s) * update_s
        return {"energy_j": math.floor(factor * machine.energy_j(max(START_S, seen_s)) / resolution_j) * resolution_j}

    return read


def perf(machine):
    """A reader that waits for the next line of `perf stat -I 100`."""
    lines = iter(range(1, 10**6))

    def read():
        at_s = max(START_S + 0.1 * next(lines), machine.now_s)
        machine.now_s = at_s
        return {"time_s": at_s, "energy_j": machine.energy_j(at_s)}

    return read


class Package:
    """A package as Linux shows it: a file that holds the counter's value at the moment it is read, and starts again."""

    def __init__(self, machine, folder, range_j=150.0):
        self.machine, self.range_j = machine, range_j
        self.zone = folder / "intel-rapl:0"
        self.zone.mkdir()
        (self.zone / "max_energy_range_uj").write_text(f"{range_j * 1e6:.0f}")
        (self.zone / "energy_uj").touch()
        self.write()
        self.read_zone = open_zones([str(self.zone)])

    def write(self):
        seen_s = math.floor(self.machine.now_s / 1e-3) * 1e-3
        joules = (self.range_j - 5.0 + self.machine.energy_j(max(START_S, seen_s))) % self.range_j
        # Without truncating the file first, which would take longer.
        with (self.zone / "energy_uj").open("r+b") as file:
            file.write(f"{joules * 1e6:012.0f}".encode())

    def __call__(self):
        self.machine.pass_reading()
        self.write()
        return self.read_zone()


def metered(machine, readers, path, *, waits=(), period_s=0.1):
    """The recording that the sampler's loop makes of some readers."""
    devices = [PolledDevice(n, read, waits=n in waits, clock=machine.clock) for n, read in readers.items()]
    for device in devices:
        device.poll()
    header = {
        "host": "simulated",
        "started": "2026-01-01T00:00:00+00:00",
        "wall_offset_s": 0.0,
        "program": [],
        "devices": [asdict(DeviceInfo(name, "board")) for name in readers],
        "absent": [],
        "start_s": machine.now_s,
    }
    with Writer(path, header) as writer:
        poll(devices, Recorder(writer, devices, None, machine.clock), period_s, machine, machine.clock)
    return Metering("simulated", (read_recording(path),))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("length_s", [1.0, 10.0, 600.0], ids="{:g} s".format)
def test_joules_of_a_load_come_back_within_a_percent(load, length_s, tmp_path):
    machine = Machine(load, length_s)
    readers = {
        "cpu0": Package(machine, tmp_path),
        "gpu0": counter(machine, 0.02),
        "gpu1": counter(machine, 0.05, factor=2),
        "gpu2": counter(machine, 0.1, factor=3),
        "gpu3": counter(machine, 1e-3, resolution_j=15.3e-6),  # AMD's ticks
    }
    found = metered(machine, readers, tmp_path / "r.jsonl")
    expected_j = LOADS[load](length_s, length_s)
    window = found.tree().at("load").total
    factors = {"cpu0": 1, "gpu0": 1, "gpu1": 2, "gpu2": 3, "gpu3": 1}
    # The load begins with the last 0.1 s of a burst: a counter that moves every 0.1 s cannot tell what is so short.
    errors = dict.fromkeys(factors, 0.01) | ({"gpu2": 0.05} if (load, length_s) == ("bursts", 1.0) else {})
    got = {name: window.on(name).energy_j / factor / expected_j for name, factor in factors.items()}
    assert got == {name: pytest.approx(1, abs=errors[name]) for name in factors}
    whole_j = machine.energy_j(found.recordings[0].end_s) - machine.energy_j(found.recordings[0].start_s)
    for device in found.devices:
        assert device.complete
        assert device.energy_j == pytest.approx(factors[device.device.name] * whole_j, rel=0.01)


@pytest.mark.parametrize("load", LOADS)
def test_perf_and_power_readings_without_a_counter(load, tmp_path):
    machine = Machine(load, 10.0)

    def power():
        machine.pass_reading()
        return {"power_w": (machine.energy_j(machine.now_s) - machine.energy_j(machine.now_s - 0.02)) / 0.02}

    readers = {"cpu": perf(machine), "gpu0": power}
    found = metered(machine, readers, tmp_path / "r.jsonl", waits=("cpu",))
    for name, error in (("cpu", 0.01), ("gpu0", 0.02)):  # The power between two readings is not known.
        joules = found.tree().at("load").total.on(name).energy_j
        assert joules == pytest.approx(LOADS[load](10.0, 10.0), rel=error)


def test_a_reset_is_bridged_by_power_or_reported(tmp_path):
    """A driver that is loaded anew lets the counter begin at 0 in the middle of 10 s at 200 W."""
    machine = Machine("constant", 10.0)
    reset_s = machine.start_s + 4.321

    def starting_again(with_power):
        read = counter(machine, 0.02)

        def reading():
            joules = read()["energy_j"]
            gone_j = machine.energy_j(reset_s) if machine.now_s > reset_s else 0.0
            return {"energy_j": max(0.0, joules - gone_j), **({"power_w": 200.0} if with_power else {})}

        return reading

    found = metered(machine, {"gpu0": starting_again(True), "gpu1": starting_again(False)}, tmp_path / "r.jsonl")
    by_name = {each.device.name: each for each in found.devices}
    load = found.tree().at("load").total
    assert load.on("gpu0").energy_j == pytest.approx(2000, rel=0.01)
    assert by_name["gpu0"].complete
    # Without power readings the step of 0.1 s is unknown: a lower bound, which says so.
    assert 0.97 * 2000 < load.on("gpu1").energy_j < 2000
    assert load.on("gpu1").unknown
    assert not by_name["gpu1"].complete
    assert any("gpu1 could not be read all the time: at least" in note for note in found.notes)


def test_a_lost_device_and_an_unreadable_domain_are_reported(tmp_path):
    machine = Machine("constant", 10.0)
    lost_s = machine.start_s + 4.0
    read, package = counter(machine, 0.02), Package(machine, tmp_path)

    def falls_off():
        if machine.now_s > lost_s:
            raise SensorError("the GPU cannot be read any more", given="GPU is lost")
        return read()

    def unreadable():
        # The file disappears. If only its permission were taken away, root could still read it.
        if machine.now_s > lost_s:
            (package.zone / "energy_uj").unlink()
            return package.read_zone()
        return package()

    readers = {"gpu0": falls_off, "cpu0": unreadable, "gpu1": counter(machine, 0.02)}
    found = metered(machine, readers, tmp_path / "r.jsonl")
    by_name = {each.device.name: each for each in found.devices}
    seen_j = machine.energy_j(lost_s)
    for name in ("gpu0", "cpu0"):
        assert not by_name[name].complete
        assert by_name[name].energy_j == pytest.approx(seen_j, rel=0.03)
    assert by_name["gpu1"].complete
    assert found.tree().at("load").total.on("gpu1").energy_j == pytest.approx(2000, rel=0.01)
    assert "gpu0: lost: GPU is lost" in found.notes
    assert any(note.startswith("cpu0: lost: ") for note in found.notes)
    assert not found.complete


def test_a_wall_clock_that_jumps_is_reported_and_changes_no_joules(tmp_path, monkeypatch):
    machine = Machine("constant", 10.0)
    wall_s = time.time() - time.monotonic()
    jump_s = machine.start_s + 4.0

    def jumping():
        return time.monotonic() + wall_s + (3600.0 if machine.now_s > jump_s else 0.0)

    monkeypatch.setattr("joulecast.metering.polling.time.time", jumping)
    found = metered(machine, {"gpu0": counter(machine, 0.02)}, tmp_path / "r.jsonl")
    assert any("the wall clock jumped by +3600" in note for note in found.notes)
    assert found.tree().at("load").total.energy_j == pytest.approx(2000, rel=0.01)
