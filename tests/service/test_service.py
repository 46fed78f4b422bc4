"""The API answers what the library does, and refuses what it should, in the library's words."""

import csv
import io
import json

import pytest

import joulecast
from joulecast.errors import JoulecastError, MissingDependencyError
from joulecast.extraction import Job, named_network
from joulecast.predictors.networks.execution import EXECUTIONS

RESNET = {"model": "resnet18", "input_shape": [8, 3, 224, 224], "gpu": "A30"}
RELU = {"kind": "relu", "input_shapes": [[32, 64, 56, 56]], "count": 2}


def test_predicts_as_the_library_does(service):
    answer = service.ask("/v1/predict", RESNET)
    expected = joulecast.predict("resnet18", (8, 3, 224, 224), "A30").to_dict()
    assert answer.status == 200
    assert answer.json == json.loads(json.dumps(expected))


def test_other_clocks_of_a_known_network_are_those_of_the_library(service):
    for clock in (900.0, 1111.25, 1440.0, 900.5):
        for more in ({}, {"strict": True}, {"composition": "sum"}):
            answer = service.ask("/v1/predict", {**RESNET, "clock_mhz": clock, **more})
            expected = joulecast.predict("resnet18", (8, 3, 224, 224), "A30", clock, **more).to_dict()
            assert answer.json == json.loads(json.dumps(expected))
    assert service.ask("/v1/predict", {**RESNET, "clock_mhz": 5000.0}).status == 422
    capped = service.ask("/v1/predict", {**RESNET, "clock_mhz": 900.0, "power_limit_w": 110}).json
    assert capped["energy_j"] == joulecast.predict("resnet18", (8, 3, 224, 224), "A30", 900, power_limit_w=110).energy_j


def test_a_known_list_of_operations_is_answered_at_other_clocks(service):
    operation = joulecast.Operation("relu", [(32, 64, 56, 56)], precision="bf16")
    item = {"kind": "relu", "input_shapes": [[32, 64, 56, 56]], "precision": "bf16"}
    for clock in (900, 1110, 1440):
        question = {"operations": [item], "gpu": "H100 SXM", "clock_mhz": clock}
        expected = joulecast.predict([(operation, 1)], None, "H100 SXM", clock)
        assert service.ask("/v1/predict", question).json["time_s"] == expected.time_s
        assert service.ask("/v1/predict", question, Accept="text/csv").text == expected.to_csv()
    wrong = {"operations": [item], "gpu": "H100 SXM", "clock_mhz": True}
    assert service.ask("/v1/predict", wrong).json["title"].startswith("clock_mhz")


def test_predicts_a_list_of_operations(service):
    answer = service.ask("/v1/predict", {"operations": [RELU, RELU], "gpu": "A30", "mode": "training"})
    operation = joulecast.Operation("relu", [(32, 64, 56, 56)], mode="training")
    expected = joulecast.predict([(operation, 4)], None, "A30")
    assert answer.json["energy_j"] == expected.energy_j
    assert answer.json["operations"][0]["count"] == 4


def test_predicts_single_operations(service):
    question = {"operations": [{key: RELU[key] for key in ("kind", "input_shapes")}], "gpu": "A30"}
    operation = joulecast.Operation("relu", [(32, 64, 56, 56)])
    row = service.ask("/v1/predict_operations", question).json["operations"][0]
    assert row["time_s"] == joulecast.predict_operations([operation], "A30").time_s[0]


def test_lists_the_operations_of_a_model(service):
    network = joulecast.extract("gpt2", (1, 32), mode="training", optimizer="adamw")
    question = {"model": "gpt2", "input_shape": [1, 32], "mode": "training", "optimizer": "adamw"}
    assert service.ask("/v1/extract", question).json == json.loads(json.dumps(network.to_dict()))
    rows = csv.DictReader(io.StringIO(service.ask("/v1/extract?format=csv", question).text))
    assert {"kind", "flops", "bytes_read"} <= set(rows.fieldnames or ())


def test_csv_is_that_of_the_library(service):
    expected = joulecast.predict("resnet18", (8, 3, 224, 224), "A30").to_csv()
    answer = service.ask("/v1/predict", RESNET, Accept="text/csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text == expected


def test_an_answer_that_the_client_has_is_not_sent_again(service):
    first = service.ask("/v1/predict", RESNET)
    again = service.ask("/v1/predict", RESNET, If_None_Match=f'"else", W/{first.headers["etag"]}')
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert service.ask("/v1/predict", {**RESNET, "gpu": "T4"}, If_None_Match=first.headers["etag"]).status == 200
    assert service.ask("/v1/predict", RESNET, Accept="text/csv").headers["etag"] != first.headers["etag"]


REFUSED = {
    "several GPUs": {**RESNET, "gpu": "A100"},
    "no such mode": {**RESNET, "mode": "sleeping"},
    "no such precision": {**RESNET, "precision": "fp12"},
    "impossible clock": {**RESNET, "clock_mhz": 100},
    "precision that the GPU has not": {**RESNET, "gpu": "T4", "precision": "bf16"},
}


@pytest.mark.parametrize("question", REFUSED.values(), ids=REFUSED.keys())
def test_refuses_in_the_words_of_the_library(service, question):
    arguments = {**question, "clock": question.get("clock_mhz")}
    arguments.pop("clock_mhz", None)
    arguments["input_shape"] = tuple(arguments["input_shape"])
    with pytest.raises(JoulecastError) as caught:
        joulecast.predict(**arguments)
    answer = service.ask("/v1/predict", question)
    assert answer.status == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert (problem["title"], problem["hint"]) == (caught.value.what, caught.value.hint)
    assert problem["detail"] == str(caught.value)


def test_without_extraction_only_templates_answer(narrow):
    with pytest.raises(MissingDependencyError) as caught:
        named_network(Job("resnet19", (8, 3, 224, 224)), may_trace=False)
    problem = narrow.ask("/v1/predict", {**RESNET, "model": "resnet19"}).json
    assert problem["detail"] == str(caught.value)
    assert problem["type"] == "urn:joulecast:problem:missing-dependency"


@pytest.mark.parametrize("more", [{"assume": {"boxes": 9}}, {"model_options": {"num_classes": 10}}])
def test_templates_know_no_options(narrow, more):
    problem = narrow.ask("/v1/predict", {**RESNET, **more}).json
    assert problem["type"] == "urn:joulecast:problem:missing-dependency"
    assert next(iter(*more.values())) in problem["given"]


PATHS = {
    "network": {**RESNET, "model": "network.json"},
    "absolute": {**RESNET, "model": "/etc/passwd"},
    "program": {**RESNET, "model": "model.pt2"},
    "up": {**RESNET, "model": "../x"},
    "gpu": {**RESNET, "gpu": "my-gpu.toml"},
    "gpu path": {**RESNET, "gpu": "/var/my-gpu.TOML"},
    "predictor": {**RESNET, "predictor": "zoo/a30/forest-inference"},
    "predictor path": {**RESNET, "predictor": "/var/entry"},
    "predictor up": {**RESNET, "predictor": "../zoo"},
    "registry": {**RESNET, "predictor": "models:/x@champion"},
}


@pytest.mark.parametrize("question", PATHS.values(), ids=PATHS.keys())
def test_takes_no_paths(service, question):
    answer = service.ask("/v1/predict", question)
    assert answer.status == 422
    assert "No such file" not in answer.text


def test_a_file_beside_the_service_is_no_model(tmp_path, monkeypatch):
    from joulecast.service.answers import Answers
    from joulecast.service.questions import PredictQuestion
    from joulecast.service.settings import Settings

    network = joulecast.Network.of([(joulecast.Operation("relu", [(2, 2)]), 1)])
    network.save(tmp_path / "resnet18")
    monkeypatch.chdir(tmp_path)
    prediction = Answers(Settings()).predict(PredictQuestion(**RESNET))
    assert prediction.network == "resnet18"
    assert len(prediction.operations) > 10


def one(kind, shapes, **attributes):
    return {"operations": [{"kind": kind, "input_shapes": shapes, "attributes": attributes}], "gpu": "A30"}


BROKEN = {
    "no JSON": (b"{", 400),
    "empty": (b"", 400),
    "a list": (b"[]", 422),
    "an unknown field": ({**RESNET, "gpus": ["A30"]}, 422),
    "model and operations": ({**RESNET, "operations": [RELU]}, 422),
    "no model": ({"gpu": "A30"}, 422),
    "a size of zero": ({**RESNET, "input_shape": [0, 3]}, 422),
    "a truth value": ({**RESNET, "input_shape": [True, 3, 224, 224]}, 422),
    "huge": (one("linear", [[2**30] * 6], out_features=2**30), 422),
    "a stride of zero": (one("conv2d", [[1, 3, 8, 8]], out_channels=4, kernel_size=3, stride=0), 422),
    "a text as an option": ({**RESNET, "model_options": {"checkpoint_path": "/etc/passwd"}}, 422),
    "weights": ({**RESNET, "model_options": {"weights": True}}, 422),
    "no name of an option": ({**RESNET, "model_options": {"a b": 1}}, 422),
    "no such option": ({**RESNET, "model_options": {"num_classses": 10}}, 422),
    "an endless option": ({**RESNET, "model_options": {"num_classes": 10**12}}, 422),
    "many options": ({**RESNET, "model_options": {f"option{i}": 1 for i in range(17)}}, 422),
    "another assumption": ({**RESNET, "assume": {"expert": "uniform"}}, 422),
    "boxes without end": ({**RESNET, "assume": {"boxes": 10**6}}, 422),
    "operations with an assumption": ({"operations": [RELU], "gpu": "A30", "assume": {"boxes": 9}}, 422),
    "both modes": ({"operations": [RELU, {**RELU, "mode": "training"}], "gpu": "A30"}, 422),
}


@pytest.mark.parametrize(("question", "status"), BROKEN.values(), ids=BROKEN.keys())
def test_impossible_questions_are_refused(service, question, status):
    answer = service.ask("/v1/predict", question)
    assert answer.status == status
    assert {"type", "title", "status", "detail", "given", "allowed", "hint", "instance"} == answer.json.keys()


def test_faults_are_named_by_the_field(service):
    for shape in ({"32": ["three"]}, [0, 3, 224, 224], [[8, 3], "x"], "8,3"):
        problem = service.ask("/v1/predict", {**RESNET, "input_shape": shape}).json
        assert problem["title"].startswith("input_shape")
        assert "[" not in problem["title"]
        assert problem["allowed"].startswith("sizes of at least 1")
    problem = service.ask(
        "/v1/sweep", {"model": "resnet18", "input_shape": [8, 3, 224, 224], "price_per_hour": "x"}
    ).json
    assert problem["title"] == "price_per_hour has an invalid value"
    assert service.ask("/v1/predict", {"gpu": "A30"}).json["allowed"] == "either a model or operations"


def test_an_unknown_model_is_not_asked_for_as_a_file(service):
    problem = service.ask("/v1/predict", {**RESNET, "model": "resnet19"}).json
    assert problem["title"] == "unknown model"
    assert problem["hint"].startswith("did you mean resnet")
    assert "/v1/models" in problem["hint"]
    assert ".pt2" not in problem["detail"]


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/gpus/A31"])
def test_an_unknown_gpu_is_not_asked_for_as_a_file(service, path):
    question = {**RESNET, "gpu": "A31"} if path == "/v1/predict" else None
    problem = service.ask(path, question).json
    assert problem["title"] == "unknown GPU"
    assert problem["hint"].startswith("did you mean A")
    assert problem["hint"].endswith("/v1/gpus lists them")
    assert ".toml" not in problem["detail"]


def test_lists_what_there_is(service):
    gpus = {gpu["short_name"]: gpu for gpu in service.ask("/v1/gpus").json["gpus"]}
    assert "48 measurements of networks" in gpus["A30"]["measured"]
    assert "a30/forest-inference" in gpus["A30"]["predictors"]
    assert "time only" in gpus["T4"]["measured"]
    assert (gpus["L4"]["measured"], gpus["L4"]["predictors"]) == (None, [])
    assert service.ask("/v1/gpus/a30").json["sources"]
    models = service.ask("/v1/models?search=resnet50").json["models"]
    assert [row["name"] for row in models] == ["resnet50", "wide_resnet50_2"]
    entries = service.ask("/v1/zoo").json["entries"]
    assert service.ask(f"/v1/zoo/{entries[0]}").json["markdown"].startswith("#")
    for path in ("/v1/gpus/A31", "/v1/zoo/a30/none", "/v1/nothing", "/static/..%2fpage.py", "/static/page.py"):
        assert service.ask(path).status == 404, path


def test_every_listed_model_runs_as_listed(service):
    models = service.ask("/v1/models").json["models"]
    refused = {
        row["name"]: answer.text
        for row in models
        for answer in [service.ask("/v1/extract", {"model": row["name"], "input_shape": row["input_shape"]})]
        if answer.status != 200
    }
    assert refused == {}


def test_the_document_has_examples_that_are_answered(service):
    document = service.ask("/v1/openapi.json").json
    asked = 0
    for path, methods in document["paths"].items():
        body = methods.get("post", {}).get("requestBody")
        if body is None or "application/json" not in body["content"]:
            continue
        schema = document["components"]["schemas"][body["content"]["application/json"]["schema"]["$ref"].split("/")[-1]]
        for example in schema["examples"]:
            assert service.ask(path, example).status == 200, (path, example)
            asked += 1
    assert asked >= 9


def test_methods(service):
    answer = service.ask("/v1/predict", b"{}", method="PUT")
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


def test_a_prediction_carries_its_tree_where_that_is_asked_for(service):
    question = {"model": "resnet18", "input_shape": [8, 3, 224, 224], "gpu": "A30", "mode": "training"}
    assert "tree" not in service.ask("/v1/predict", question).json
    tree = joulecast.predict("resnet18", (8, 3, 224, 224), "A30", mode="training").tree()
    assert service.ask("/v1/predict", {**question, "tree": True}).json["tree"] == tree.to_nested()


def test_executions_and_hosts_are_listed(service):
    listed = service.ask("/v1/execution").json
    assert listed["executions"] == list(EXECUTIONS)
    assert {host["name"]: host["factor"] for host in listed["hosts"]}["reference"] == 1.0
