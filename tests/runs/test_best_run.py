"""best_run: what it chooses is the best of what predict_run says of each way."""

import json
import math
from dataclasses import replace
from statistics import NormalDist

import pytest

from joulecast import best_run, predict_run
from joulecast.runs.layout import RECOMPUTES, SHARDINGS

BERT = {"samples": 1e5, "precision": "bf16"}


def ways(gpus=("A30", "L4"), counts=(1,), **options):
    return best_run("bert_base", (32, 128), gpus=gpus, counts=counts, **{**BERT, **options})


def test_each_way_is_a_run():
    for way in ways(counts=(1, 2)).rows:
        asked = {each: getattr(way.layout, each) for each in ("accumulation", "sharding", "recompute")}
        gpu = f"{way.layout.gpus}x {way.gpu}"
        assert predict_run("bert_base", (32, 128), gpu, clock=way.clock_mhz, **BERT, **asked).to_dict() == way.to_dict()


@pytest.mark.parametrize(("objective", "quantity"), [("energy", "wall_energy_j"), ("time", "time_s")])
def test_the_best_comes_first(objective, quantity):
    found = ways(objective=objective)
    values = [getattr(way, quantity) for way in found]
    assert values == sorted(values)
    assert len(found) == 2
    assert values[0] == min(getattr(way, quantity) for way in found.rows)
    assert found.pareto()[0].time_s == min(way.time_s for way in found.rows)


def test_micro_batches_are_the_largest_that_fit():
    asked = {"samples": 1e4, "precision": "fp16"}
    found = best_run("bert_large", (64, 512), gpus=["T4"], counts=(1,), **asked)
    capacity = 15 * 2**30  # 16 GiB, of which error correction takes a sixteenth
    assert all(way.memory_bytes <= capacity for way in found.rows)
    layouts = {way.layout for way in found.rows}
    assert len({layout.accumulation for layout in layouts}) == len(layouts) > 1
    for layout in layouts:
        if layout.accumulation > 1:
            half = {"recompute": layout.recompute, "accumulation": layout.accumulation // 2}
            assert predict_run("bert_large", (64, 512), "T4", **asked, **half).memory_bytes > capacity


def test_no_way_by_hand_is_quicker():
    asked = {"samples": 160, "precision": "bf16"}
    found = best_run("gpt2", (32, 512), objective="time", gpus=["8x H100 SXM"], clocks=[1980], **asked)
    ways_by_hand = [{"sharding": each, "recompute": again} for each in SHARDINGS for again in RECOMPUTES]
    by_hand = [predict_run("gpt2", (32, 512), "8x H100 SXM", clock=1980, **asked, **each) for each in ways_by_hand]
    assert found[0].time_s == min(each.time_s for each in by_hand) < by_hand[0].time_s


def test_what_ends_too_late_or_does_not_fit_is_left_out():
    slowest = max(ways(), key=lambda way: way.time_s)
    found = ways(max_time_s=0.9 * min(way.time_s for way in ways().rows if way.gpu == slowest.gpu))
    assert [way.gpu for way in found] == ["NVIDIA A30"]
    assert found.left_out["NVIDIA L4"].startswith("outside a limit; at best ")
    large = best_run("gpt2_xl", (8, 512), samples=1e3, gpus=["A30", "H100 SXM"], counts=(1,))
    assert "does not fit" in large.left_out["NVIDIA A30"]


def test_cost_needs_prices_of_each_gpu():
    found = ways(objective="cost", price_per_hour={"A30": 1.0}, max_cost=100)
    assert [way.gpu for way in found] == ["NVIDIA A30"]
    assert found[0].cost == pytest.approx(found[0].time_s / 3600)
    assert "prices" in found.left_out["NVIDIA L4"]


def test_the_command_prints_what_the_library_says(call):
    command = ["best-run", "bert_base", "32,128", "--samples", "1e5", "--gpu", "A30,L4", "--counts", "1"]
    command += ["--precision", "bf16"]
    code, answer, _ = call(*command, "--json")
    assert (code, json.loads(answer)) == (0, json.loads(json.dumps(ways().to_dict())))
    _, shown, _ = call(*command)
    assert shown.index("NVIDIA A30") < shown.index("NVIDIA L4")


def test_chance_that_one_is_quicker():
    runs = [predict_run("bert_base", (32, 128), gpu, **BERT) for gpu in ("A100 SXM4 80GB", "L40S", "L4")]
    # Half of the errors of the same network's time are the same on both; those of two networks are independent.
    halves = [math.log(run.interval(0.9).time_s[1] / run.time_s) for run in runs]
    apart = 1.645 * math.log(runs[1].time_s / runs[0].time_s)
    alike = NormalDist().cdf(apart / math.sqrt(halves[0] ** 2 + halves[1] ** 2 - halves[0] * halves[1]))
    assert runs[0].chance_below(runs[1]) == pytest.approx(alike, abs=1e-3)
    assert runs[0].chance_below(runs[1]) > 0.99
    other = NormalDist().cdf(apart / math.hypot(*halves[:2]))
    assert runs[0].chance_below(replace(runs[1], model="another")) == pytest.approx(other, abs=1e-3)
    assert runs[1].chance_below(runs[0]) == pytest.approx(1 - runs[0].chance_below(runs[1]))
    assert runs[0].chance_below(runs[0], "wall_energy_j") == 0.5
    assert runs[0].chance_below(runs[2]) > 0.99
    assert runs[0].chance_below(runs[1], "cost") is None
