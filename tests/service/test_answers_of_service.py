"""Choices, text, images and training over HTTP: the client gives what the library gives, and so does JSON."""

import csv
import io
import json

import pytest

import joulecast
from joulecast.remote.wire import question_of

LENGTHS = {"prompt_tokens": 200, "output_tokens": 100}
WAYS = {**LENGTHS, "gpus": ["H100 SXM", "2x L40S"], "batches": [1, 32]}
COSTS = {"objective": "cost", "price_per_hour": {"H100 SXM": 2.5, "L40S": 0.8}, "precisions": ["fp8"]}
LIMITS = {"max_time_per_output_token_s": 0.03, "min_tokens_per_s": 50, "clocks": [1200]}
AT_A_RATE = {"prompt_tokens": 50, "output_tokens": 10, "gpus": ["L4"], "batches": [8], "rate_per_s": 20.0}
RUN = {"samples": 1000, "precision": "bf16", "carbon": "DE", "price_per_hour": {"H100 SXM": 2.5}, "clock": 1500}
RUNS = {"samples": 1e5, "precision": "bf16", "gpus": ["A30", "L4", "T4"], "counts": [1, 2]}
ARRIVING = {"requests": 5.0, "prompt_tokens": 100, "output_tokens": (20.0, 10.0), "duration_s": 10.0}
SMALL = ("resnet18", (8, 3, 64, 64))
PRICED = {"batch_sizes": [1, 8], "objective": "cost", "price_per_hour": {"A30": 1.0, "L4": 0.5}}
QUESTIONS = [
    ("best", SMALL, {"gpus": ["A30", "T4"]}),
    ("best", SMALL, {**PRICED, "gpus": ["A30", "L4"], "max_time_s": 0.1}),
    ("sweep", SMALL, {"gpus": "A30", "clocks": [900, 1440], "precision": ["fp32", "default"]}),
    ("sweep", SMALL, {**PRICED, "gpus": ["A30", "L4"]}),
    ("predict_generation", ("llama3_8b", "H100 SXM"), {**LENGTHS, "batch": 16, "tensor_parallel": 2}),
    (
        "predict_generation",
        ("llama3_8b", "L4"),
        {"batch": 16, "prompt_tokens": (200, 100), "output_tokens": [10, 20, 600]},
    ),
    ("best_generation", ("llama3_8b",), WAYS),
    ("best_generation", ("llama3_8b",), {**WAYS, **LIMITS}),
    ("best_generation", ("llama3_8b",), {**WAYS, **COSTS}),
    ("best_generation", ("llama3_8b",), {**WAYS, "gpus": "H100 SXM", "counts": [1, 2], "engine": "sglang"}),
    ("best_generation", ("qwen3_0_6b",), {**AT_A_RATE, "clocks": [2040]}),
    ("simulate_serving", ("qwen3_0_6b", "2x L4"), {**ARRIVING, "tensor_parallel": 1, "max_sequences": 8}),
    ("predict_image", ("sd3_5_medium", "2x H100 SXM"), {"steps": 4, "host": 0.5}),
    ("predict_image", ("wan_2_1_1_3b", "H100 SXM"), {"frames": 17, "execution": "graph"}),
    ("predict_run", ("bert_base", (64, 128), "8x H100 SXM"), {**RUN, "sharding": "zero3"}),
    (
        "predict_run",
        ("gpt2", (16, 128), "4x H100 SXM"),
        {**RUN, "pipeline_parallel": 2, "carbon": [100.0, 300.0], "price_per_hour": "AWS"},
    ),
    ("best_run", ("bert_base", (32, 128)), RUNS),
]


@pytest.mark.parametrize(("function", "arguments", "options"), QUESTIONS)
def test_answers_are_equal(client, service, function, arguments, options):
    here, there = (getattr(where, function)(*arguments, **options) for where in (joulecast, client))
    assert type(there) is type(here)
    assert there.to_json() == here.to_json()
    if hasattr(here, "pareto"):
        assert [way.to_dict() for way in there.pareto()] == [way.to_dict() for way in here.pareto()]
    if hasattr(here, "interval"):
        assert there.interval(0.8) == here.interval(0.8)
    if hasattr(here, "tree"):
        assert there.tree() == here.tree()
    plain = service.ask(f"/v1/{function}", question_of(getattr(joulecast, function), arguments, options)).json
    assert {name: plain[name] for name in here.to_dict()} == json.loads(here.to_json())
    if function == "best_generation":  # All ways, because a plot shows them.
        assert there.rows == here.rows
        assert len(plain["rows"]) == len(here.rows)


def test_ways_are_answered_as_csv(service):
    table = service.ask("/v1/best_generation?format=csv", {"model": "llama3_8b", **WAYS}).text
    ways = joulecast.best_generation("llama3_8b", **WAYS)
    assert len(list(csv.DictReader(io.StringIO(table)))) == len(ways.rows)


def test_too_much_is_refused(narrow, service):
    llama = {"model": "llama3_8b", "prompt_tokens": 9, "output_tokens": 9}
    answer = narrow.ask("/v1/best_generation", {**llama, "gpus": ["H100 SXM"]})  # 8 clocks x 8 batches
    assert (answer.status, answer.json["given"], answer.json["allowed"]) == (413, "64", "up to 50")
    simulated = {**ARRIVING, "output_tokens": 20, "model": "qwen3_0_6b", "gpu": "2x L4"}
    trained = {**RUNS, "model": "bert_base", "input_shape": [32, 128], "counts": [1] * 8}
    for path, question in (
        ("simulate_serving", {**simulated, "duration_s": 1e6}),
        ("best_generation", {**AT_A_RATE, "model": "qwen3_0_6b", "gpus": ["L4"] * 20, "batches": [8] * 8}),
        ("best_run", {**trained, "clocks_mhz": [900.0 + i for i in range(1000)]}),
    ):
        assert service.ask(f"/v1/{path}", question).status == 413
    assert service.ask("/v1/simulate_serving", {**simulated, "requests": "/etc/passwd"}).status == 422
