"""The methods of the client about generation."""

from __future__ import annotations

from ..asking import gpu_name
from ..generation.prediction import GenerationPrediction
from ..hardware import GPU
from .connection import Connection


class GenerationClient:
    """Calls the functions of the library about generation at a service."""

    _connection: Connection

    def predict_generation(
        self,
        model: str,
        gpu: str | GPU,
        *,
        batch: int,
        prompt_tokens: int,
        output_tokens: int,
        precision: str = "bf16",
        engine: str = "vllm",
        tensor_parallel: int = 1,
        expert_parallel: int = 1,
        batching: str | None = None,
        clock: float | None = None,
        power_limit_w: float | None = None,
        cache_precision: str | None = None,
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
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "precision": precision,
            "engine": engine,
            "tensor_parallel": tensor_parallel,
            "expert_parallel": expert_parallel,
            "batching": batching,
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "cache_precision": cache_precision,
            "predictor": predictor,
        }
        return self._connection.ask("generate", question, GenerationPrediction)
