"""Malicious questions and made-up ones: the service answers each with a status below 500, and its memory does not grow.

Few requests are made up from the OpenAPI document; for some thousands, set how many each operation of it gets:
JOULECAST_GENERATED_REQUESTS=400 python -m pytest tests/service/test_hostile_questions.py -k generated
"""

import contextlib
import json
import os
import random
from importlib.util import find_spec

import hypothesis
import pytest

from conftest import benchmark

PER_OPERATION = int(os.environ.get("JOULECAST_GENERATED_REQUESTS", "5"))
RELU = {"kind": "relu", "input_shapes": [[32, 64]]}


def test_a_tensor_without_dimensions_has_one_element(service):
    questions = ({"operations": [{"kind": "relu", "input_shapes": [shape]}], "gpu": "A30"} for shape in ([], [1]))
    scalar, one = (service.ask("/v1/predict", question).json for question in questions)
    assert scalar["operations"][0]["energy_j"] == one["operations"][0]["energy_j"]


@pytest.mark.parametrize(
    ("library", "model", "shape", "title"),
    [
        ("timm", "timm/resnet26d.nosuch", [1, 3, 64, 64], "unknown model of timm"),
        ("torchvision", "resnet18", [2**31 - 1] * 4, "this input is larger than any tensor"),
    ],
)
def test_unknown_weights_and_inputs_that_no_tensor_can_be(service, library, model, shape, title):
    if find_spec(library) is None:
        pytest.skip(f"needs {library}")
    answer = service.ask("/v1/predict", {"model": model, "input_shape": shape, "gpu": "A30"})
    assert (answer.status, answer.json["title"]) == (422, title)


def test_any_method_is_one_label(service):
    for i in range(20):
        service.ask("/v1/health", method=f"METHOD{i}")
    text = service.ask("/v1/metrics").text
    assert "METHOD" not in text
    assert 'method="other"' in text


def test_no_question_is_an_error_of_the_service(service):
    with benchmark("fuzz_service") as fuzz_service:
        for number in range(160):
            sent = fuzz_service.json_values(random.Random(number))
            answer = fuzz_service.answered(service.port, sent)
            assert answer.split(b" ", 2)[1] in (b"200", b"400", b"404", b"405", b"413", b"422"), (sent, answer)


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
    assert 100_000 < gauge("joulecast_answer_bytes") <= 200_000
    assert gauge("joulecast_known_bytes") <= 32_000_000


def test_a_large_body_is_read_as_a_small_one_is(service):
    """Large bodies are read by the workers; spaces change nothing but the size."""
    plain = {"operations": [RELU], "gpu": "A30"}
    faults = [{**plain, "gpu": 3}, {**plain, "nosuch": 1}, {"gpu": "A30"}, {**plain, "gpu": "nosuch"}, plain]
    for path, question in (("/v1/predict", each) for each in faults):
        body = json.dumps(question).encode()
        small, large = (service.ask(path, body + b" " * spaces) for spaces in (0, 70_000))
        instance = {"instance": None} if small.status != 200 else {}
        assert (small.status, {**small.json, **instance}) == (large.status, {**large.json, **instance})
    assert service.ask("/v1/predict", b"{" + b" " * 70_000).status == 400
    for body in (b" " * 70_000, json.dumps({**plain, "gpu": "T4"}).encode()):
        undeclared = service.ask("/v1/predict", body, Content_Type="")
        assert (undeclared.status, "Content-Type" in undeclared.json["hint"]) == (415, True)


def test_large_bodies_in_memory_are_limited(started):
    running = started("--max-bodies-bytes", "200000", "--no-extraction")
    spaces = b" " * 150_000
    body = json.dumps({"operations": [RELU], "gpu": "A30"}).encode()
    assert running.ask("/v1/predict", body + spaces).status == 200
    refused = running.ask("/v1/predict", body + spaces + spaces)
    assert (refused.status, refused.json["title"]) == (429, "too many large bodies are waiting")
    # Bodies that were answered or refused take no memory any more.
    assert [running.ask("/v1/predict", body + spaces).status for _ in range(8)] == [200] * 8


@pytest.fixture(scope="module")
def api(narrow):
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")
    # The service with narrow limits, because generated requests may ask for the whole catalogue.
    return schemathesis.openapi.from_url(f"{narrow.url}/v1/openapi.json", headers=narrow.headers)


@pytest.mark.filterwarnings("ignore")  # of schemathesis itself
def test_generated_requests_are_answered_as_the_document_says(api, narrow):
    import schemathesis
    from schemathesis.checks import load_all_checks
    from schemathesis.core.parameters import ParameterLocation
    from schemathesis.specs.openapi import checks

    load_all_checks()
    asked = [
        schemathesis.checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    count = 0
    for result in api.get_all_operations():
        operation = result.ok()

        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @hypothesis.settings(
                max_examples=PER_OPERATION,
                deadline=None,
                database=None,
                derandomize=PER_OPERATION < 50,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case):
                nonlocal count
                count += 1
                response = case.call(headers=narrow.headers)
                # Bodies that the document does not allow are refused; what is too large may be so unread, which
                # schemathesis takes for accepted.
                body = case.meta.components.get(ParameterLocation.BODY)
                wrong = body is not None and body.mode.is_negative and response.status_code != 413
                strict = [checks.negative_data_rejection] if wrong else []
                case.validate_response(response, checks=[*asked, *strict])

            # Operations without parameters and body cannot get an invalid request.
            with contextlib.suppress(hypothesis.errors.Unsatisfiable):
                ask()
    assert count >= 10 * PER_OPERATION
    assert not [line for line in narrow.lines() if line["level"] == "error"]
    print(count, "requests")  # noqa: T201  # seen with -s
