"""Files of models that are sent to a service: their operations are those that the library lists."""

import json
from importlib.util import find_spec
from urllib.parse import urlencode

import pytest

import joulecast

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
    assert {"type", "title", "status", "detail", "given", "allowed", "hint", "instance"} == answer.json.keys()
    assert "joulecast-" not in answer.text  # the folder that contained it


def test_a_service_without_extraction_reads_no_files(narrow):
    answer = send(narrow, b"x", name="model.onnx")
    assert (answer.status, answer.json["title"]) == (422, "this service reads no files")
    assert send(narrow, b"x" * 20_001, name="model.onnx").status == 413
