"""Generation and training over several GPUs over HTTP: the client gives what the library gives."""

import csv
import io
import json

import pytest

import joulecast
from joulecast.errors import InputError, UnknownNameError


def test_generation_is_equal(client):
    options = {"batch": 16, "prompt_tokens": 200, "output_tokens": 100, "tensor_parallel": 2}
    here = joulecast.predict_generation("llama3_8b", "H100 SXM", **options)
    there = client.predict_generation("llama3_8b", "H100 SXM", **options)
    assert there == here
    assert there.interval(0.8) == here.interval(0.8)
    with pytest.raises(InputError, match="does not fit"):
        client.predict_generation("llama3_1_70b", "L4", batch=1, prompt_tokens=10, output_tokens=10)
    with pytest.raises(UnknownNameError, match="language model"):
        client.predict_generation("../llama", "L4", batch=1, prompt_tokens=10, output_tokens=10)
    with pytest.raises(UnknownNameError, match="not as a file"):
        client.predict_generation("llama3_8b", "2x /tmp/a.toml", batch=1, prompt_tokens=10, output_tokens=10)


def test_lengths_that_vary_are_sent(client):
    options = {"batch": 16, "prompt_tokens": (200, 100), "output_tokens": [10, 20, 600]}
    there = client.predict_generation("llama3_8b", "H100 SXM", **options)
    assert there == joulecast.predict_generation("llama3_8b", "H100 SXM", **options)
    with pytest.raises(InputError, match="output_tokens has no such lengths"):
        client.predict_generation("llama3_8b", "H100 SXM", **{**options, "output_tokens": (0, 5)})


SERVED = {"prompt_tokens": 200, "output_tokens": 100, "gpus": ["H100 SXM", "2x L40S"], "batches": [1, 32]}
CHOSEN = {
    "energy": SERVED,
    "limits": {**SERVED, "max_time_per_output_token_s": 0.03, "min_tokens_per_s": 50, "clocks": [1200]},
    "cost": {**SERVED, "objective": "cost", "price_per_hour": {"H100 SXM": 2.5, "L40S": 0.8}, "precisions": ["fp8"]},
    "counts": {**SERVED, "gpus": "H100 SXM", "counts": [1, 2], "objective": "time", "engine": "sglang"},
}


@pytest.mark.parametrize("options", CHOSEN.values(), ids=CHOSEN.keys())
def test_choices_of_generation_are_equal(client, options):
    here, there = joulecast.best_generation("llama3_8b", **options), client.best_generation("llama3_8b", **options)
    assert there == here
    assert there.rows == here.rows
    assert there.left_out == here.left_out
    assert there.pareto() == here.pareto()


def test_the_front_is_answered_as_json_and_csv(service):
    question = {"model": "llama3_8b", **SERVED}
    here = joulecast.best_generation("llama3_8b", **SERVED)
    answer = service.ask("/v1/best_generation", question).json
    assert [(row["batch"], row["clock_mhz"]) for row in answer["pareto"]] == [
        (row.batch, row.clock_mhz) for row in here.pareto()
    ]
    assert len(answer["rows"]) == len(here.rows)
    table = service.ask("/v1/best_generation?format=csv", question).text
    assert len(list(csv.DictReader(io.StringIO(table)))) == len(here.rows)


@pytest.mark.parametrize(
    ("model", "gpu", "options"),
    [
        ("sd3_5_medium", "2x H100 SXM", {"steps": 4, "host": 0.5}),
        ("wan_2_1_1_3b", "H100 SXM", {"frames": 17, "execution": "graph"}),
    ],
)
def test_images_and_videos_are_equal(client, model, gpu, options):
    here, there = (where.predict_image(model, gpu, **options) for where in (joulecast, client))
    assert (there.time_per_image_s, there.energy_per_image_j) == (here.time_per_image_s, here.energy_per_image_j)
    assert (there.size, there.steps, there.weights_bytes) == (here.size, here.steps, here.weights_bytes)
    assert there.denoise.tree() == here.denoise.tree()
    assert [each.energy_j for each in there.text] == [each.energy_j for each in here.text]


def test_parallel_training_is_equal(client):
    options = {"data_parallel": 2, "pipeline_parallel": 2, "precision": "bf16", "optimizer": None}
    here, there = (
        where.predict_parallel_training("gpt2", (16, 128), "4x H100 SXM", **options) for where in (joulecast, client)
    )
    assert (there.time_s, there.energy_j, there.power_w) == (here.time_s, here.energy_j, here.power_w)
    assert (there.gpus, there.micro_batches, there.notes) == (4, 2, here.notes)
    stepping = client.predict_parallel_training("gpt2", (16, 128), "4x H100 SXM", **{**options, "optimizer": "sgd"})
    assert stepping.energy_j > here.energy_j


LLAMA = {"model": "llama3_8b", "prompt_tokens": 9, "output_tokens": 9}


def test_too_many_choices_are_refused(narrow):
    answer = narrow.ask("/v1/best_generation", {**LLAMA, "gpus": ["H100 SXM"]})  # 8 clocks x 8 batches
    assert (answer.status, answer.json["given"], answer.json["allowed"]) == (413, "64", "up to 50")
    many = narrow.ask("/v1/predict_many", {"networks": [{"model": "resnet18"}] * 4, "gpu": "A30"})
    assert (many.status, many.json["title"]) == (413, "there are too many networks")


def test_runs_are_equal(client, service):
    options = {"samples": 1000, "precision": "bf16", "carbon": "DE", "price_per_hour": {"H100 SXM": 2.5}, "clock": 1500}
    here = joulecast.predict_run("bert_base", (64, 128), "8x H100 SXM", sharding="zero3", **options)
    there = client.predict_run("bert_base", (64, 128), "8x H100 SXM", sharding="zero3", **options)
    assert there == here
    assert there.interval(0.8) == here.interval(0.8)
    question = {"model": "bert_base", "input_shape": [64, 128], "gpu": "8x H100 SXM", "sharding": "zero3"}
    question |= {**options, "clock_mhz": options.pop("clock")}
    del question["clock"]
    assert service.ask("/v1/predict_run", question).json == json.loads(here.to_json())
    with pytest.raises(InputError, match="cannot be divided into replicas"):
        client.predict_run("bert_base", (63, 128), "8x H100 SXM", **options)
    with pytest.raises(UnknownNameError, match="Atlantis"):
        client.predict_run("bert_base", (64, 128), "8x H100 SXM", **{**options, "carbon": "Atlantis"})


def test_simulations_are_equal(client, service):
    options = {
        "requests": 5.0,
        "prompt_tokens": 100,
        "output_tokens": (20.0, 10.0),
        "duration_s": 10.0,
        "max_sequences": 8,
    }
    here = joulecast.simulate_serving("qwen3_0_6b", "2x L4", tensor_parallel=1, **options)
    there = client.simulate_serving("qwen3_0_6b", "2x L4", tensor_parallel=1, **options)
    assert there.to_csv() == here.to_csv()
    assert there.to_json() == here.to_json()
    assert there.timeline(1.0).to_csv() == here.timeline(1.0).to_csv()
    question = {**options, "output_tokens": [20, 10], "model": "qwen3_0_6b", "gpu": "2x L4", "tensor_parallel": 1}
    assert service.ask("/v1/simulate_serving", question).json == json.loads(here.to_json())
    assert service.ask("/v1/simulate_serving", {**question, "requests": "/etc/passwd"}).status == 422
    assert service.ask("/v1/simulate_serving", {**question, "duration_s": 1e6}).status == 413


def test_the_best_at_a_rate_is_equal(client, service):
    options = {"prompt_tokens": 50, "output_tokens": 10, "gpus": ["L4"], "batches": [8]}
    here, there = (
        where.best_generation("qwen3_0_6b", rate_per_s=20.0, clocks=[2040], **options) for where in (joulecast, client)
    )
    assert there.to_json() == here.to_json()
    asked = {"model": "qwen3_0_6b", "rate_per_s": 20.0, **options}
    endless = {**asked, "gpus": ["L4"] * 20, "batches": [8] * 8}
    assert service.ask("/v1/best_generation", endless).status == 413


def test_the_best_run_is_equal(client, service):
    question = {"samples": 1e5, "precision": "bf16", "gpus": ["A30", "L4", "T4"], "counts": [1, 2]}
    here, there = (where.best_run("bert_base", (32, 128), **question) for where in (joulecast, client))
    assert [way.to_dict() for way in there] == [way.to_dict() for way in here]
    assert [way.to_dict() for way in there.pareto()] == [way.to_dict() for way in here.pareto()]
    assert there.left_out == here.left_out
    asked = {"model": "bert_base", "input_shape": [32, 128], **question}
    assert service.ask("/v1/best_run", asked).json == json.loads(here.to_json())
    refused = service.ask("/v1/best_run", {**asked, "counts": [1] * 8, "clocks_mhz": [900.0 + i for i in range(1000)]})
    assert refused.status == 413
    with pytest.raises(InputError, match="no way to train keeps these limits"):
        client.best_run("bert_base", (32, 128), max_time_s=1, **question)
