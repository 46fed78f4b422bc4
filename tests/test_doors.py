"""An option of a job is one field of `Job`: it reaches Python, the command line, HTTP, the client and agents."""

import dataclasses
import inspect

import pytest

import joulecast
from joulecast.cli.options import JOB_OPTIONS, TABLES, _flat, _job_options
from joulecast.extraction.job import Job

# What only a program has, or what a job has for runs of its own (adapters, autocast).
HERE = {"whitelist", "operators", "autocast", "lora", "lora_targets"}
OPTIONS = {field.name for field in dataclasses.fields(Job)} - HERE


def asked_on_the_command_line() -> set[str]:
    named = [*_flat(TABLES["predict"]["asks"])]
    rows = {**TABLES["shared"], **TABLES["predict"]}
    return {rows[name].get("to", name) if isinstance(rows[name], dict) else name for name in named}


def test_every_option_of_a_job_reaches_every_door():
    questions = pytest.importorskip("joulecast.service.schemas", reason="needs joulecast[service]")
    doors = {
        "Python": set(inspect.signature(joulecast.predict).parameters),
        "client": set(inspect.signature(joulecast.Client.predict).parameters),
        "HTTP": set(questions.PredictQuestion.model_fields),
        "command line": asked_on_the_command_line(),
    }
    assert {door: OPTIONS - names for door, names in doors.items()} == {door: set() for door in doors}
    assert JOB_OPTIONS == {}  # all have words of their own


def test_a_new_option_needs_no_row_on_the_command_line(monkeypatch):
    more = dataclasses.make_dataclass(
        "Job", [("streams", "int | None", None), ("fast", bool, False)], bases=(Job,), frozen=True
    )
    more.__doc__ = f"{Job.__doc__}\n        streams: CUDA streams.\n        fast: Whether it is fast.\n"
    monkeypatch.setattr("joulecast.cli.options.Job", more)
    assert _job_options() == {
        "streams": {"help": "CUDA streams.", "type": "int"},
        "fast": {"help": "Whether it is fast.", "default": False},
    }


def test_agents_can_give_every_option():
    pytest.importorskip("mcp", reason="agents need joulecast[mcp]")
    import anyio
    from mcp import Client

    from joulecast.remote.agents import server

    async def listed():
        async with Client(server()) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}
    assert set(tools["predict"].input_schema["properties"]) >= OPTIONS
