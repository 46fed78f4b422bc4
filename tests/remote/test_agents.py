"""Tools for agents, asked by the client of the protocol's own SDK."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="agents need joulecast[mcp]")
import anyio
from mcp import Client, StdioServerParameters, stdio_client

import joulecast
from joulecast.hardware import gpus
from joulecast.remote.agents import server

SHAPE = [8, 3, 224, 224]


def answers(*calls):
    """What the tools answer: the values, or the text of an error."""

    async def ask():
        async with Client(server()) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return [
        answer.content[0].text if answer.is_error else answer.structured_content or json.loads(answer.content[0].text)
        for answer in anyio.run(ask)
    ]


def test_tools_answer_as_the_library():
    question = {"model": "ResNet-18", "input_shape": SHAPE, "gpu": "A30", "clock_mhz": 900, "mode": "training"}
    served = {"model": "qwen3_8b", "gpu": "H100 SXM", "batch": 8, "prompt_tokens": 100, "output_tokens": 50}
    chosen = {"model": "resnet18", "input_shape": SHAPE, "gpus": ["A30", "L4"], "objective": "time"}
    trained = {"model": "bert_base", "input_shape": [8, 128], "gpu": "2x L4", "samples": 10_000}
    calls = ("predict", question), ("generate", served), ("best", chosen), ("run", trained)
    predicted, generated, best, run = answers(*calls)
    expected = joulecast.predict("resnet18", SHAPE, "A30", 900, mode="training")
    assert predicted["energy_j"] == expected.energy_j
    assert predicted["operations"][0]["energy_j"] == max(cost.energy_j for cost in expected.operations)
    assert len(json.dumps(predicted)) < 5000  # an agent reads every word
    expected = joulecast.predict_generation("qwen3_8b", "H100 SXM", batch=8, prompt_tokens=100, output_tokens=50)
    assert generated["energy_per_token_j"] == expected.energy_per_token_j
    (seen,) = answers(("generate", {**served, "model": "Qwen/Qwen3-VL-8B-Instruct", "images": [[768, 1024]]}))
    assert seen["reading_images"]["time_s"] > 0
    assert len(json.dumps(seen)) < 5000
    expected = joulecast.best("resnet18", SHAPE, gpus=["A30", "L4"], objective="time")
    assert [choice["time_s"] for choice in best["result"]] == [choice.time_s for choice in expected]
    expected = joulecast.predict_run("bert_base", (8, 128), "2x L4", samples=10_000, precision="bf16")
    assert run["wall_energy_j"] == expected.wall_energy_j


def test_names_are_found():
    models, boards = answers(("models", {"search": "qwen3_8"}), ("gpus", {"search": "A30"}))
    assert models["result"] == ["qwen3_8b"]
    assert boards["result"][0]["memory_bytes"] == gpus()["NVIDIA A30"].memory_bytes


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "resnet19"}, "did you mean resnet18"),
        ({"gpu": "A31"}, "next:"),
        ({"input_shape": [8, 3]}, "given:"),
        ({"input_shape": None}, "[32, 3, 224, 224]"),
        ({"mode": "sideways"}, "inference"),
    ],
)
def test_errors_say_what_to_do(change, says):
    (text,) = answers(("predict", {"model": "resnet18", "input_shape": SHAPE, "gpu": "A30", **change}))
    assert says in text


def test_the_command_answers_on_standard_input():
    async def ask():
        program = StdioServerParameters(command=str(Path(sys.executable).with_name("joulecast")), args=["mcp"])
        async with Client(stdio_client(program)) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert anyio.run(ask) == ["predict", "best", "generate", "run", "models", "gpus"]


@pytest.mark.parametrize("name", ["a" * 10_000, "evil.py:Net", "/dev/zero", "\0", "--help", "[" * 5_000, "http://[::1"])
def test_any_text_as_a_name_is_refused_in_words(name, tmp_path, monkeypatch):
    """A name of 10 kB was an error of the operating system, and a Python file that an agent names is not run."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('ran', 'w')\nNet = None\n")
    image = {"model": name, "input_shape": SHAPE, "gpu": "A30"}
    asked = [("predict", image), ("best", {"model": name, "input_shape": SHAPE}), ("run", {**image, "samples": 1})]
    for answer in answers(*asked, ("generate", {"model": name, "gpu": "A30"}), ("predict", {**image, "gpu": name})):
        assert "given:" in answer
    assert not Path("ran").exists()


def test_a_cpu_has_costs_in_seconds():
    (found,) = answers(("predict", {"model": "resnet18", "input_shape": [1, 3, 64, 64], "gpu": "cpu"}))
    times = [row["device_time_s"] for row in found["operations"]]
    assert found["energy_j"] is None
    assert times == sorted(times, reverse=True)
