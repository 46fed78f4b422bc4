"""Predictions as tools for agents, over the Model Context Protocol (MCP), with its official SDK."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import joulecast

from ..errors import JoulecastError
from ..extraction.models.spelling import known_names
from ..hardware import gpus

_MOST = 10
"""Operations and choices that an answer lists: an agent reads every word."""

Mode = Literal["inference", "training"]
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def server() -> MCPServer:
    """A server with the tools below. `run()` answers on standard input and output until its client leaves."""
    tools = MCPServer(
        "joulecast",
        version=joulecast.__version__,
        instructions="Predicts time, power and energy of PyTorch models on GPUs before anything runs. Values are in "
        "seconds, watts, joules, bytes, MHz. Intervals hold 90 of 100 measurements.",
    )
    for tool in (predict, best, generate, run, models, graphics_cards):
        tools.tool(name="gpus" if tool is graphics_cards else tool.__name__)(_told(tool))
    return tools


def _told(tool: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """The tool with errors that its caller can read: what is wrong, what was given, what is allowed, what to do."""

    @functools.wraps(tool)
    def told(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        try:
            return tool(*args, **kwargs)
        except JoulecastError as error:
            raise ToolError(str(error)) from error

    return told


def predict(
    model: str,
    gpu: str,
    input_shape: list[int] | None = None,
    clock_mhz: float | None = None,
    mode: Mode = "inference",
    precision: str = "default",
    optimizer: str | None = None,
) -> dict[str, Any]:
    """Time, power and energy of one iteration of a model on a GPU, and the operations that cost most.

    Args:
        model: Name of a model ("resnet50", "Qwen/Qwen3-8B"), or the path of a config.json, .onnx, .pt2 or network file.
        gpu: Name of a GPU, such as "A30" or "H100 SXM".
        input_shape: Shape of the input, batch first: [32, 3, 224, 224] for images, [batch, tokens] for language models.
            Files may have one.
        clock_mhz: Clock; the GPU's default without.
        mode: "training" is one iteration, forward and backward.
        precision: "default" (as PyTorch runs fp32), "fp32", "tf32", "fp16" or "bf16".
        optimizer: Optimizer whose step ends a training iteration, such as "adamw".
    """
    asked = dict(locals())
    answer = joulecast.predict(clock=asked.pop("clock_mhz"), **asked).to_dict()
    # On a CPU seconds are known, but no joules.
    costs = sorted(answer.pop("operations"), key=lambda row: -(row["energy_j"] or row["device_time_s"] or 0.0))
    # The paths of all equal operations may be hundreds.
    return {**answer, "operations": [{k: v for k, v in row.items() if k != "module_paths"} for row in costs[:_MOST]]}


def best(
    model: str,
    input_shape: list[int],
    objective: Literal["energy", "time", "edp", "power"] = "energy",
    gpus: list[str] | None = None,
    mode: Mode = "inference",
    precision: str = "default",
    max_time_s: float | None = None,
    max_power_w: float | None = None,
) -> list[dict[str, Any]]:
    """The best GPUs and clocks for an iteration of a model, best first.

    Args:
        model: As in `predict`.
        input_shape: As in `predict`.
        objective: What is to be least; "edp" is energy times time.
        gpus: GPUs to choose from; all of the catalogue without.
        mode: "training" is one iteration, forward and backward.
        precision: As in `predict`.
        max_time_s: Longest time of an iteration.
        max_power_w: Most power.
    """
    asked = dict(locals())
    return [choice.to_dict() for choice in joulecast.best(**asked)[:_MOST]]


def generate(
    model: str,
    gpu: str,
    batch: int = 1,
    prompt_tokens: int = 512,
    output_tokens: int = 512,
    images: list[list[int]] | None = None,
    precision: str = "bf16",
    engine: str = "vllm",
) -> dict[str, Any]:
    """Seconds, watts and joules per token of a language model that an engine serves.

    Args:
        model: Name of a language model, such as "qwen3_8b" or "meta-llama/Llama-3.1-8B-Instruct".
        gpu: Name of a GPU; "2x H100 SXM" for several.
        batch: Sequences in flight.
        prompt_tokens: Tokens of a prompt.
        output_tokens: Tokens of its output.
        images: Height and width in pixels of each image of a prompt, such as [[768, 1024]], for a model that sees.
        precision: Of weights: "bf16", "fp16", "fp8" or others that the GPU has.
        engine: Engine that serves the model, such as "vllm"; the error for an unknown name lists all.
    """
    answer = joulecast.predict_generation(**locals()).to_dict()
    # The operations of both kinds of steps are thousands of lines.
    return {name: value for name, value in answer.items() if name not in ("prefill", "decode")}


def run(
    model: str,
    input_shape: list[int],
    gpu: str,
    samples: int,
    epochs: float = 1,
    precision: str = "bf16",
    lora: int | None = None,
    price_per_hour: float | None = None,
    carbon: str | None = None,
) -> dict[str, Any]:
    """Hours, joules of the boards and at the plug, money and CO2 of a whole training run.

    Args:
        model: As in `predict`.
        input_shape: Shape of the batch of one GPU, such as [32, 128] for 32 sequences of 128 tokens.
        gpu: Name of a GPU; "8x H100 SXM" for several.
        samples: Samples of an epoch.
        epochs: How often the samples are seen.
        precision: As in `predict`; "amp" for autocast in bf16.
        lora: Rank of adapters if only these are trained.
        price_per_hour: Price of a GPU for an hour.
        carbon: Country whose grid supplies it, such as "DE", or grams of CO2 per kWh.
    """
    return joulecast.predict_run(**locals()).to_dict()


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
