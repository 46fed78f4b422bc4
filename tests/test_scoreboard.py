"""The scoreboard's arithmetic, by hand."""

import math

from conftest import benchmark

with benchmark("scoreboard") as scoreboard:
    pass


def test_runs_of_a_task_share_a_row():
    logs = ({"time": math.log(1.1)}, {"time": math.log(0.9), "power": math.log(2)})
    held = ({"time": True}, {"time": False, "power": True})
    scores = [
        scoreboard.Score("them", "1x A30", "resnet", seconds, log, within, "abc")
        for seconds, log, within in zip((1.0, 4.0), logs, held, strict=True)
    ]
    *_, row = scoreboard.table(scoreboard.rows(scores))
    # The geometric mean of 1 and 4 s is 2 s; that of 1.1 and 3.6 s is 1.99 s; (10 + 10) / 2 is 10 %.
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["them", "1x A30", "resnet", "2", "2 s", "1.99 s", "-1, 10 %", "+100, 100 %", "", "2 of 3", "abc"]


def test_rows_of_the_training_report_are_read():
    found = scoreboard._ROW.match("| resnet50 256 x 224, A100 SXM4 80GB, tf32 | 273 | 255 | -6 % |")
    assert (found["network"], found["gpu"], found["precision"], found["ms"], found[6]) == (
        *("resnet50", "A100 SXM4 80GB", "tf32", "273", "255"),
    )
