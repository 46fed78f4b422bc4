"""What a sweep can be turned into: CSV, JSON, pictures, a page; and the two commands."""

import csv
import io
import json
import re

import pytest

import joulecast
from joulecast.errors import InputError

JOB = ("resnet18", (8, 3, 64, 64))
COMMAND = ("resnet18", "8,3,64,64", "--gpu", "A30,T4", "--clocks", "600:1200:300")


@pytest.fixture(scope="module")
def sweep():
    return joulecast.sweep(*JOB, gpus=["A30", "T4", "L4"], clocks=(600, 900, 1200), precision=["default", "bf16"])


def test_csv_and_json_read_back(sweep):
    value = json.loads(json.dumps(sweep.to_dict()))
    for read, written, row in zip(csv.DictReader(io.StringIO(sweep.to_csv())), value["rows"], sweep, strict=True):
        for name in ("gpu", "clock_mhz", "time_s", "energy_j"):
            assert type(getattr(row, name))(read[name]) == written[name] == getattr(row, name)
        assert read["cost"] == ""
    assert value["rows"][0]["edp_js"] == pytest.approx(sweep.rows[0].energy_j * sweep.rows[0].time_s)
    assert {(out["gpu"], out["precision"]) for out in value["left_out"]} >= {("T4", "bf16")}
    for objective, quantity in (("time", "time_s"), ("ed2p", "ed2p_js2")):
        assert getattr(sweep.best(objective), quantity) == min(getattr(row, quantity) for row in sweep)
    with pytest.raises(InputError, match="needs prices"):
        sweep.best("cost")


def test_the_page_requests_no_other_file_and_escapes_names(tmp_path):
    network = joulecast.Network.of([(joulecast.Operation("relu", [(8, 64)]), 1)], name="<script>alert(1)</script>")
    page = joulecast.sweep(network, gpus="A30", clocks=(600, 900)).plot(tmp_path / "page.html").read_text()
    text = page.replace("http://www.w3.org/2000/svg", "")
    assert all(link.startswith("#") for link in re.findall(r'(?:src|href|srcset)="([^"]*)"', text))
    assert not re.search(r"<(script|link|img|iframe|object)|@import|url\((?!#)", text)
    assert "//" not in re.sub(r"</?[a-z]+", "", text)
    assert "alert(1)" in text


def test_best_on_the_command_line(printed):
    out = printed("best", *COMMAND, "--objective", "cost", "--price-per-hour", "A30=0.7,T4=0.3")
    assert "per iteration: least cost" in out
    assert re.search(r"^best +(A30|T4) ", out, re.MULTILINE)
    first = joulecast.best(*JOB, gpus=["A30", "T4"], clocks=(600, 900, 1200))[0]
    assert json.loads(printed("best", *COMMAND, "--json"))[0]["value"] == first.value
    assert next(csv.DictReader(io.StringIO(printed("best", *COMMAND, "--csv"))))["energy_j"] == repr(first.energy_j)


def test_sweep_on_the_command_line(printed, tmp_path):
    out = printed("sweep", *COMMAND, "--plot", tmp_path / "s.html", "--plot", tmp_path / "s.png")
    assert out.count("\n") == 2 + 2 + 2 + 1
    assert {path.name for path in tmp_path.iterdir()} == {"s.html", "s.png"}
    assert printed("sweep", *COMMAND, "--all").count("\n") == 2 + 2 + 6
    assert len(list(csv.DictReader(io.StringIO(printed("sweep", *COMMAND, "--csv"))))) == 6
    assert len(json.loads(printed("sweep", *COMMAND, "--json"))["rows"]) == 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--clocks", "900-1200"), "clocks are a list"),
        (("--batch-sizes", "1;8"), "batch sizes are positive"),
        (("--price-per-hour", "A30=cheap"), "a price per hour is a number"),
        (("--price-per-hour", "A30=-1", "--objective", "cost"), "0 or more"),
        (("--max-time", "1e-9"), "no choice satisfies the deadline"),
        (("--gpu", "A31"), "did you mean"),
        (("--csv", "--json"), "--csv"),
    ],
)
def test_mistakes_on_the_command_line(call, options, says):
    code, out, err = call("best", *COMMAND, *options)
    assert (code, out) == (2, "")
    assert says in err


def test_best_prints_which_gpus_miss_a_limit_and_the_held_clock(printed):
    job = ("best", "resnet50", "32,3,224,224", "--objective", "time", "--clocks", "900")
    out = printed(*job, "--gpu", "A30,T4,P4", "--max-time", 0.05)
    assert "left out: T4, P4: misses the deadline at every clock" in out
    out = printed(*job, "--gpu", "A30,T4", "--precision", "fp32,bf16", "--max-power", 72)
    assert "left out: T4 in bf16: does not support bf16" in out
    assert "A30 in fp32" in out
    assert "exceeds the power budget at every clock" in out
    assert re.search(r"900 \(held \d{3}\)", printed(*job, "--gpu", "A30", "--power-limit", 80))
    (tight,) = joulecast.sweep("resnet50", (32, 3, 224, 224), gpus="A30", clocks=900, power_limit_w=80)
    assert (tight.power_w <= 80.001, tight.held_clock_mhz < 900) == (True, True)
    assert "held" not in printed(*job, "--gpu", "A30")
