"""Malicious questions: the service answers each with a status below 500, and its memory does not grow."""

import json
import random
from importlib.util import find_spec

import pytest

from conftest import benchmark
from joulecast.remote import wire

RELU = {"kind": "relu", "input_shapes": [[32, 64]]}
LINEAR = {"kind": "linear", "input_shapes": [[2, 3]], "attributes": {"out_features": 3}}
SOFTMAX = {"kind": "softmax", "input_shapes": [[2, 3]], "attributes": {"dim": 1}}
BATCH = {"requests": [{"operations": [RELU], "gpu": "A30"}]}
ODD = [None, True, -1, 0, 2**31, 2**64, 1e308, -0.5, "", "x" * 2000, "\0", "../x", [], [[]], {}, {"a": 1}, [None] * 20]


def test_a_batch_is_json_whoever_asks(service):
    answer = service.ask("/v1/predict/batch", BATCH, Accept=wire.MEDIA_TYPE)
    assert answer.status == 200
    assert answer.json == service.ask("/v1/predict/batch", BATCH).json


def test_a_tensor_without_dimensions_has_one_element(service):
    for path in ("/v1/predict", "/v1/predict_operations"):
        scalar, one = (
            service.ask(path, {"operations": [{"kind": "relu", "input_shapes": [shape]}], "gpu": gpu})
            for shape in ([], [1])
            for gpu in ("A30",)
        )
        assert (scalar.status, one.status) == (200, 200)
    assert scalar.json["operations"][0]["energy_j"] == one.json["operations"][0]["energy_j"]


def test_a_body_without_a_content_type_is_refused(service):
    answer = service.ask("/v1/predict", {"operations": [RELU], "gpu": "A30"}, Content_Type="")
    assert answer.status == 415
    assert "Content-Type" in answer.json["hint"]


@pytest.mark.skipif(find_spec("timm") is None, reason="needs joulecast[timm]")
def test_unknown_weights_of_a_known_model(service):
    answer = service.ask("/v1/predict", {"model": "timm/resnet26d.nosuch", "input_shape": [1, 3, 64, 64], "gpu": "A30"})
    assert (answer.status, answer.json["title"]) == (422, "unknown model of timm")


@pytest.mark.skipif(find_spec("torchvision") is None, reason="needs joulecast[torch]")
def test_an_input_that_no_tensor_can_be(service):
    answer = service.ask("/v1/predict", {"model": "resnet18", "input_shape": [2**31 - 1] * 4, "gpu": "A30"})
    assert (answer.status, answer.json["title"]) == (422, "this input is larger than any tensor")


def test_any_method_is_one_label(service):
    for i in range(20):
        service.ask("/v1/health", method=f"METHOD{i}")
    text = service.ask("/v1/metrics").text
    assert "METHOD" not in text
    assert 'method="other"' in text


def changed(value, rng):
    """The question with one of its values replaced by an unexpected one."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        return {**value, name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    return rng.choice(ODD)


QUESTIONS = [
    ("/v1/predict", {"operations": [{**RELU, "count": 3, "module_paths": ["a"]}], "gpu": "A30", "clock_mhz": 900}),
    ("/v1/predict", {"model": "resnet18", "input_shape": [1, 3, 64, 64], "gpu": "A30", "precision": "fp16"}),
    ("/v1/predict/batch", BATCH),
    ("/v1/best", {"model": "resnet18", "input_shape": [1, 3, 64, 64], "gpus": ["A30"], "price_per_kwh": 0.3}),
    ("/v1/extract", {"operations": [LINEAR]}),
    ("/v1/explain", {"operation": SOFTMAX, "gpu": "A30"}),
    ("/v1/predict_many", {"networks": [{"operations": [RELU]}, {"model": "resnet18"}], "gpu": "A30"}),
    (
        "/v1/best_generation",
        {
            "model": "llama3_8b",
            "prompt_tokens": 9,
            "output_tokens": 9,
            "gpus": ["2x L40S"],
            "batches": [1],
            "counts": [1],
        },
    ),
    ("/v1/predict_image", {"model": "sd3_5_medium", "gpu": "H100 SXM", "steps": 2, "height": 512, "host": 0.5}),
    (
        "/v1/predict_parallel_training",
        {"model": "gpt2", "input_shape": [8, 64], "gpu": "4x A30", "data_parallel": 4, "optimizer": "adamw"},
    ),
]


def test_no_question_is_an_error_of_the_service(service):
    for number in range(240):
        rng = random.Random(number)
        path, question = QUESTIONS[number % len(QUESTIONS)]
        for _ in range(rng.choice([1, 1, 2])):
            question = changed(question, rng)
        answer = service.ask(path, question, Accept=rng.choice(["*/*", "text/csv", wire.MEDIA_TYPE, "x" * 500]))
        assert answer.status in (200, 400, 404, 405, 413, 422), (path, question, answer.text)


@pytest.mark.slow
def test_no_request_is_an_error_of_the_service_in_a_tenth_of_all():
    with benchmark("fuzz_service") as fuzz_service:
        tally = fuzz_service.run((), 400, 1)
    assert tally.faults == []
    assert sum(tally.counts.values()) == 400


def test_memory_stays_level(narrow):
    """Paths and reasons count as much as operations do where an answer is remembered."""
    path = "p" * 900

    def question(number):
        paths = [f"{number}.{i}.{path}" for i in range(12)]
        dropped = [{"name": "x", "count": 1, "module_paths": paths, "reason": "r"}]
        return {"operations": [RELU], "dropped": dropped, "gpu": "A30"}

    def gauge(name):
        lines = narrow.ask("/v1/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    for number in range(40):
        assert narrow.ask("/v1/predict", question(number)).status == 200
    # Each takes more than its paths, and 40 of them take twice the memory that is allowed.
    assert 100_000 < gauge("joulecast_known_bytes") <= 200_000
    assert gauge("joulecast_answer_bytes") <= 200_000


def test_a_large_body_is_read_as_a_small_one_is(service):
    """Large bodies are read by the workers; spaces change nothing but the size."""
    plain = {"operations": [RELU], "gpu": "A30"}
    faults = [{**plain, "gpu": 3}, {**plain, "nosuch": 1}, {"gpu": "A30"}, {**plain, "gpu": "nosuch"}, plain]
    for path, question in [*(("/v1/predict", each) for each in faults), ("/v1/predict/batch", BATCH)]:
        body = json.dumps(question).encode()
        small, large = (service.ask(path, body + b" " * spaces) for spaces in (0, 70_000))
        instance = {"instance": None} if small.status != 200 else {}
        assert (small.status, {**small.json, **instance}) == (large.status, {**large.json, **instance})
    assert service.ask("/v1/predict", b"{" + b" " * 70_000).status == 400
    assert service.ask("/v1/predict", b" " * 70_000, Content_Type="").status == 415


def test_large_bodies_in_memory_are_limited(started):
    running = started("--max-bodies-bytes", "800000", "--no-extraction")
    spaces = b" " * 150_000
    body = json.dumps({"operations": [RELU], "gpu": "A30"}).encode()
    assert running.ask("/v1/predict", body + spaces).status == 200
    refused = running.ask("/v1/predict", body + spaces + spaces)
    assert (refused.status, refused.json["title"]) == (429, "too many large bodies are waiting")
    assert "quarter" in refused.json["allowed"]
    # Bodies that were answered or refused take no memory any more.
    assert [running.ask("/v1/predict", body + spaces).status for _ in range(8)] == [200] * 8
