"""The client gives what the library gives: values, types and errors."""

import doctest
import inspect
import json
import math
import runpy
from dataclasses import replace

import numpy as np
import pytest
from documented import ROOT, assert_shows, blocks, example_names, lines, run_line

import joulecast
from joulecast.errors import InputError, JoulecastError, ServiceError, UncoveredError, UnknownNameError
from joulecast.hardware.host import write_profile
from joulecast.remote import wire
from service_process import PROFILE

RELU = joulecast.Operation("relu", [(32, 64, 56, 56)])
ODD = joulecast.Operation("softmax", [(8, 128)], {"dim": -1})


def test_methods_have_the_arguments_of_the_library():
    asked = {name: each for name, each in vars(joulecast.Client).items() if name in joulecast.__all__}
    assert len(asked) == 13
    for name, method in asked.items():
        _, *parameters = inspect.signature(method).parameters.values()
        assert parameters == [*inspect.signature(getattr(joulecast, name)).parameters.values()]


def test_what_only_a_program_has_is_not_sent():
    client = joulecast.Client("http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"cannot be sent this argument\n.*operators"):
        client.predict("resnet18", (1, 3, 64, 64), "A30", operators={"own.op": "relu"})
    with pytest.raises(InputError, match="cannot be sent"):
        client.predict(object(), (1,), "A30")


SMALL = ("resnet18", (8, 3, 64, 64))
CONVOLUTION = {"out_channels": 32, "kernel_size": 3, "padding": 1}
LAST = joulecast.Network.from_dict(
    {
        "operations": [joulecast.Operation("conv2d", [(8, 32, 56, 56)], CONVOLUTION, precision="fp16").to_dict()],
        "channels_last": True,
        "parameter_bytes": {"stored": 10**9, "learned": 0, "casts": 5},
    }
)
LENGTHS = {"prompt_tokens": 200, "output_tokens": 100}
WAYS = {**LENGTHS, "gpus": ["H100 SXM", "2x L40S"], "batches": [1, 32]}
COSTS = {"objective": "cost", "price_per_hour": {"H100 SXM": 2.5, "L40S": 0.8}, "precisions": ["fp8"]}
LIMITS = {"max_time_per_output_token_s": 0.03, "min_tokens_per_s": 50, "clocks": [1200]}
AT_A_RATE = {"prompt_tokens": 50, "output_tokens": 10, "gpus": ["L4"], "batches": [8], "rate_per_s": 20.0}
VARIED = {"batch": 16, "prompt_tokens": (200, 100), "output_tokens": [10, 20, 600]}
RUN = {"samples": 1000, "precision": "bf16", "carbon": "DE", "price_per_hour": {"H100 SXM": 2.5}, "clock": 1500}
STAGES = {"pipeline_parallel": 2, "carbon": [100.0, 300.0], "price_per_hour": "AWS"}
RUNS = {"samples": 1e5, "precision": "bf16", "gpus": ["A30", "L4", "T4"], "counts": [1, 2]}
ARRIVING = {"requests": 5.0, "prompt_tokens": 100, "output_tokens": (20.0, 10.0), "duration_s": 10.0}
PRICED = {"batch_sizes": [1, 8], "objective": "cost", "price_per_hour": {"A30": 1.0, "L4": 0.5}}
BOXES = {"assume": {"boxes": 50}, "model_options": {"num_classes": 10}}
OPTIMIZED = {"mode": "training", "optimizer": "adamw"}
ANSWERED = [
    ("predict", ("resnet50", (32, 3, 224, 224), "A30"), {}),
    ("predict", (*SMALL, "A30", 900), {"mode": "training", "precision": "fp32"}),
    ("predict", (*SMALL, "A30"), OPTIMIZED),
    ("predict", ("bert_base", {"input_ids": (2, 16)}, "H100 SXM"), {"precision": "bf16"}),
    ("predict", ("gpt2", (4, 1), "T4"), {"cache_length": 100}),
    ("predict", ([(RELU, 3), (ODD, 2)], None, "A30"), {}),
    ("predict", (*SMALL, "A30"), {"host": 0.5}),
    ("predict", (LAST, None, "RTX 4090"), {}),
    ("predict", (*SMALL, "H100 SXM"), {"calibration": PROFILE}),
    ("predict", (*SMALL, "A30"), {"execution": "graph", "host": "h100-server"}),
    ("predict", ("ssdlite320_mobilenet_v3_large", (1, 3, 320, 320), "T4"), BOXES),
    ("predict", (*SMALL, "H100"), {"execution": "compiled"}),
    ("predict", (*SMALL, "A30"), {"composition": "sum"}),
    ("extract", ("gpt2", (1, 32)), OPTIMIZED),
    ("explain", (RELU, "A30", 900), {}),
    ("explain", (RELU, "H100 SXM", 900), {"calibration": PROFILE}),
    ("best", SMALL, {"gpus": ["A30", "T4"]}),
    ("best", SMALL, {**PRICED, "gpus": ["A30", "L4"], "max_time_s": 0.1}),
    ("sweep", SMALL, {"gpus": "A30", "clocks": [900, 1440], "precision": ["fp32", "default"]}),
    ("sweep", SMALL, {**PRICED, "gpus": ["A30", "L4"]}),
    ("best", SMALL, {**PRICED, "gpus": ["H100 SXM", "L4"], "price_per_hour": "AWS"}),
    ("predict_generation", ("llama3_8b", "H100 SXM"), {**LENGTHS, "batch": 16, "tensor_parallel": 2}),
    ("predict_generation", ("llama3_8b", "L4"), {**VARIED, "host": "25 ms"}),
    ("best_generation", ("llama3_8b",), {**WAYS, **LIMITS}),
    ("best_generation", ("llama3_8b",), {**WAYS, **COSTS}),
    ("best_generation", ("llama3_8b",), {**WAYS, "gpus": "H100 SXM", "counts": [1, 2], "engine": "sglang"}),
    ("best_generation", ("qwen3_0_6b",), {**AT_A_RATE, "clocks": [2040]}),
    ("simulate_serving", ("qwen3_0_6b", "2x L4"), {**ARRIVING, "tensor_parallel": 1, "level": 0.9}),
    ("predict_image", ("sd3_5_medium", "H100 SXM"), {"steps": 4, "host": 0.5, "gpus": 2}),
    ("predict_image", ("wan_2_1_1_3b", "H100 SXM"), {"frames": 17, "execution": "graph"}),
    ("predict_run", ("bert_base", (64, 128), "8x H100 SXM"), {**RUN, "sharding": "zero3"}),
    ("predict_run", ("gpt2", (16, 128), "4x H100 SXM"), {**RUN, **STAGES}),
    ("best_run", ("bert_base", (32, 128)), RUNS),
]


def equal(one, other):
    """Equal predictions. The table of errors is not sent to clients, but what follows from it is."""
    for of_errors in (lambda each: each.interval(0.9), lambda each: (each.interval_basis, each.far_outside)):
        assert of_errors(one) == of_errors(other)
    return replace(one, spread=None) == replace(other, spread=None)


@pytest.mark.parametrize(("function", "arguments", "options"), ANSWERED)
def test_answers_are_equal(client, service, function, arguments, options):
    """In Python, as JSON and as CSV."""
    here, there = (getattr(where, function)(*arguments, **options) for where in (joulecast, client))
    assert type(there) is type(here)
    assert there.to_json() == here.to_json()
    question = wire.question_of(getattr(joulecast, function), arguments, options)
    plain = service.ask(f"/v1/{function}", question).json
    assert {name: plain[name] for name in here.to_dict()} == json.loads(here.to_json())
    assert service.ask(f"/v1/{function}?format=csv", question).text == here.to_csv()
    if function != "best_run":  # Of its ways, those that are chosen or on the front are sent.
        assert there.to_csv() == here.to_csv()
    if hasattr(here, "pareto"):
        assert [way.to_dict() for way in there.pareto()] == [way.to_dict() for way in here.pareto()]
    if callable(getattr(here, "interval", None)):
        assert [there.interval(level) for level in (0.5, 0.9)] == [here.interval(level) for level in (0.5, 0.9)]
    if hasattr(here, "tree"):
        assert there.tree() == here.tree()
    if function == "predict":
        assert equal(there, here)
        assert "tree" not in plain
        assert service.ask("/v1/predict", {**question, "tree": True}).json["tree"] == here.tree().to_nested()
    if function == "explain":
        assert there.nearest == here.nearest
    if function == "best_generation":  # All ways, because a plot shows them.
        assert there.rows == here.rows
        assert len(plain["rows"]) == len(here.rows)


def test_networks_and_operations_are_equal(client):
    network = joulecast.extract("bert_base", (2, 16))
    assert client.extract("bert_base", (2, 16)) == network
    assert client.extract(network) == network
    for more in ({}, {"assume": {"attention": "cudnn"}}):
        assert equal(client.predict(network, None, "A30", **more), joulecast.predict(network, None, "A30", **more))
    here = joulecast.predict_operations([RELU, ODD], "A30")
    there = client.predict_operations([RELU, ODD], "A30")
    assert there.operations == here.operations
    assert there.source == here.source
    for name in ("time_s", "power_w", "energy_j", "device_time_s"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    np.testing.assert_array_equal(there.interval(0.9).energy_j, here.interval(0.9).energy_j)
    with pytest.raises(InputError, match="certain levels"):
        there.interval(0.87)


PROMPT = {"prompt_tokens": 10, "output_tokens": 10}
REFUSED = [
    ("predict", ("resnet18", (1, 3, 64, 64), "A30"), {"calibration": PROFILE}),
    ("best", ("resnet18", (1, 3, 64, 64)), {"gpus": ["A30", "L4"], "calibration": PROFILE}),
    ("predict", ([(RELU.replace(precision="bf16"), 3)], None, "T4"), {}),
    ("predict", SMALL, {"gpu": None}),
    ("predict", ([(RELU.replace(mode="training"), 3)], None, "A30"), {"mode": "training", "optimizer": "sgd"}),
    ("predict", (*SMALL, "A30"), {"optimizer": "sgd"}),
    ("predict_many", (["resnet18"], "A30", 100), {"input_shape": (1, 3, 64, 64)}),
    ("predict_many", (["resnet18"], None), {"input_shape": (1, 3, 64, 64)}),
    ("predict_operations", ([RELU], None), {}),
    ("predict_operations", ([], "A30"), {}),
    ("best", SMALL, {"max_time_s": 1e-9}),
    ("best_generation", ["llama3_8b"], {**PROMPT, "objective": "fame"}),
    ("predict_image", ["flux_1_dev", "H100 SXM"], {"height": 1001}),
    ("predict_run", ["gpt2", (12, 64), "3x A100 80GB SXM"], {"samples": 1000, "tensor_parallel": 3}),
    ("predict_generation", ["llama3_1_70b", "L4"], {**PROMPT, "batch": 1}),
    ("predict_generation", ["llama3_8b", "H100 SXM"], {**PROMPT, "batch": 1, "output_tokens": [0.0, 5.0]}),
    ("predict_run", ["bert_base", (64, 128), "8x H100 SXM"], {"samples": 1000, "carbon": "Atlantis"}),
    ("best_run", ["bert_base", (32, 128)], {"samples": 1e5, "max_time_s": 1, "gpus": ["A30"], "counts": [1]}),
]


@pytest.mark.parametrize(("function", "arguments", "options"), REFUSED)
def test_errors_are_equal(client, function, arguments, options):
    with pytest.raises(JoulecastError) as here:
        getattr(joulecast, function)(*arguments, **options)
    with pytest.raises(type(here.value)) as there:
        getattr(client, function)(*arguments, **options)
    assert str(there.value) == str(here.value)


def test_calibrations_of_the_service_are_known_by_name_alone(client, service, tmp_path, call):
    (listed,) = service.ask("/v1/calibrations").json["calibrations"]
    assert (listed["name"], listed["sha256"]) == ("desk", PROFILE.sha256)
    here = joulecast.predict(*SMALL, "H100 SXM", calibration=PROFILE)
    assert equal(client.predict(*SMALL, "H100 SXM", calibration="desk"), here)
    asked = {"model": "resnet18", "input_shape": [8, 3, 64, 64], "gpu": "H100 SXM", "calibration": "desk"}
    assert service.ask("/v1/predict", asked).json["time_s"] == here.time_s
    PROFILE.write(tmp_path / "mine.json")
    with pytest.raises(UnknownNameError, match="unknown calibration"):
        client.predict(*SMALL, "H100 SXM", calibration="nobodys")
    for path in (str(tmp_path / "mine.json"), "../desk", "desk.json", "/etc/passwd"):
        refused = service.ask("/v1/predict", {**asked, "calibration": path})
        assert (refused.status, refused.json["title"]) == (422, "unknown calibration")
    (tmp_path / "mine.json").write_text("{}")
    code, _, said = call("serve", "--port", "0", "--calibrations", str(tmp_path))
    assert (code, "calibration" in said) == (2, True)


def test_the_example_of_the_client_runs(service):
    (test,) = doctest.DocTestFinder(recurse=False).find(joulecast.Client, "Client", globs={"Client": joulecast.Client})
    for example in test.examples:
        example.source = example.source.replace("http://127.0.0.1:8000", service.url)
    assert doctest.DocTestRunner(verbose=False).run(test) == (0, 2)


def test_a_service_that_does_not_answer_or_needs_a_token_is_an_error(narrow):
    with pytest.raises(ServiceError, match="needs a token") as caught:
        joulecast.Client(narrow.url).gpus()
    assert caught.value.status == 401
    token = narrow.headers["Authorization"].split()[1]
    assert joulecast.Client(narrow.url, token=token).gpus()
    with pytest.raises(ServiceError, match="does not answer"):
        joulecast.Client("http://127.0.0.1:9").gpus()
    for url in ("127.0.0.1:8000", "file:///etc/passwd", "http://", "http://host?x=1"):
        with pytest.raises(InputError, match="URL of a service"):
            joulecast.Client(url)


def test_only_known_classes_come_over_the_wire():
    values = {"a": (1, 2.5, math.inf), "b": RELU, "c": None}
    assert wire.unpack(wire.pack(values)) == values
    with pytest.raises(TypeError, match="cannot be sent"):
        wire.pack(UncoveredError("x"))
    for hostile in ({"$": "Path", "x": 1}, {"$": "Interval"}, {"$": "map", "items": 3}, {"x": 1}, {"$": []}):
        with pytest.raises(InputError):
            wire.unpack(hostile)


def test_the_profile_of_a_host_is_read_here(client, tmp_path):
    write_profile(tmp_path / "host.json", 0.5, {})
    job = ("resnet18", (8, 3, 64, 64), "A30")
    assert client.predict(*job, host=tmp_path / "host.json").time_s == joulecast.predict(*job, host=0.5).time_s


def test_many_networks_are_equal(client, monkeypatch):
    named, images = ["resnet18", "alexnet"], {"input_shape": (4, 3, 64, 64)}
    uncovered = joulecast.Operation("dropout", [(8, 8)], {"p": 0.5})
    listed = [joulecast.extract("bert_base", (2, 16)), [(RELU, 3), (ODD, 1)], [(uncovered, 1)], [(RELU, 1)] * 2]
    table = listed[0].to_frame().assign(network="first")
    monkeypatch.setattr("joulecast.remote.wire._MOST_NETWORKS", 3)  # four are sent in two requests
    for arguments, options in (
        ((named, "A30", 900), {**images, "mode": "training", "precision": "fp16"}),
        ((named, ["A30", "T4"]), {**images, "clock": [900, 1200], "level": 0.9}),
        ((listed, "A30"), {"host": 0.5, "composition": "sum"}),
        ((table, "A30"), {}),
        (([], "A30"), {}),
    ):
        here, there = (where.predict_many(*arguments, **options) for where in (joulecast, client))
        assert (there.to_json(), there.to_csv()) == (here.to_json(), here.to_csv())
    assert client.predict_many(iter(listed), "A30").to_csv() == joulecast.predict_many(listed, "A30").to_csv()
    rows = client.predict_operations(table, "A30").energy_j.tolist()
    assert rows == joulecast.predict_operations(table, "A30").energy_j.tolist()


@pytest.mark.parametrize("name", ["quickstart", "errors", "client"])
def test_first_pages_of_the_documentation_run_and_print_what_they_show(name, service, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").replace("http://127.0.0.1:8000", service.url)
    script = tmp_path / f"{name}.py"
    code = [code for language, code in blocks(page, there=["a service"]) if language == "python"]
    script.write_text("\n".join(code), encoding="utf-8")
    runpy.run_path(str(script), init_globals=example_names())
    for line in lines(page):
        if line.startswith("joulecast ") and ">" not in line:
            run_line(line)
    assert_shows(ROOT / "docs" / f"{name}.md", capsys.readouterr().out)
