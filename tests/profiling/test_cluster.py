"""Campaigns on the workers of a Dask cluster: workers that are killed, that do not fit, and with different GPUs."""

import os
from pathlib import Path

import pytest

import joulecast
from joulecast import Network, Operation
from joulecast.datasets import load
from joulecast.errors import InputError, SensorError
from joulecast.metering import NoSensor
from joulecast.profiling import cluster as bench
from joulecast.profiling import devices
from joulecast.profiling.campaign import Campaign, Subject
from joulecast.profiling.journal import Journal

pytest.importorskip("distributed", reason="a campaign on a cluster needs joulecast[cluster]")

SIMULATED = Path(__file__).with_name("simulated_worker.py")
TESTS = SIMULATED.parents[1]

# The first arguments are the number of workers, the number of kills, and the seconds of a measurement. Workers are
# killed while they measure.
SCRIPT = """
import itertools, multiprocessing, os, random, sys, threading, time
from pathlib import Path

def work(arguments):
    from distributed.cli.dask_worker import main
    main(arguments, standalone_mode=False)

if __name__ == "__main__":
    from distributed import LocalCluster
    from waiting import until
    from joulecast.profiling import command
    from joulecast.profiling.journal import Journal

    workers, kills, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    measuring, rng, running, number = Path(os.environ["MEASURING"]), random.Random(0), {}, itertools.count()
    append, finished = Journal.append, []
    # Workers are forked from a process that has imported what they need: starting a Python takes seconds.
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["distributed.cli.dask_worker", "joulecast.profiling.collection"])

    def append_and_count(journal, record):
        append(journal, record)
        finished.extend([record["key"]] * (record["status"] == "ok"))

    Journal.append = append_and_count

    def start(place):
        # The name of a worker that was lost is free only when the scheduler has noticed.
        options = ["--name", f"{place}.{next(number)}", "--no-nanny", "--nthreads", "1", "--memory-limit", "0"]
        running[place] = forks.Process(target=work, args=[[cluster.scheduler_address, *options, "--no-dashboard"]])
        running[place].start()

    def kill_while_measuring():
        hits = 0
        while hits < kills:
            # Between two kills a measurement has to be finished, or new workers would be killed before any is.
            until(lambda: len(finished) >= hits and any(measuring.iterdir()), seconds=600)
            time.sleep(seconds * rng.random())
            marks = list(measuring.iterdir())
            if marks:
                mark = rng.choice(marks)
                place = int(mark.name)
                running[place].kill()
                running[place].join()
                hits += mark.exists()  # it is gone if the measurement ended just before
                mark.unlink(missing_ok=True)
                start(place)
        print(hits, "kills while measuring")

    with LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        for place in range(workers):
            start(place)
        killing = threading.Thread(target=kill_while_measuring, daemon=True)
        killing.start()
        try:
            print(command.collect([*sys.argv[4:], "--cluster", cluster.scheduler_address]))
        finally:
            for process in running.values():
                process.kill()
                process.join()
"""


@pytest.fixture
def cluster(on_driver, tmp_path):
    def run(operations, workers, kills=0, seconds=0.01, options=(), **settings):
        Network.of([(Operation("relu", [(n, 8)]), 1) for n in range(1, operations + 1)]).save(tmp_path / "net.json")
        campaign = tmp_path / "campaign.toml"
        campaign.write_text(f'seconds = {seconds}\n[[network]]\nmodel = "{tmp_path / "net.json"}"\n')
        arguments = [workers, kills, seconds, campaign, "--out", tmp_path / "out", "--device", "cpu", *options]
        measuring = tmp_path / "measuring"
        measuring.mkdir(exist_ok=True)
        settings = {
            "DASK_DISTRIBUTED__WORKER__PRELOAD": SIMULATED,
            "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "FAKE_NVML_AVERAGING_MS": 20,
            "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": False,
            "MEASURING": measuring,
            **settings,
        }
        return on_driver(SCRIPT, *map(str, arguments), **settings)

    return run


def measured(folder):
    """The keys of a journal's measurements, and the workers that made them."""
    with Journal(folder / "journal.jsonl", None) as journal:
        records = [record for record in journal.records if record["status"] != "session"]
    assert all(record["status"] == "ok" for record in records), records
    return [record["key"] for record in records], {record["worker"] for record in records}


def test_a_killed_worker_loses_nothing_and_doubles_nothing(cluster, tmp_path):
    result = cluster(5, 1, kills=1, seconds=0.2)
    assert result.returncode == 0, result.stderr
    assert "5 measurements, 0 failed" in result.stdout
    assert result.stderr.count("was lost; its measurement is made again") == 1
    folder = tmp_path / "out" / "gpu-a"
    keys, workers = measured(folder)
    assert len(keys) == len(set(keys)) == 5
    assert 1 <= len(workers) <= 2
    dataset = load(folder)
    assert {m.operation.input_shapes for m in dataset.measurements} == {((n, 8),) for n in range(1, 6)}
    assert (dataset.card.gpu, dataset.card.software["driver"]) == ("GPU-A", "550")


def test_a_worker_of_another_version_is_refused():
    with pytest.raises(InputError) as caught:
        bench.open_device(Campaign((Subject("resnet18"),)), "cpu", "0.0.1", power=False)
    assert (caught.value.given, caught.value.allowed) == (joulecast.__version__, "0.0.1")
    assert "same version" in caught.value.hint


def test_the_sensor_stops_if_the_second_log_cannot_be_read(monkeypatch):
    happened = []

    class First(NoSensor):
        def __enter__(self):
            happened.append("first is read")
            return self

        def __exit__(self, *_):
            happened.append("first stops")

    class Second(NoSensor):
        def __enter__(self):
            raise SensorError("the power sensor was lost")

    monkeypatch.setattr(devices, "sensor_of", lambda device: First())
    monkeypatch.setattr(devices, "second_sensor_of", lambda device: Second())
    with pytest.raises(SensorError):
        bench.open_device(Campaign((Subject("resnet18"),), second_log=True), "cpu", joulecast.__version__, power=True)
    assert happened == ["first is read", "first stops"]


@pytest.mark.slow
def test_models_of_gpus_get_datasets_of_their_own_and_mixed_drivers_are_refused(cluster, tmp_path):
    a, b = tmp_path / "out" / "gpu-a", tmp_path / "out" / "gpu-b"
    result = cluster(
        5,
        5,
        WORKER_0="board=0000",
        WORKER_1="device=GPU-B",
        WORKER_2=f"driver=535 after={a / 'journal.jsonl'}",
        WORKER_3="joulecast=0.0.1",
        WORKER_4=f"board=0000 after={a / 'journal.jsonl'}",
    )
    assert result.returncode == 0, result.stderr
    for folder, name in ((a, "GPU-A"), (b, "GPU-B")):
        keys, workers = measured(folder)
        assert len(keys) == len(set(keys)) == 5
        assert len(workers) == 1
        assert load(folder).card.gpu == name
    assert (
        "this worker would not fit into the dataset of GPU-A\ngiven:   driver 535\nallowed: driver 550" in result.stderr
    )
    assert "two workers use the same GPU\n" in result.stderr
    assert "this worker has another version of joulecast\ngiven:   0.0.1" in result.stderr


@pytest.mark.slow
def test_many_kills(cluster, tmp_path):
    kills = int(os.environ.get("KILLS", "20"))
    result = cluster(2 * kills, 4, kills, seconds=0.3)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("was lost; its measurement is made again") == kills
    keys, _ = measured(tmp_path / "out" / "gpu-a")
    assert len(keys) == len(set(keys)) == 2 * kills


@pytest.mark.slow
def test_a_gpu_that_disappears_and_a_half_written_journal_lose_nothing(cluster, tmp_path):
    lost = tmp_path / "lost"
    result = cluster(5, 1, WORKER_0="loses=3", FAKE_NVML_LOST_FILE=lost)
    assert result.returncode != 0
    assert "is not used: the power sensor was lost\ngiven:   GPU is lost" in result.stderr
    journal = tmp_path / "out" / "gpu-a" / "journal.jsonl"
    assert len(measured(journal.parent)[0]) == 2

    lost.unlink()
    with journal.open("a") as file:
        file.write('{"key": "a line that its campaign could not finish"')
    result = cluster(5, 1, options=["--resume"])
    assert result.returncode == 0, result.stderr
    assert "the journal's last line was incomplete; it is measured again" in result.stderr
    keys, _ = measured(journal.parent)
    assert len(keys) == len(set(keys)) == 5


def test_a_missing_scheduler_is_reported(call, tmp_path, monkeypatch):
    from joulecast.system import cluster

    monkeypatch.setattr(cluster, "_CONNECT_S", 0.1)
    for address in ("tcp://127.0.0.1:1", "nothing://here"):
        code, _, errors = call("collect", "small", "--out", tmp_path, "--cluster", address)
        assert code == InputError.exit_code
        assert "no Dask scheduler answers at this address" in errors
        assert address in errors
        assert "tcp://HOST:PORT" in errors
    assert not list(tmp_path.iterdir())
