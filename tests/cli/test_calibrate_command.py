"""`joulecast calibrate`: what it writes from measurements, and what it says where there is no GPU."""

import json
import re
from pathlib import Path

import pytest

import joulecast
from conftest import benchmark
from joulecast import Operation
from joulecast.datasets import save
from joulecast.hardware import find_gpu
from joulecast.predictors.board.profile import find_profile
from joulecast.zoo import find_predictor

ROOT = Path(__file__).parents[2]

with benchmark("simulated_board") as board:
    measured, operations = board.measured, board.operations
GPU = find_gpu("H100 SXM")


@pytest.fixture
def dataset(tmp_path):
    found = find_predictor(GPU, "inference").operations
    return save(measured(found, operations()[::2], GPU), tmp_path / "measured")


def test_measurements_become_a_file_that_predictions_take(dataset, tmp_path, call, printed):
    path = tmp_path / "mine.json"
    code, out, said = call("calibrate", "--measured", str(dataset), "--out", str(path))
    assert code == 0, said
    assert "products on tensor cores" in out
    assert "on operations left out" in out
    asked = ["linear", "4096,4096", "--set", "out_features=4096", "--precision", "bf16", "--gpu", "H100 SXM", "--json"]
    plain, found = (json.loads(printed("explain", *asked, *more)) for more in ([], ["--calibration", str(path)]))
    factor = found["calibration"]["products on tensor cores"]
    assert factor == pytest.approx(1.25, rel=0.05)
    assert found["device_time_s"] == pytest.approx(factor * plain["device_time_s"], rel=0.1)
    assert plain["calibration"] is None


def test_a_table_of_ones_own_becomes_a_dataset(tmp_path, monkeypatch, printed):
    """datasets/README.md does it. Loops take 1.2 times as long as predicted, at the watts that are predicted."""
    monkeypatch.chdir(tmp_path)
    sizes = [(b, i, o) for b in (8, 32, 128, 512) for i in (256, 1024, 4096) for o in (512, 1024, 2048, 4096)]
    asked = [Operation("linear", [(b, i)], {"out_features": o}) for b, i, o in sizes]
    found = joulecast.predict_operations(asked, "A30")
    lines = ["batch,inputs,outputs,time_s,power_w"]
    lines += [f"{b},{i},{o},{1.2 * t},{w}" for (b, i, o), t, w in zip(sizes, found.time_s, found.power_w, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join([*lines, ""]))
    page = (ROOT / "datasets" / "README.md").read_text("utf-8").partition("## Your own measurements")[2]
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
    exec(code, {})  # noqa: S102 (ours)
    assert "48 usable measurements of 48 operations" in printed("datasets", "show", "build/mine")
    out = printed("calibrate", "--measured", "build/mine", "--out", "mine.json")
    assert re.search(r"time +48 +20.0 %", out)
    assert re.search(r"energy +48 +20.0 %", out)
    # Watts are right already, so it is these that stay, and not the joules, which follow the time.
    assert "note: power was no better on operations left out, and stays as predicted" in out
    assert "note: energy" not in out


def test_without_a_gpu_it_says_what_it_needs(call, tmp_path):
    code, _, said = call("calibrate", "--out", str(tmp_path / "mine.json"))
    assert code == 2
    assert all(part in said for part in ("there is none here", "given:", "allowed:", "next:", "--measured"))
    assert not list(tmp_path.iterdir())


def test_stopped_and_repeated_it_continues(call, tmp_path, monkeypatch):
    """On the CPU in place of the GPU: what is measured there says nothing, but the course of events is the same."""
    from joulecast.cli import machine
    from joulecast.profiling import session, summary
    from joulecast.queries import worth_measuring

    chosen = {
        mode: [Operation("relu", [(n, 64)], mode=mode) for n in range(1, 1 + count)]
        for mode, count in (("inference", 12), ("training", 3))
    }
    asked, done, real = [], [], session.measure

    def choose(predictors, count):
        asked.append(count)
        return chosen

    def measure(task, *others):
        done.append(task.operation)
        if len(done) == 5:
            raise KeyboardInterrupt
        return real(task, *others)

    monkeypatch.setattr(machine, "_name_of", lambda device, gpu: "H100 SXM")
    monkeypatch.setattr(machine, "_SECONDS", 0.002)
    monkeypatch.setattr(worth_measuring, "worth_measuring", choose)
    monkeypatch.setattr(session, "measure", measure)
    monkeypatch.setattr(summary, "write_summary", lambda journal, folder: folder)  # whose pictures take seconds
    asked_for = ("calibrate", "--device", "cpu", "--minutes", "10", "--out", tmp_path / "mine.json")
    code, _, said = call(*asked_for)
    assert code == 2
    assert "4 of 12 operations in inference" in said
    assert not (tmp_path / "mine.json").exists()
    code, _, said = call(*asked_for)
    assert code == 0, said
    assert len(asked) == 1
    assert len(done) == 1 + 12 + 3
    assert len(set(done)) == 15
    assert find_profile(tmp_path / "mine.json").operations == 15
