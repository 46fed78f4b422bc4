"""The questions about text, images and training over several GPUs. Fields have the library's names."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ..generation.engines import ENGINES
from .subjects import (
    Carbon,
    Clock,
    GpuClock,
    Name,
    OnHost,
    Optimizer,
    Positive,
    PowerCap,
    PowerCapOfEach,
    Precision,
    PredictorName,
    Price,
    PricePerHour,
    Side,
    Size,
    Strict,
    Tokens,
    up_to,
)

_ENGINES = ", ".join(engine.name for engine in ENGINES.values() if engine.fused) + "; /v1/execution lists them"

Lengths = Tokens | Annotated[list[Annotated[float, Field(ge=0, le=10**7)]], Field(min_length=2, max_length=100_000)]
_LENGTHS = "A number, [mean, standard deviation], or the lengths of many requests."


class GenerationQuestion(Strict):
    """What text costs that an engine writes; see `joulecast.predict_generation`."""

    model: Name = Field(description="Name of a language model.", examples=["llama3_8b"])
    gpu: Name = Field(
        description="Name or alias from the catalogue; with a number for several.", examples=["2x H100 SXM"]
    )
    batch: Size = Field(description="Sequences at a time, on all GPUs together.", examples=[64])
    prompt_tokens: Lengths = Field(description=_LENGTHS, examples=[512])
    output_tokens: Lengths = Field(description=_LENGTHS, examples=[512])
    precision: Name = Field("bf16", description="Of the weights: bf16, fp16, fp8, nvfp4 or mxfp4.")
    engine: Name = Field("vllm", description=_ENGINES)
    tensor_parallel: Size | None = Field(
        None, description="GPUs that share each layer; others are replicas. Default: all that the model divides over."
    )
    expert_parallel: Size = 1
    batching: Name | None = Field(None, description="continuous or static. Default: what the engine does.")
    clock_mhz: GpuClock = None
    power_limit_w: PowerCapOfEach = None
    cache_precision: Name | None = Field(None, description="fp8 for keys and values. Default: 16 bits.")
    sampling: Name | None = Field(
        None,
        description="greedy, temperature, or top_p (also for top-k). Default: as the engine does it.",
    )
    predictor: PredictorName = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "llama3_8b", "gpu": "H100 SXM", "batch": 64, "prompt_tokens": 512, "output_tokens": 512}
            ]
        }
    )


class BestGenerationQuestion(Strict):
    """The best ways to serve a language model; see `joulecast.best_generation`."""

    model: Name = Field(description="Name of a language model.", examples=["qwen3_8b"])
    prompt_tokens: Lengths = Field(description=_LENGTHS, examples=[512])
    output_tokens: Lengths = Field(description=_LENGTHS, examples=[512])
    objective: Name = Field("energy", description="energy, time, cost or carbon; each per token.")
    gpus: Annotated[list[Name], up_to(100)] | None = Field(
        None, description="Names or aliases, or with a number. Default: the whole catalogue.", examples=[["H100 SXM"]]
    )
    counts: Annotated[list[Size], up_to(8, least=1)] = Field(
        [1], description="Numbers of GPUs, for names without a number; all their layouts are compared."
    )
    batches: Annotated[list[Size], up_to(100, least=1)] | None = Field(
        None, description="Sequences at a time, to choose from. Default: from 1 to the largest that fits."
    )
    precisions: Annotated[list[Name], up_to(5, least=1)] = Field(
        ["bf16"], description="Of the weights, to choose from: bf16, fp16, fp8, nvfp4 or mxfp4."
    )
    clocks_mhz: Annotated[list[Clock], up_to(1000)] | None = Field(
        None, description="Default: eight clocks of each GPU."
    )
    engine: Name = Field("vllm", description=_ENGINES)
    cache_precision: Name | None = Field(None, description="fp8 for keys and values. Default: 16 bits.")
    power_limit_w: PowerCapOfEach = None
    max_time_to_first_token_s: Positive | None = None
    max_time_per_output_token_s: Positive | None = None
    min_tokens_per_s: Positive | None = Field(None, description="Of all requests together.")
    price_per_hour: PricePerHour = None
    price_per_kwh: Price | None = None
    carbon: Carbon = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "llama3_8b",
                    "prompt_tokens": 300,
                    "output_tokens": 300,
                    "gpus": ["H100 SXM", "L40S"],
                    "max_time_per_output_token_s": 0.05,
                }
            ]
        }
    )


class ImageQuestion(OnHost):
    """What images or videos cost; see `joulecast.predict_image`."""

    model: Name = Field(description="Name of a pipeline.", examples=["sd3_5_medium"])
    gpu: Name = Field(description="Name or alias from the catalogue.", examples=["H100 SXM"])
    batch: Side = Field(1, description="Images or videos at once.")
    frames: Side | None = Field(None, description="Frames of a video. Default: the pipeline's.")
    height: Side | None = Field(None, description="Pixels from top to bottom. Default: the pipeline's.")
    width: Side | None = Field(None, description="Pixels from left to right. Default: the pipeline's.")
    steps: Side | None = Field(None, description="Steps of the denoiser. Default: the pipeline's.")
    precision: Name = Field("bf16", description="What all parts run in: bf16, fp16 or fp32.")
    clock_mhz: GpuClock = None
    power_limit_w: PowerCap = None
    predictor: PredictorName = None

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "sd3_5_medium", "gpu": "H100 SXM"}]})


class ParallelTrainingQuestion(OnHost):
    """An iteration of training over the GPUs of a node; see `joulecast.predict_parallel_training`."""

    model: Name = Field(description="Name of a transformer.", examples=["gpt2_xl"])
    input_shape: Annotated[list[Size], up_to(8, least=1)] = Field(
        description="Of the input of all replicas together, batch first.", examples=[[16, 1024]]
    )
    gpu: Name = Field(description="The GPUs; a name without a number for as many as are used.", examples=["H100 SXM"])
    data_parallel: Size = Field(1, description="Replicas, which share the batch.")
    tensor_parallel: Size = Field(1, description="GPUs that share each layer.")
    pipeline_parallel: Size = Field(1, description="Stages that the layers are divided into.")
    micro_batches: Size | None = Field(None, description="Parts of a replica's batch. Default: one for each stage.")
    precision: Precision = "default"
    optimizer: Optimizer | None = "adamw"
    clock_mhz: GpuClock = None
    power_limit_w: PowerCapOfEach = None
    predictor: PredictorName = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "gpt2", "input_shape": [16, 512], "gpu": "4x H100 SXM", "data_parallel": 4}]
        }
    )
