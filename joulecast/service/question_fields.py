"""Arguments of the library's functions, and the fields of questions that they become: what is allowed, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ..generation.engines import ENGINES
from .subjects import (
    Clock,
    Composition,
    HostFactor,
    HowRun,
    InputShape,
    Mode,
    Name,
    Objective,
    OperationItem,
    Operations,
    Optimizer,
    Positive,
    Precision,
    Price,
    Side,
    Size,
    up_to,
)

_SERVED = ", ".join(engine.name for engine in ENGINES.values() if engine.fused) + "; /v1/execution lists them"
LENGTHS = "A number, [mean, standard deviation], or the lengths of many requests."
Lengths = (
    Annotated[int, Field(ge=1, le=10**7)]
    | Annotated[list[Annotated[float, Field(ge=0, le=10**7)]], Field(min_length=2, max_length=100_000)]
)
_GPU = "Name or alias from the catalogue."
GPUS = Annotated[list[Name], up_to(100)] | None
CLOCKS = Annotated[list[Clock], up_to(1000)] | None
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]

Declared = tuple[Any, str] | tuple[Any, str, Any]
"""Type of a field, its description, and an example."""

FIELDS: Mapping[str, Declared] = {
    "batch": (Size, "Sequences at a time, on all GPUs together.", 64),
    "batch_sizes": (Annotated[list[Size], up_to(100)] | None, "Batch sizes to compare, instead of the model's own."),
    "batches": (
        Annotated[list[Size], up_to(100, least=1)] | None,
        "Sequences at a time, to choose from. Default: from 1 to the largest that fits.",
    ),
    "batching": (Name | None, "continuous or static. Default: what the engine does."),
    "cache_precision": (Name | None, "fp8 for keys and values. Default: 16 bits."),
    "calibration": (
        Annotated[dict[Name, Any], up_to(20)] | None,
        "What `joulecast calibrate` measured on a board of the GPU: the content of its file.",
    ),
    "carbon": (Price | Name | None, "Grams of CO2 per kWh, or a country such as DE."),
    "clock": (Clock | None, "Graphics clock. Default: the GPU's own default."),
    "clocks": (CLOCKS, "Default: up to 40 clocks of each GPU."),
    "composition": (Composition | None, "How operations add up to a network. Default: the predictor's choice."),
    "counts": (
        Annotated[list[Size], up_to(8, least=1)],
        "Numbers of GPUs, for names without a number; all their layouts are compared.",
    ),
    "data_parallel": (Size, "Replicas, which share the batch."),
    "engine": (Name, _SERVED),
    "execution": (HowRun, "eager, graph (replayed as a CUDA graph), or compiled (by torch.compile)."),
    "expert_parallel": (Size, "GPUs that whole experts are distributed over."),
    "frames": (Side | None, "Frames of a video. Default: the pipeline's."),
    "gpu": (Name, _GPU, "A30"),
    "gpus": (GPUS, "Names or aliases. Default: the whole catalogue.", ["A30", "H100 SXM"]),
    "height": (Side | None, "Pixels from top to bottom. Default: the pipeline's."),
    "host": (
        HostFactor | Name | None,
        "The machine that launches operations: a factor on the reference host's time, or a host's name; none for the "
        "host that is typical for the GPU.",
        0.5,
    ),
    "input_shape": (InputShape | None, "Shape of the input of all models that are named."),
    "max_power_w": (Positive | None, "Power budget: highest mean board power over an iteration."),
    "max_time_per_output_token_s": (Positive | None, "Longest time from one token of a request to the next."),
    "max_time_s": (Positive | None, "Deadline: longest time of an iteration."),
    "max_time_to_first_token_s": (Positive | None, "Longest time that a request waits for its first token."),
    "micro_batches": (Size | None, "Parts of a replica's batch. Default: one for each stage."),
    "min_tokens_per_s": (Positive | None, "Of all requests together."),
    "mode": (Mode, "inference, or training for forward and backward."),
    "model": (Name, "Name of a language model.", "llama3_8b"),
    "objective": (Objective, "Quantity to minimize."),
    "operation": (OperationItem, "The operation."),
    "operations": (Operations, "Operations of one mode."),
    "optimizer": (Optimizer | None, "Optimizer whose step is part of an iteration."),
    "output_tokens": (Lengths, LENGTHS, 512),
    "pipeline_parallel": (Size, "Stages that the layers are divided into."),
    "power_limit_w": (Positive | None, "Power cap of each board. Default: its own default."),
    "precision": (Precision, "What operations run in."),
    "precisions": (
        Annotated[list[Name], up_to(5, least=1)],
        "Of the weights, to choose from: bf16, fp16, fp8, nvfp4 or mxfp4.",
    ),
    "predictor": (Name | None, "A zoo name. Default: the best for the GPU."),
    "price_per_hour": (
        Price | Annotated[dict[Name, Price], up_to(100)] | None,
        "One price for every GPU, or prices by GPU.",
    ),
    "price_per_kwh": (Price | None, "Price of a kilowatt-hour, in the same currency."),
    "prompt_tokens": (Lengths, LENGTHS, 512),
    "sampling": (Name | None, "greedy, temperature, or top_p (also for top-k). Default: as the engine does it."),
    "steps": (Side | None, "Steps of the denoiser. Default: the pipeline's."),
    "strict": (bool, "Refuse the request if an operation is not covered."),
    "tensor_parallel": (
        Size | None,
        "GPUs that share each layer; others are replicas. Default: all that the model divides over.",
    ),
    "width": (Side | None, "Pixels from left to right. Default: the pipeline's."),
}
"""Argument of the library's functions -> the field of questions that it becomes."""
