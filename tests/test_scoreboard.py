"""The scoreboard's arithmetic, by hand; and predictions that are known by the commit that made them."""

import json
import math
import os
import subprocess
from dataclasses import replace

import pytest

from conftest import benchmark
from joulecast.datasets import save
from joulecast.hardware import find_gpu
from joulecast.zoo import find_predictor

with benchmark("scoreboard") as scoreboard:
    import commits
    import least_sure
    import simulated_board


def test_runs_of_a_task_share_a_row():
    logs = ({"time": math.log(1.1)}, {"time": math.log(0.9), "power": math.log(2)})
    held = ({"time": True}, {"time": False, "power": True})
    scores = [
        scoreboard.Score("them", "1x A30", "resnet", seconds, log, within, "abc")
        for seconds, log, within in zip((1.0, 4.0), logs, held, strict=True)
    ]
    row = {"source": "them", "gpu": "1x A30", "task": "resnet", "power": None, "energy": None}
    before = [json.dumps([row | {"time": {"error": error}, "commit": f"c{error}"}]) for error in (0.4, 0.2)]
    *_, row = scoreboard.table(scoreboard.rows(scores, before))
    # The geometric mean of 1 and 4 s is 2 s; that of 1.1 and 3.6 s is 1.99 s; (10 + 10) / 2 is 10 %.
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:6] == ["them", "1x A30", "resnet", "2", "2 s", "1.99 s"]
    assert cells[6:] == ["-1, 10 %", "+100, 100 %", "", "2 of 3", "abc", "time 40 % (c0.4)"]
    *_, row = scoreboard.table(scoreboard.rows(scores))
    assert row.endswith("| time 10 %, power 100 % (abc) |")


def test_rows_of_the_training_report_are_read():
    found = scoreboard._ROW.match("| resnet50 256 x 224, A100 SXM4 80GB, tf32 | 273 | 255 | -6 % |")
    assert (found["network"], found["gpu"], found["precision"], found["ms"], found[6]) == (
        *("resnet50", "A100 SXM4 80GB", "tf32", "273", "255"),
    )


def test_only_predictions_that_were_committed_before_count(tmp_path, monkeypatch):
    gpu, mode = find_gpu("L40S"), "inference"
    asked = simulated_board.operations()[:12]
    monkeypatch.setattr(commits, "ROOT", tmp_path)
    path = tmp_path / "predicted-l40s.json"
    path.write_text(json.dumps({"gpu": gpu.name, "rows": list(least_sure.predicted_operations(gpu, mode, asked))}))
    seen = simulated_board.measured(find_predictor(gpu, mode).operations, asked, gpu)
    save(seen, tmp_path / "measured")
    save(replace(seen, card=replace(seen.card, gpu="NVIDIA A30")), tmp_path / "another")

    def git(*given, **when):
        who = ["-c", "user.name=me", "-c", "user.email=me@here"]
        command = ["git", "-C", tmp_path, *who, *given]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **when})

    git("init")
    with pytest.raises(SystemExit, match="first"):
        list(scoreboard.ours(tmp_path, tmp_path))
    git("add", path.name)
    git("commit", "-m", "Too late", GIT_COMMITTER_DATE="2026-11-24T10:00:00Z")
    with pytest.raises(SystemExit, match="after the first measurement"):
        list(scoreboard.ours(tmp_path, tmp_path))
    git("commit", "--amend", "-m", "Before", GIT_COMMITTER_DATE="2026-11-22T10:00:00Z")
    found = list(scoreboard.ours(tmp_path, tmp_path))
    assert len(found) == len(asked)
    assert {each.gpu for each in found} == {"1x L40S"}
    # Products compute at 0.8 of their rate.
    slow = min(each.logs["time"] for each in found if each.task.startswith("matmul"))
    assert slow == pytest.approx(math.log(simulated_board.USUAL.products), abs=0.1)
    assert {*found[0].logs} == {*found[0].within} == {"time", "power"}
    path.write_text(path.read_text().replace("rows", "rows "))
    with pytest.raises(SystemExit, match="first"):
        list(scoreboard.ours(tmp_path, tmp_path))
