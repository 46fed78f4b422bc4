"""The methods of the client about generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..generation.choices import GenerationChoices
from ..generation.images.predict import ImagePrediction
from ..generation.lengths import Tokens
from ..generation.prediction import GenerationPrediction
from ..generation.training import ParallelTraining
from ..hardware import GPU
from ..hardware.host import Host
from .connection import Connection
from .requests import gpu_name, gpu_names, run, tariff


def _sent(tokens: Tokens) -> int | list[float]:
    """Lengths of prompts or outputs as JSON."""
    return tokens if isinstance(tokens, int) else [float(each) for each in tokens]


class GenerationClient:
    """Calls the functions of the library about generation at a service."""

    _connection: Connection

    def predict_generation(
        self,
        model: str,
        gpu: str | GPU,
        *,
        batch: int,
        prompt_tokens: Tokens,
        output_tokens: Tokens,
        precision: str = "bf16",
        engine: str = "vllm",
        tensor_parallel: int | None = None,
        expert_parallel: int = 1,
        batching: str | None = None,
        clock: float | None = None,
        power_limit_w: float | None = None,
        cache_precision: str | None = None,
        sampling: str | None = None,
        predictor: str | None = None,
    ) -> GenerationPrediction:
        """See `joulecast.predict_generation`, for models that are known by name.

        Raises:
            JoulecastError: The error that `joulecast.predict_generation` would raise, or a ServiceError.
        """
        question = {
            "model": model,
            "gpu": gpu_name(gpu),
            "batch": batch,
            "prompt_tokens": _sent(prompt_tokens),
            "output_tokens": _sent(output_tokens),
            "precision": precision,
            "engine": engine,
            "tensor_parallel": tensor_parallel,
            "expert_parallel": expert_parallel,
            "batching": batching,
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "cache_precision": cache_precision,
            "sampling": sampling,
            "predictor": predictor,
        }
        return self._connection.ask("predict_generation", question, GenerationPrediction)

    def best_generation(
        self,
        model: str,
        *,
        prompt_tokens: Tokens,
        output_tokens: Tokens,
        objective: str = "energy",
        gpus: str | GPU | Iterable[str | GPU] | None = None,
        counts: Iterable[int] = (1,),
        batches: Iterable[int] | None = None,
        precisions: Iterable[str] = ("bf16",),
        clocks: Iterable[float] | None = None,
        engine: str = "vllm",
        cache_precision: str | None = None,
        power_limit_w: float | None = None,
        max_time_to_first_token_s: float | None = None,
        max_time_per_output_token_s: float | None = None,
        min_tokens_per_s: float | None = None,
        price_per_hour: float | Mapping[str, float] | None = None,
        price_per_kwh: float | None = None,
        carbon: float | str | None = None,
    ) -> GenerationChoices:
        """See `joulecast.best_generation`, for models that are known by name.

        Raises:
            JoulecastError: The error that `joulecast.best_generation` would raise, or a ServiceError.
        """
        question = {
            "model": model,
            "prompt_tokens": _sent(prompt_tokens),
            "output_tokens": _sent(output_tokens),
            "objective": objective,
            "gpus": gpu_names(gpus),
            "counts": list(counts),
            "batches": None if batches is None else list(batches),
            "precisions": list(precisions),
            "clocks_mhz": None if clocks is None else list(clocks),
            "engine": engine,
            "cache_precision": cache_precision,
            "power_limit_w": power_limit_w,
            "max_time_to_first_token_s": max_time_to_first_token_s,
            "max_time_per_output_token_s": max_time_per_output_token_s,
            "min_tokens_per_s": min_tokens_per_s,
            **tariff(price_per_hour, price_per_kwh, carbon),
        }
        return self._connection.ask("best_generation", question, GenerationChoices)

    def predict_image(
        self,
        model: str,
        gpu: str | GPU | None,
        *,
        batch: int = 1,
        frames: int | None = None,
        height: int | None = None,
        width: int | None = None,
        steps: int | None = None,
        precision: str = "bf16",
        clock: float | None = None,
        power_limit_w: float | None = None,
        execution: str = "eager",
        host: str | float | Path | Host | None = None,
        predictor: str | None = None,
    ) -> ImagePrediction:
        """See `joulecast.predict_image`, which predicts videos, too.

        Raises:
            JoulecastError: The error that `joulecast.predict_image` would raise, or a ServiceError.
        """
        question = {
            "model": model,
            "gpu": gpu_name(gpu),
            "batch": batch,
            "frames": frames,
            "height": height,
            "width": width,
            "steps": steps,
            "precision": precision,
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            **run(execution, host),
            "predictor": predictor,
        }
        return self._connection.ask("predict_image", question, ImagePrediction)

    def predict_parallel_training(
        self,
        model: str,
        input_shape: Sequence[int],
        gpu: str | GPU | None,
        *,
        data_parallel: int = 1,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        micro_batches: int | None = None,
        precision: str = "default",
        optimizer: str | None = "adamw",
        clock: float | None = None,
        power_limit_w: float | None = None,
        execution: str = "eager",
        host: str | float | Path | Host | None = None,
        predictor: str | None = None,
    ) -> ParallelTraining:
        """See `joulecast.predict_parallel_training`, for models by name.

        Raises:
            JoulecastError: The error that `joulecast.predict_parallel_training` would raise, or a ServiceError.
        """
        question = {
            "model": model,
            "input_shape": list(input_shape),
            "gpu": gpu_name(gpu),
            "data_parallel": data_parallel,
            "tensor_parallel": tensor_parallel,
            "pipeline_parallel": pipeline_parallel,
            "micro_batches": micro_batches,
            "precision": precision,
            "optimizer": optimizer,
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            **run(execution, host),
            "predictor": predictor,
        }
        return self._connection.ask("predict_parallel_training", question, ParallelTraining)
