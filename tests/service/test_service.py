"""The API answers what the library does, and refuses what it should, in the library's words."""

import json
from importlib.util import find_spec
from urllib.parse import urlencode

import pytest

import joulecast
from joulecast.errors import MissingDependencyError
from joulecast.extraction import Job, named_network
from joulecast.predictors.networks.composition import EXECUTIONS

RESNET = {"model": "resnet18", "input_shape": [8, 3, 224, 224], "gpu": "A30"}
RELU = {"kind": "relu", "input_shapes": [[32, 64, 56, 56]], "count": 2}


RELU_BF16 = joulecast.Operation("relu", [(32, 64, 56, 56)], precision="bf16")
KNOWN = {
    "by name": (RESNET, ("resnet18", (8, 3, 224, 224), "A30")),
    "operations, equal ones together": (
        {"operations": [RELU_BF16.to_dict(), {**RELU_BF16.to_dict(), "count": 2}], "gpu": "A30"},
        ([(RELU_BF16, 3)], None, "A30"),
    ),
}


@pytest.mark.parametrize(("question", "job"), KNOWN.values(), ids=KNOWN.keys())
def test_other_clocks_of_a_known_network_are_those_of_the_library(service, question, job):
    for clock in (900.0, 1111.25, 1440.0, 900.5):
        for more in ({}, {"strict": True}, {"composition": "sum"}):
            asked = {**question, "clock_mhz": clock, **more}
            expected = joulecast.predict(*job, clock, **more)
            assert service.ask("/v1/predict", asked).json == json.loads(json.dumps(expected.to_dict()))
            assert service.ask("/v1/predict", asked, Accept="text/csv").text == expected.to_csv()
    assert service.ask("/v1/predict", {**question, "clock_mhz": 5000.0}).status == 422
    assert service.ask("/v1/predict", {**question, "clock_mhz": True}).json["title"].startswith("clock_mhz")
    capped = service.ask("/v1/predict", {**question, "clock_mhz": 900.0, "power_limit_w": 110}).json
    assert capped["energy_j"] == joulecast.predict(*job, 900, power_limit_w=110).energy_j


def test_an_answer_that_the_client_has_is_not_sent_again(service):
    first = service.ask("/v1/predict", RESNET)
    again = service.ask("/v1/predict", RESNET, If_None_Match=f'"else", W/{first.headers["etag"]}')
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert service.ask("/v1/predict", {**RESNET, "gpu": "T4"}, If_None_Match=first.headers["etag"]).status == 200
    assert service.ask("/v1/predict", RESNET, Accept="text/csv").headers["etag"] != first.headers["etag"]


def test_without_extraction_only_templates_answer(narrow):
    with pytest.raises(MissingDependencyError) as caught:
        named_network(Job("resnet19", (8, 3, 224, 224)), may_trace=False)
    # Templates know no options.
    for more in ({"model": "resnet19"}, {"assume": {"boxes": 9}}, {"model_options": {"num_classes": 10}}):
        problem = narrow.ask("/v1/predict", {**RESNET, **more}).json
        assert problem["type"] == "urn:joulecast:problem:missing-dependency"
        assert (
            problem["detail"] == str(caught.value)
            if "model" in more
            else next(iter(*more.values())) in problem["given"]
        )
    answer = send(narrow, b"x", name="model.onnx")
    assert (answer.status, answer.json["title"]) == (422, "this service reads no files")
    assert send(narrow, b"x" * 20_001, name="model.onnx").status == 413


def test_a_file_beside_the_service_is_no_model(tmp_path, monkeypatch):
    from joulecast.service.answers import Answers
    from joulecast.service.schemas import PredictQuestion
    from joulecast.service.settings import Settings

    network = joulecast.Network.of([(joulecast.Operation("relu", [(2, 2)]), 1)])
    network.save(tmp_path / "resnet18")
    monkeypatch.chdir(tmp_path)
    prediction = Answers(Settings()).predict(PredictQuestion(**RESNET))
    assert prediction.network == "resnet18"
    assert len(prediction.operations) > 10


def one(kind, shapes, **attributes):
    return {"operations": [{"kind": kind, "input_shapes": shapes, "attributes": attributes}], "gpu": "A30"}


LLAMA = {"model": "llama3_8b", "prompt_tokens": 9, "output_tokens": 9}
IMAGE = {"model": "sd3_5_medium", "gpu": "H100 SXM"}
TRAINED = {"model": "gpt2", "input_shape": [8, 64], "gpu": "A30", "samples": 64}
BROKEN = {
    "no JSON": ("predict", b"{"),
    "empty": ("predict", b""),
    "a list": ("predict", b"[]"),
    "an unknown field": ("predict", {**RESNET, "gpus": ["A30"]}),
    "model and operations": ("predict", {**RESNET, "operations": [RELU]}),
    "no model": ("predict", {"gpu": "A30"}),
    "a size of zero": ("predict", {**RESNET, "input_shape": [0, 3]}),
    "a truth value": ("predict", {**RESNET, "input_shape": [True, 3, 224, 224]}),
    "huge": ("predict", one("linear", [[2**30] * 6], out_features=2**30)),
    "a text as an option": ("predict", {**RESNET, "model_options": {"checkpoint_path": "/etc/passwd"}}),
    "weights": ("predict", {**RESNET, "model_options": {"weights": True}}),
    "no such option": ("predict", {**RESNET, "model_options": {"num_classses": 10}}),
    "many options": ("predict", {**RESNET, "model_options": {f"option{i}": 1 for i in range(17)}}),
    "operations with an assumption": ("predict", {"operations": [RELU], "gpu": "A30", "assume": {"boxes": 9}}),
    "both modes": ("predict", {"operations": [RELU, {**RELU, "mode": "training"}], "gpu": "A30"}),
    "the path of a network": ("predict", {**RESNET, "model": "network.json"}),
    "the path of a program": ("predict", {**RESNET, "model": "model.pt2"}),
    "a path upwards": ("predict", {**RESNET, "model": "../x"}),
    "the path of a gpu": ("predict", {**RESNET, "gpu": "my-gpu.toml"}),
    "the path of a predictor": ("predict", {**RESNET, "predictor": "zoo/a30/forest-inference"}),
    "a registry": ("predict", {**RESNET, "predictor": "models:/x@champion"}),
    "a file": ("best_generation", {**LLAMA, "model": "config.json"}),
    "eager steps": ("best_generation", {**LLAMA, "engine": "transformers"}),
    "an endless prompt": ("best_generation", {**LLAMA, "prompt_tokens": 10**8}),
    "a host's profile": ("predict", {**RESNET, "host": "host.json"}),
    "a host's profile for an image": ("predict_image", {**IMAGE, "host": "host.json"}),
    "a predictor's folder": ("predict_image", {**IMAGE, "predictor": "../zoo"}),
    "an endless image": ("predict_image", {**IMAGE, "height": 99_840, "width": 99_840}),
    "a model file": ("predict_run", {**TRAINED, "model": "model.pt2"}),
    "shapes by name": ("predict_run", {**TRAINED, "input_shape": {"input_ids": [8, 64]}}),
    "no optimizer of the three": ("predict_run", {**TRAINED, "optimizer": "lion"}),
    "endless training": ("predict_run", {**TRAINED, "accumulation": 2**31 - 1}),
}


PROBLEM = {"type", "title", "status", "detail", "given", "allowed", "hint", "instance"}


@pytest.mark.parametrize(("path", "question"), BROKEN.values(), ids=BROKEN.keys())
def test_impossible_questions_are_refused(service, path, question):
    answer = service.ask(f"/v1/{path}", question)
    assert answer.status == (400 if question in (b"{", b"") else 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert "No such file" not in answer.text
    assert answer.json.keys() == PROBLEM


def test_faults_are_named_by_the_field(service):
    for shape in ({"32": ["three"]}, [0, 3, 224, 224], [[8, 3], "x"], "8,3"):
        problem = service.ask("/v1/predict", {**RESNET, "input_shape": shape}).json
        assert problem["title"].startswith("input_shape")
        assert "[" not in problem["title"]
        assert problem["allowed"].startswith("sizes of at least 1")
    sweep = {"model": "resnet18", "input_shape": [8, 3, 224, 224], "price_per_kwh": "x"}
    problem = service.ask("/v1/sweep", sweep).json
    assert problem["title"] == "price_per_kwh has an invalid value"
    assert problem["hint"] == "give another; /v1/openapi.json lists the fields"
    assert service.ask("/v1/predict", {"gpu": "A30"}).json["allowed"] == "either a model or operations"


def test_a_pipeline_and_a_missing_shape_lead_to_the_right_question(service):
    assert "predict_image" in service.ask("/v1/predict", {**RESNET, "model": "sdxl"}).json["hint"]
    for name, shape in (("resnet18", "[32, 3, 224, 224]"), ("Qwen/Qwen3-32B", "[8, 128]")):
        problem = service.ask("/v1/predict", {"model": name, "gpu": "A30"}).json
        assert problem["title"].endswith("needs the shape of its input")
        assert shape in problem["hint"]


@pytest.mark.parametrize(
    ("path", "question", "title", "close", "lists", "file"),
    [
        ("/v1/predict", {**RESNET, "model": "resnet19"}, "unknown model", "resnet", "/v1/models", ".pt2"),
        ("/v1/predict", {**RESNET, "gpu": "A31"}, "unknown GPU", "A", "/v1/gpus lists them", ".toml"),
        ("/v1/gpus/A31", None, "unknown GPU", "A", "/v1/gpus lists them", ".toml"),
    ],
)
def test_unknown_names_are_not_asked_for_as_files(service, path, question, title, close, lists, file):
    problem = service.ask(path, question).json
    assert problem["title"] == title
    assert problem["hint"].startswith(f"did you mean {close}")
    assert lists in problem["hint"]
    assert file not in problem["detail"]


def test_lists_what_there_is(service):
    gpus = {gpu["short_name"]: gpu for gpu in service.ask("/v1/gpus").json["gpus"]}
    assert "48 measurements of networks" in gpus["A30"]["measured"]
    assert "a30/forest-inference" in gpus["A30"]["predictors"]
    assert "time only" in gpus["T4"]["measured"]
    assert (gpus["L4"]["measured"], gpus["L4"]["predictors"]) == (None, [])
    assert service.ask("/v1/gpus/a30").json["sources"]
    models = service.ask("/v1/models?search=resnet50").json["models"]
    assert [row["name"] for row in models] == ["resnet50", "wide_resnet50_2"]
    how = service.ask("/v1/execution").json
    assert how["executions"] == list(EXECUTIONS)
    assert {host["name"]: host["factor"] for host in how["hosts"]}["reference"] == 1.0
    entries = service.ask("/v1/zoo").json["entries"]
    assert service.ask(f"/v1/zoo/{entries[0]}").json["markdown"].startswith("#")
    other = service.ask("/v1/predict", b"{}", method="PUT")
    assert (other.status, "POST" in other.headers["allow"]) == (405, True)
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


# Files of models that are sent: their operations are those that the library lists.

CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
needs_torch = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "transformers"))), reason="needs joulecast[torch,transformers]"
)


def send(service, content, **query):
    path = f"/v1/extract/file?{urlencode(query, doseq=True)}"
    return service.ask(path, content, Content_Type="application/octet-stream")


@needs_torch
def test_operations_of_a_configuration_are_listed(service):
    """Its defaults are the sizes of GPT-2, whose operations the library has on file."""
    answer = send(service, json.dumps(CONFIG).encode(), name="config.json", input_shape="2,8", precision="bf16")
    assert answer.status == 200
    listed = json.loads(json.dumps(joulecast.extract("gpt2", (2, 8), precision="bf16").to_dict()["operations"]))
    assert answer.json["operations"] == listed


def test_operations_of_an_onnx_file_are_listed(service):
    onnx = pytest.importorskip("onnx")
    relu = onnx.helper.make_node("Relu", ["x"], ["y"])
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 16]) for name in ("x", "y")]
    graph = onnx.helper.make_model(onnx.helper.make_graph([relu], "g", value[:1], value[1:]))
    answer = send(service, graph.SerializeToString(), name="../../relu.ONNX")
    (operation,) = answer.json["operations"]
    assert (operation["kind"], operation["input_shapes"]) == ("relu", [[4, 16]])


@pytest.mark.slow
@needs_torch
def test_operations_of_an_exported_program_are_listed(service, tmp_path):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(4, 16),)), tmp_path / "two layers.pt2")
    answer = send(service, (tmp_path / "two layers.pt2").read_bytes(), name="two layers.pt2")
    assert [each["kind"] for each in answer.json["operations"]] == ["linear", "relu"]


REFUSED = {
    "another kind": ({"name": "model.pkl"}, b"x"),
    "no kind": ({"name": "model"}, b"x"),
    "no name": ({}, b"x"),
    "an unknown option": ({"name": "m.onnx", "optimizer": "sgd"}, b"x"),
    "no shape": ({"name": "m.onnx", "input_shape": "a,b"}, b"x"),
    "no JSON": ({"name": "config.json"}, b"{"),
    "a list of operations": ({"name": "config.json"}, b'[{"kind": "relu"}]'),
    "damage": ({"name": "m.onnx"}, b"\x00" * 999),
    "a program that is none": ({"name": "m.pt2"}, b"PK\x03\x04" + b"\x00" * 999),
    "nothing": ({"name": "m.pt2"}, b""),
}


@pytest.mark.parametrize(("query", "content"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_model_is_refused(service, query, content):
    answer = send(service, content, **query)
    assert answer.status == 422
    assert answer.json.keys() == PROBLEM
    assert "joulecast-" not in answer.text  # the folder that contained it
