"""Meters end to end: real sampler processes read simulated counters of known energy."""

import copy
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from processes import started
from simulated_counters import simulate_zones
from waiting import until

import joulecast
from joulecast.errors import InputError
from joulecast.metering.command import Listener, live_line
from joulecast.metering.meter import Meter
from joulecast.metering.recording import read_recording
from joulecast.metering.result import Metering, merged

ERROR = 0.01
ZONES = {"intel-rapl:0": ("package-0", "50 W"), "intel-rapl:0:0": ("core", "20 W"), "intel-rapl:0:1": ("dram", "8 W")}


@pytest.fixture
def counters(preloaded, tmp_path, monkeypatch):
    """A package of 50 W with its cores, which draw 20 W of that, and memory of 8 W beside it."""
    simulate_zones(tmp_path / "powercap", ZONES)
    monkeypatch.setenv("JOULECAST_POWERCAP", str(tmp_path / "powercap"))
    monkeypatch.setenv("LD_PRELOAD", str(preloaded))


def waited(seconds):
    """Let time pass in which joules are counted; for an event, see waiting.py."""
    threading.Event().wait(seconds)


def samples_in(recording):
    """How many samples a meter has written so far: none before its first whole line."""
    started = recording.exists() and b"\n" in recording.read_bytes()
    return len(read_recording(recording).samples["cpu0"]) if started else 0


def test_windows_and_functions_get_their_joules_and_nothing_counts_twice(counters, tmp_path):
    with joulecast.measure(("cpu", "ram"), interval_s=0.02, out=tmp_path / "r.jsonl") as meter:
        waited(0.2)
        for _ in range(2):
            with meter.window("epoch"):
                waited(0.3)
                with meter.window("evaluation"):
                    waited(0.2)
        running = meter.result()
    found = meter.result()
    tree = found.tree()
    epoch_s = sum(end - start for path, start, end in found.recordings[0].windows if path == "epoch")
    # 50 W of the package and 8 W of memory; the cores are a part of the package.
    assert tree.at("epoch").total.energy_j == pytest.approx(58 * epoch_s, rel=ERROR)
    assert found.energy_j == pytest.approx(58 * found.duration_s, rel=ERROR)
    assert tree.total.energy_j == pytest.approx(found.energy_j, rel=1e-9)
    assert tree.at("epoch").calls == 2
    evaluation_s = sum(end - start for path, start, end in found.recordings[0].windows if path == "epoch.evaluation")
    assert tree.at("epoch.evaluation").total.energy_j == pytest.approx(evaluation_s * 58, rel=ERROR)
    assert found.complete
    assert {d.device.name: d.device.counted for d in found.devices} == {"cpu0": True, "cpu0.core": False, "ram0": True}
    assert running.energy_j < found.energy_j
    assert read_recording(tmp_path / "r.jsonl").complete

    @joulecast.measure
    def work(seconds):
        waited(seconds)
        return "done"

    @joulecast.measure(("cpu",), interval_s=0.02)
    def longer():
        waited(0.8)

    async def later():
        """Its call returns before anything runs."""

    def some():
        yield

    for function, how in ((later, {}), (some, {}), (work, {"out": tmp_path / "w.jsonl"})):
        with pytest.raises(InputError, match="cannot be measured from outside"):
            joulecast.measure(**how)(function)
    assert work(0.2) == "done"
    assert work.metering.energy_j > 0
    longer()
    assert longer.metering.energy_j == pytest.approx(50 * longer.metering.duration_s, rel=ERROR)


@pytest.mark.filterwarnings("ignore")
def test_joules_become_metrics_of_the_active_mlflow_run(counters, tmp_path, empty_mlflow_database, monkeypatch):
    import mlflow

    with pytest.raises(InputError, match="no MLflow run is active"), Meter(("cpu",), mlflow=True):
        pass
    mlflow.set_tracking_uri(f"sqlite:///{shutil.copy(empty_mlflow_database, tmp_path)}")
    mlflow.set_experiment("metering")  # (another test may have left the id of one that is in another database)
    name = f"lr=1e-3 #{'7' * 300}"  # MLflow's names are shorter, and have other characters.
    with mlflow.start_run() as active, Meter(("cpu",), mlflow=True) as meter, meter.window("epoch"):
        waited(0.3)
        with meter.window(name):
            waited(0.1)
    metrics = mlflow.get_run(active.info.run_id).data.metrics
    assert any(each.startswith("system/window/epoch.lr_1e-3 _777") for each in metrics)
    assert metrics["system/energy_j"] == meter.result().energy_j
    assert metrics["system/cpu0_energy_j"] > metrics["system/window/epoch_energy_j"] > 0
    monkeypatch.setenv("JOULECAST_POWERCAP", str(tmp_path / "none"))
    with mlflow.start_run() as active, Meter(("cpu",), mlflow=True) as meter, meter.window("epoch"):
        pass
    assert mlflow.get_run(active.info.run_id).data.metrics.keys() == {"system/duration_s"}  # Missing is not zero.


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "joulecast", "measure", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_is_measured_with_its_exit_code(counters, tmp_path, call):
    # The command takes time, because its joules are compared with that time.
    code = "import sys, time; time.sleep(0.8); print('out'); sys.exit(7)"
    result = run("--devices", "cpu", "--out", str(tmp_path / "r.jsonl"), "--json", "--", sys.executable, "-c", code)
    assert (result.returncode, result.stdout) == (7, "out\n")
    measured = json.loads(result.stderr)
    assert measured["energy_j"] == pytest.approx(50 * measured["duration_s"], rel=ERROR)
    assert measured["exit_code"] == 7
    code, shown, _ = call("measure", "show", tmp_path / "r.jsonl")
    assert code == 0
    assert "cpu0" in shown
    assert "part of another" in shown  # the cores
    assert "1.000" in call("measure", "compare", tmp_path / "r.jsonl", tmp_path / "r.jsonl")[1]


def test_a_recording_that_a_full_disk_cuts_off_is_no_success(counters, tmp_path):
    """The disk has room for the first lines; the command itself writes no file."""
    script = (
        "import resource, sys; from joulecast.cli import main; resource.setrlimit(resource.RLIMIT_FSIZE, (2000,) * 2)"
    )
    words = f"measure --devices cpu --interval 0.02 --out {tmp_path / 'r.jsonl'} -- sleep 2.5".split()
    command = [sys.executable, "-c", f"{script}; main(sys.argv[1:])", *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    assert "the recording is not complete" in found.stderr
    assert len(read_recording(tmp_path / "r.jsonl").devices) > 0


def test_signals_reach_the_command_and_a_killed_meter_leaves_what_was_recorded(counters, tmp_path):
    out, killed, ready, signalled = (tmp_path / name for name in ("r.jsonl", "k.jsonl", "ready", "signalled"))
    script = (
        "import os, signal\n"
        f"signal.signal(signal.SIGUSR1, lambda *_: os.mkdir({str(signalled)!r}))\n"
        f"os.mkdir({str(ready)!r})\n"
        "while True: signal.pause()"
    )
    command = [sys.executable, "-m", "joulecast", "measure", "--devices", "cpu", "--interval", "0.02", "--out"]
    with started([*command, str(out), "--", sys.executable, "-c", script], stderr=subprocess.DEVNULL) as process:
        until(lambda: ready.exists() and samples_in(out) > 2)
        process.send_signal(signal.SIGUSR1)
        until(signalled.exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 128 + signal.SIGTERM
    found = read_recording(out)
    assert (found.complete, found.exit_code) == (True, 128 + signal.SIGTERM)
    with started([*command, str(killed), "--", "sleep", "60"], stderr=subprocess.DEVNULL):
        until(lambda: samples_in(killed) > 20)
    found = Metering("killed", (read_recording(killed),))
    assert found.energy_j == pytest.approx(50 * found.duration_s, rel=ERROR)


def test_joules_so_far_are_shown_in_a_line(counters):
    before_s = time.monotonic()
    with Meter(("cpu",), interval_s=0.02) as meter:
        until(lambda: meter.totals()["cpu0"]["energy_j"] > 10)
        assert meter.totals()["cpu0"]["energy_j"] < 50 * (time.monotonic() - before_s)
        assert re.match(r"cpu0 [\d.]+ J", live_line(meter.totals()))
    assert live_line({"gpu0": {"energy_j": 1200.0, "power_w": 300.0}}) == "gpu0 1.2 kJ at 300 W"


def test_errors_of_the_command_line_are_clear(counters, tmp_path, call):
    (tmp_path / "there.jsonl").write_text("")
    for words, code, says in (
        (("--devices", "cpu", "--", "no-such-command"), 2, "there is no such command"),
        (("--devices", "gpu7", "--", "true"), 2, "unknown device"),
        (("--devices", "cpu", "--out", tmp_path / "there.jsonl", "--", "true"), 10, "a file that does not exist yet"),
        (("show", tmp_path / "nothing"), 2, "nothing"),
    ):
        got, _, err = call("measure", *words)
        assert (got, says in err) == (code, True)


class Communicator:
    """What mpi4py's communicators do: objects of all ranks come together at the root, the last of them here to call."""

    def __init__(self, rank, sent):
        self.rank, self.sent = rank, sent

    def gather(self, sendobj, root=0):
        self.sent[self.rank] = copy.deepcopy(sendobj)
        return [copy.deepcopy(sent) for _, sent in sorted(self.sent.items())] if self.rank == root else None


def test_a_meter_that_is_used_again_leaves_the_lock_of_another(counters, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", f"test-{os.getpid()}")
    monkeypatch.setenv("SLURM_PROCID", "0")
    used, outer, inner = (Meter(("cpu",), interval_s=0.02) for _ in range(3))
    with used:
        waited(0.1)
    with outer:
        with used:
            waited(0.1)
        with inner:
            waited(0.1)
    assert [meter.measures for meter in (used, outer, inner)] == [True] * 3


def test_one_process_of_a_machine_measures(counters, tmp_path, monkeypatch):
    """Four ranks on two machines: two of them measure, and the machines' joules add up once."""
    recordings, all_meters = [], []
    monkeypatch.setenv("SLURM_JOB_ID", f"test-{os.getpid()}")
    for host in ("a", "b"):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / host))
        (tmp_path / host).mkdir()
        monkeypatch.setattr("platform.node", lambda host=host: host)
        meters = []
        for rank in ("0", "1"):
            monkeypatch.setenv("SLURM_PROCID", rank)
            meters.append(Meter(("cpu",), interval_s=0.02, out=tmp_path / f"{host}{rank}.jsonl"))
        with meters[0], meters[1]:
            waited(0.8)
            with Meter(("cpu",)) as other, pytest.raises(InputError, match="has measured nothing"):
                other.result()
            monkeypatch.setenv("SLURM_PROCID", "0")
            with Meter(("cpu",), interval_s=0.02) as nested:
                waited(0.2)
            assert nested.result().energy_j < meters[0].result().energy_j
        assert [meter.measures for meter in meters] == [True, False]
        with pytest.raises(InputError, match="this process has measured nothing"):
            meters[1].result()
        recordings.append(meters[0].result())
        all_meters += meters
    both = merged("job", recordings)
    sent = {}
    at_ranks = {rank: all_meters[rank].gathered(Communicator(rank, sent)) for rank in (3, 2, 1, 0)}
    assert at_ranks[0].energy_j == both.energy_j
    assert at_ranks[0].duration_s == both.duration_s
    assert [at_ranks[rank] for rank in (1, 2, 3)] == [None, None, None]
    with pytest.raises(InputError, match="no process of this job measured"):
        Meter(("cpu",)).gathered(Communicator(0, {}))
    assert both.energy_j == pytest.approx(sum(50 * each.duration_s for each in recordings), rel=ERROR)
    assert both.duration_s == max(each.duration_s for each in recordings)
    assert any("not measured at the same time" in note for note in both.notes)
    with pytest.raises(InputError, match="count twice"):
        merged("twice", [recordings[0], recordings[0]])


def test_recordings_of_a_machine_at_different_times_add_their_seconds(counters):
    found = []
    for devices in (("cpu",), ("cpu",), ("ram",)):
        with Meter(devices, interval_s=0.02) as meter:
            waited(0.4)
        found.append(meter.result())
    twice = merged("twice", found[:2])
    assert twice.mean_w == pytest.approx(50, rel=ERROR) == twice.tree().total.power_w
    assert twice.duration_s == pytest.approx(twice.tree().total.time_s)
    assert merged("all", found).notes == ()  # Not every recording has every device.
    # A program that used the machine alone, and then a quarter of it for three times as long.
    alone, beside = (
        replace(
            found[0].recordings[0],
            end_s=found[0].recordings[0].start_s + length_s,
            shares=tuple({"time_s": at, "cpu": share, "gpus": {"gpu0": {"busy": share}}} for at in (0.0, length_s)),
        )
        for share, length_s in ((1.0, 1.0), (0.25, 3.0))
    )
    shared = Metering("shared", (alone, beside))
    assert shared.cpu_share == pytest.approx((1.0 * 1 + 0.25 * 3) / 4)
    (share,) = shared.gpu_shares.values()
    assert share.busy == pytest.approx((1.0 + 0.25) / 2)


def test_windows_of_several_threads_share_what_was_measured(counters):
    def work(name):
        with meter.window(name):
            waited(0.2)
            with meter.window("inside"):
                waited(0.2)

    with Meter(interval_s=0.02) as meter:
        for several in (["a", "b", "b"], ["c"]):
            threads = [threading.Thread(target=work, args=(name,)) for name in several]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
    found = meter.result()
    tree = found.tree()
    assert tree.total.energy_j == pytest.approx(found.energy_j, rel=1e-9)
    assert tree.total.time_s == pytest.approx(found.duration_s, rel=1e-9)
    alone, third = tree.at("c").total.energy_j, tree.at("a").total.energy_j
    assert tree.at("b").total.energy_j == pytest.approx(2 * third, rel=0.2)
    assert alone == pytest.approx(3 * third, rel=0.3)
    assert 0 < tree.at("b.inside").total.energy_j < tree.at("b").total.energy_j


def test_a_meter_measures_again_and_answers_several_threads():
    meter = Meter(("estimate",), interval_s=0.02)
    with meter:
        pass
    first = meter.result()
    with meter:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append([meter.totals() for _ in range(40)])) for _ in "ab"]
        for each in threads:
            each.start()
        running = [meter.result() for _ in range(10)]
        for each in threads:
            each.join()
    assert first not in running
    assert [set(each) for each in answers for each in each] == [{"cpu-estimate"}] * 80


def test_windows_are_opened_by_one_connection_and_closed_by_another(tmp_path):
    def send(text):
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as connection:
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            return [json.loads(line) for line in connection.makefile()]

    with Meter(("estimate",), interval_s=0.02, own_share=False) as meter:
        listener = Listener(meter, 0)
        serving = threading.Thread(target=listener.serve)
        serving.start()
        assert send("start epoch\n") == [{"window": "epoch"}]
        started, inner = send("start step\nstop\n")
        assert started == {"window": "epoch.step"}
        assert json.dumps([inner["window"], inner["calls"]]) == '["epoch.step", 1]'  # A whole number, also as text.
        *_, nested, _ = send("start one\nstart two\nstop\nstop\n")
        assert nested["window"] == "epoch.one.two"
        (stopped,) = send("stop\n")
        assert stopped["source"] == "modelled"
        assert stopped["time_s"] > inner["time_s"] > 0
        assert stopped["energy_j"] > 0
        assert "no window is open" in send("stop\n")[0]["error"]
        assert "allowed: start NAME" in send("begin epoch\n")[0]["error"]
        with pytest.raises(InputError, match="cannot be received"):
            Listener(meter, listener.port)
        assert send("start left open\nend\n")[-1] == {"end": True}
        serving.join(10)
    assert meter.result().cpu_share is None  # The program whose windows these are is another process.
    assert {node.path for node in meter.result().tree().root.walk()} >= {"epoch", "epoch.step", "left open"}
