"""Campaigns end to end on the CPU: plan, measure, journal, resume, dataset; and mistakes of users."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import started

from joulecast import Network, Operation
from joulecast.datasets import load
from joulecast.errors import DeviceError, InputError, JoulecastError, UnknownNameError
from joulecast.hardware.host import processor
from joulecast.metering import Sensor
from joulecast.profiling.campaign import Campaign, NetworkTask, Subject, Task, load_campaign, plan
from joulecast.profiling.command import collect
from joulecast.profiling.devices import find_device, refuse_broken
from joulecast.profiling.runners import RUNNERS
from joulecast.profiling.session import finish, measure

OPERATIONS = [
    Operation("relu", [(64, 64)]),
    Operation("linear", [(16, 32)], {"out_features": 8}),
    Operation("softmax", [(8, 16)]),
    Operation("add", [(32, 32)] * 2),
    Operation("layer_norm", [(4, 64)]),
    Operation("dropout", [(4, 64)], {"p": 0.5}),
]


@pytest.fixture
def campaign(tmp_path):
    Network.of([(operation, 2) for operation in OPERATIONS]).save(tmp_path / "net.json")
    path = tmp_path / "campaign.toml"
    path.write_text(
        f'seconds = 0.02\nmodes = ["inference", "training"]\n[[network]]\nmodel = "{tmp_path / "net.json"}"\n'
    )
    return path


def records(out):
    return [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()[1:]]


def run(campaign, out, *options):
    return collect([str(campaign), "--out", str(out), "--device", "cpu", *options])


def test_a_campaign_becomes_a_dataset(campaign, tmp_path, capsys):
    text = run(campaign, tmp_path / "out")
    # Six operations in two modes; dropout in inference is an identity and not measured.
    assert "11 measurements, 0 failed" in text
    dataset = load(tmp_path / "out")
    assert dataset.card.gpu == f"CPU {processor()}"
    assert dataset.card.sensor.startswith("none (this machine shows no energy counter")
    assert all(m.power_w is None and m.time_s > 0 for m in dataset.measurements)
    assert dataset.card.threads == torch.get_num_threads()
    # With one thread it is timed by CPU time, and the method says so.
    suffix = "_cpu_time" if torch.get_num_threads() == 1 else ""
    methods = {f"forward_distinct{suffix}", f"forward_backward_distinct{suffix}"}
    assert {m.method for m in dataset.measurements} == methods == dataset.card.method.keys()
    least, middle, most = dataset.card.load_average
    assert 0 <= least <= middle <= most
    assert "11/11" in capsys.readouterr().err


def test_ctrl_c_stops_cleanly_with_a_dataset(campaign, tmp_path, monkeypatch):
    from joulecast.profiling import session

    real, calls = session.measure, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(session, "measure", interrupted)
    assert "3 measurements" in run(campaign, tmp_path / "out")
    assert len(load(tmp_path / "out").measurements) == 3


def test_operations_that_cannot_run_are_recorded_and_a_broken_gpu_ends_the_campaign(monkeypatch):
    def failing(error):
        def fail(*_):
            raise error

        return fail

    task = Task(Operation("matmul", [(4, 4), (4, 4)]), 0)
    out_of_memory = failing(torch.OutOfMemoryError("no room for this"))
    monkeypatch.setitem(RUNNERS, "matmul", lambda operation: out_of_memory)
    record = measure(task, Campaign((Subject("x"),), seconds=0.01), torch.device("cpu"), Sensor())
    assert (record["status"], record["reason"]) == ("failed", "OutOfMemoryError: no room for this")
    illegal = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(torch.cuda, "synchronize", failing(illegal))
    with pytest.raises(DeviceError, match="error state"):
        refuse_broken(torch.device("cuda"), "RuntimeError: illegal memory access")
    refuse_broken(torch.device("cpu"), "an operation that the CPU does not have")


def test_the_plan_is_unique_shuffled_and_seeded(campaign):
    for path in (Path(__file__).resolve().parents[2] / "profiling").glob("*.toml"):
        assert load_campaign(path).subjects  # Campaigns that are shipped load.
    settings = load_campaign(campaign)
    tasks = plan(settings)
    assert len({task.key for task in tasks}) == len(tasks) == 11
    assert tasks == plan(settings)
    other = Campaign(settings.subjects, seconds=0.02, modes=settings.modes, seed=1, repeats=2)
    again = plan(other)
    assert [task.repeat for task in again] == [0] * 11 + [1] * 11
    assert [task.operation for task in again[:11]] != [task.operation for task in tasks]


def test_parts_of_a_plan_have_every_measurement_once():
    settings = load_campaign(None, {"network": [{"model": "alexnet", "input_shapes": [[1, 3, 64, 64]]}], "repeats": 2})
    assert settings.name == "alexnet"
    whole = [task.key for task in plan(settings)]
    parts = [[task.key for task in plan(settings, None, (number, 3))] for number in (1, 2, 3)]
    assert sorted(key for part in parts for key in part) == sorted(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(plan(settings, 6, (2, 3))) == 4  # of six operations, each twice


@pytest.mark.parametrize(("limit", "networks", "operations"), [(1, 1, 0), (2, 2, 0), (5, 2, 3)])
def test_a_limit_counts_operations_and_whole_networks_together(limit, networks, operations):
    settings = Campaign(
        (Subject("squeezenet1_1", ((1, 3, 64, 64),)),), modes=("inference", "training"), whole_networks=True, repeats=2
    )
    once, again = (
        [task for task in plan(settings, limit) if task.repeat == repeat] for repeat in range(settings.repeats)
    )
    assert len(once) == len(again) == limit
    assert sum(isinstance(task, NetworkTask) for task in once) == networks
    assert sum(isinstance(task, Task) for task in once) == operations
    assert {task.key for task in once} <= {task.key for task in plan(settings)}


def test_whole_networks_are_measured_beside_their_operations(tmp_path):
    """One of torchvision, and one in a file of the user."""
    (tmp_path / "net.py").write_text(
        "import torch\ndef Net():\n    return torch.nn.Sequential(torch.nn.Linear(8, 4))\n"
    )
    path = tmp_path / "c.toml"
    path.write_text(
        'seconds = 0.01\nwhole_networks = true\nmodes = ["inference", "training"]\n'
        '[[network]]\nmodel = "squeezenet1_1"\ninput_shapes = [[1, 3, 64, 64]]\n'
    )
    planned = collect([str(path), "--dry-run", "--limit", "3"])
    assert "2 whole network" in planned
    assert "3 measurements of 1 operations" in planned
    run(path, tmp_path / "out", "--limit", "3")
    of_user = f"--whole-networks --mode inference --seconds 0.01 --device cpu --network {tmp_path / 'net.py'}:Net 2,8"
    assert "2 measurements, 0 failed" in collect([*of_user.split(), "--out", str(tmp_path / "own")])
    # Without power they have no energy, and only their time can be compared with a prediction.
    networks = load(tmp_path / "out").networks
    assert {m.mode for m in networks} == {"inference", "training"}
    assert all(m.power_w is None and m.energy_j is None and m.time_s > 0 for m in networks)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", InputError, "at least one network"),
        ("x = ", InputError, "cannot be read"),
        ('secondss = 3\n[[network]]\nmodel = "resnet18"', UnknownNameError, "did you mean seconds"),
        ('[[network]]\nmodell = "resnet18"', UnknownNameError, "did you mean model"),
        ("[[network]]\ninput_shapes = [[1, 3]]", InputError, "needs a model"),
        ('[[network]]\nmodel = "resnet18"\ninput_shapes = [[0, 3]]', InputError, "positive"),
        ('modes = ["train"]\n[[network]]\nmodel = "resnet18"', UnknownNameError, "did you mean training"),
        ('modes = "training"\n[[network]]\nmodel = "resnet18"', InputError, "a list of at least one"),
        ('precisions = ["fp8"]\n[[network]]\nmodel = "resnet18"', UnknownNameError, "fp16"),
        ('seconds = 0\n[[network]]\nmodel = "resnet18"', InputError, "above 0"),
        ('repeats = 0\n[[network]]\nmodel = "resnet18"', InputError, "from 1"),
        ("network = 3", InputError, "tables"),
        ('whole_networks = 1\n[[network]]\nmodel = "resnet18"', InputError, "true or false"),
        ('clocks = [0]\n[[network]]\nmodel = "resnet18"', InputError, "MHz as an integer"),
        ('clocks = []\n[[network]]\nmodel = "resnet18"', InputError, "at least one"),
        ('clocks = 900\n[[network]]\nmodel = "resnet18"', InputError, "a list of at least one"),
    ],
)
def test_wrong_campaigns_are_refused(tmp_path, text, error, says):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(error, match=says):
        load_campaign(tmp_path / "c.toml")


def test_a_campaign_from_options_goes_before_its_file(campaign):
    options = ["--network", "squeezenet1_1", "1,3,64,64", "2,3,64,64", "--precision", "bf16", "--clock", "900",
               "--clock", "default", "--repeats", "2"]  # fmt: skip
    alone = collect([*options, "--dry-run"])
    counts = [int(line.split()[0]) for line in alone.splitlines()[:-1]]
    unique = int(alone.split(" measurements of ")[1].split()[0])
    assert sum(counts) == 4 * unique  # two clocks, two repeats
    assert "11 measurements of 11 operations" in collect([str(campaign), "--seconds", "9", "--dry-run"])
    assert not (campaign.parent / "out").exists()
    assert "of 6 operations" in collect([str(campaign), "--mode", "training", "--dry-run"])


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["--network", "squeezenet1_1", "1,3,x"], InputError, "not a shape"),
        (["--network", "squeezenet1_1"], InputError, "shape of its input"),
        (["--network", "no_net", "1,3,8,8"], UnknownNameError, "no_net"),
        ([], InputError, "at least one network"),
        (["--network", "squeezenet1_1", "1,3,64,64", "--clock", "900", "--out", "x"], InputError, "omit clocks"),
    ],
)
def test_wrong_options_are_refused(arguments, error, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        collect([*arguments, "--device", "cpu", *([] if "--out" in arguments else ["--dry-run"])])
    assert not (tmp_path / "x").exists()
    for name in ("gpu", "cuda:7", "mps"):
        if not torch.cuda.is_available():
            with pytest.raises(InputError, match=r"not a device|not available"):
                find_device(name)


def test_a_dataset_that_cannot_be_written_loses_nothing(campaign, tmp_path):
    out = tmp_path / "out"
    (out / "operations.parquet").mkdir(parents=True)
    with pytest.raises(JoulecastError, match="there is no journal"):
        finish(out)
    assert [path.name for path in out.iterdir()] == ["operations.parquet"]
    with pytest.raises(InputError, match="from-journal"):
        run(campaign, out, "--limit", "2")
    assert len(records(out)) == 2
    (out / "operations.parquet").rmdir()
    assert "2 measurements" in finish(out)
    with pytest.raises(JoulecastError, match="journal cannot be opened"):
        run(campaign, campaign)  # where a file is, no folder can be made


def test_killed_and_resumed_nothing_is_lost_or_twice(campaign, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "joulecast.profiling", str(campaign), "--out", str(out), "--device", "cpu"]
    # A library may have changed this variable in the process of the tests, whose threads stay as they were.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    heard = b""
    with started(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as process:
        while heard.count(b"/11,") < 3 and (byte := process.stderr.read(1)):
            heard += byte
    shown = {int(part.split(b"/")[0].split()[-1]) for part in heard.split(b"\r")[1:] if b"/11," in part}
    done = records(out)
    assert len(done) >= max(shown)
    with pytest.raises(InputError, match="use another --out"):
        run(campaign, out)
    assert "11 measurements" in run(campaign, out, "--resume")
    after = records(out)
    assert after[: len(done)] == done
    assert len(after) == len({record["key"] for record in after}) == 11
