"""Predictions as tools for agents, over the Model Context Protocol (MCP), with its official SDK.

A tool has arguments of the function that it calls, in its words: all options of a job, and those that are named here.
An agent reads every word, so that those which few ask for are left out, and answers list few rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

import joulecast

from ..errors import JoulecastError
from ..extraction.job import Job
from ..extraction.models.spelling import known_names
from ..hardware import gpus
from ..rendering.answers import documented
from .wire import NAMES, ONLY_HERE

_MOST = 10
"""Operations and choices that an answer lists."""

_TYPES: Mapping[str, Any] = {"str": str, "int": int, "float": float, "bool": bool}
"""Annotation of an argument, without None -> type of the tool's argument."""

_SHAPE = "[32, 3, 224, 224] for images, [batch, tokens] for language models"
_TAKEN: Mapping[str, tuple[Any, str]] = {
    "model": (str, 'Name ("resnet50", "Qwen/Qwen3-8B"), or path of a config.json, .onnx, .pt2 or network file.'),
    "gpu": (str, 'Name of a GPU, such as "A30" or "H100 SXM"; for text and training also "2x H100 SXM".'),
    "gpus": (list[str], "Names of GPUs to choose from; all of the catalogue without."),
    "input_shape": (list[int], f"Shape of the input, batch first: {_SHAPE}. Files may have one."),
    "mode": (Literal["inference", "training"], '"training" is one iteration, forward and backward.'),
    "precision": (str, '"default", "fp32", "tf32", "fp16" or "bf16"; of weights also "fp8"; of runs "amp".'),
    "host": (str | float, "Machine that launches operations: its name, or a factor on launch times."),
    "assume": (dict[str, str | int], "Assumptions about values of the input."),
    "model_options": (dict[str, Any], "Arguments of a model that is given by name."),
    "prompt_tokens": (int, "Tokens of a prompt."),
    "output_tokens": (int, "Tokens of its output."),
    "images": (list[list[int]], "Height and width in pixels of each image of a prompt, such as [[768, 1024]]."),
    "price_per_hour": (float, "Price of a GPU for an hour."),
    "carbon": (str, 'Country whose grid supplies it, such as "DE", or grams of CO2 per kWh.'),
}
"""Argument -> its type and words, where an agent cannot give all that the library takes."""


def server() -> MCPServer:
    """A server with the tools below. `run()` answers on standard input and output until its client leaves."""
    tools = MCPServer(
        "joulecast",
        version=joulecast.__version__,
        instructions="Predicts time, power and energy of PyTorch models on GPUs before anything runs. Values are in "
        "seconds, watts, joules, bytes, MHz. Intervals hold 90 of 100 measurements.",
    )
    job = " ".join(field.name for field in fields(Job))
    served = "model gpu batch prompt_tokens output_tokens images precision engine"
    trained = "model input_shape gpu samples epochs precision lora price_per_hour carbon"
    tokens = {"batch": 1, "prompt_tokens": 512, "output_tokens": 512}
    for name, function, arguments, answer, defaults in (
        ("predict", joulecast.predict, f"gpu clock {job}", _costliest, {}),
        ("best", joulecast.best, f"objective gpus max_time_s max_power_w {job}", _first, {}),
        ("generate", joulecast.predict_generation, served, _without_steps, tokens),
        ("run", joulecast.predict_run, trained, _whole, {"precision": "bf16"}),
    ):
        tools.tool(name=name)(_tool(name, function, arguments.split(), answer, defaults))
    tools.tool()(models)
    tools.tool(name="gpus")(graphics_cards)
    return tools


def _tool(
    name: str, function: Callable[..., Any], asked: list[str], answer: Callable[[Any], Any], defaults: Mapping[str, Any]
) -> Callable[..., Any]:
    """A tool that calls a function of the library, with errors that its caller can read."""
    words = documented(function)
    parameters = []
    for each in inspect.signature(function).parameters.values():
        if each.name not in asked or each.name in ONLY_HERE:
            continue
        default = inspect.Parameter.empty if each.name == "gpu" else defaults.get(each.name, each.default)
        plain = _TYPES.get(str(each.annotation).partition(" | ")[0], str)
        type_, said = _TAKEN.get(each.name, (plain, words.get(each.name, "")))
        annotation: Any = Annotated[type_ | None if default is None else type_, Field(description=said)]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(NAMES.get(each.name, each.name), keyword, default=default, annotation=annotation)
        )

    def tool(**arguments: Any) -> Any:
        by_library = {field: argument for argument, field in NAMES.items()}
        try:
            return answer(function(**{by_library.get(each, each): value for each, value in arguments.items()}))
        except JoulecastError as error:
            raise ToolError(str(error)) from error

    tool.__name__, tool.__doc__ = name, (function.__doc__ or "").partition("\n\n")[0]
    returns = inspect.signature(answer, eval_str=True).return_annotation
    tool.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return tool


def _costliest(prediction: joulecast.Prediction) -> dict[str, Any]:
    answer = prediction.to_dict()
    # On a CPU seconds are known, but no joules.
    costs = sorted(answer.pop("operations"), key=lambda row: -(row["energy_j"] or row["device_time_s"] or 0.0))
    # The paths of all equal operations may be hundreds.
    return {**answer, "operations": [{k: v for k, v in row.items() if k != "module_paths"} for row in costs[:_MOST]]}


def _first(choices: list[joulecast.Choice]) -> list[dict[str, Any]]:
    return [choice.to_dict() for choice in choices[:_MOST]]


def _whole(answer: Any) -> dict[str, Any]:
    return dict(answer.to_dict())


def _without_steps(prediction: joulecast.GenerationPrediction) -> dict[str, Any]:
    """Without the operations of both kinds of steps, which are thousands of lines."""
    answer = prediction.to_dict(details=False)
    return {name: value for name, value in answer.items() if name not in ("prefill", "decode")}


def models(search: str = "") -> list[str]:
    """Names of models that are known. torchvision and timm have more, which can be named as well.

    Args:
        search: Part of the names.
    """
    return [name for name in known_names() if search.lower() in name]


def graphics_cards(search: str = "") -> list[dict[str, Any]]:
    """GPUs of the catalogue, with memory in bytes, power cap in watts, and clocks in MHz.

    Args:
        search: Part of the name or of the generation.
    """
    return [
        {
            "name": gpu.aliases[0],
            "generation": gpu.architecture,
            "memory_bytes": gpu.memory_bytes,
            "power_limit_w": gpu.power_limit_w,
            "boost_clock_mhz": gpu.boost_clock_mhz,
        }
        for gpu in gpus().values()
        if search.lower() in f"{gpu.name} {gpu.aliases[0]} {gpu.architecture}".lower()
    ]
