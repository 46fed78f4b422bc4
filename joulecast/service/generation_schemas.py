"""Schemas of the answers about generation, for the OpenAPI document."""

from __future__ import annotations

from pydantic import Field

from .schemas import Open, PredictionAnswer


class GenerationMemoryAnswer(Open):
    """Bytes of one GPU, by what they hold."""

    weights_bytes: int
    cache_bytes: int
    activations_bytes: int
    usable_bytes: int


class GenerationIntervalAnswer(Open):
    """Low and high of each quantity."""

    level: float
    time_to_first_token_s: list[float]
    time_per_output_token_s: list[float]
    power_w: list[float]
    energy_per_token_j: list[float]
    basis: str


class GenerationAnswer(Open):
    """Time, power and energy of a model that writes text for a batch of requests."""

    model: str
    gpu: str
    gpus: int
    engine: str
    batching: str
    batch: int
    prompt_tokens: int
    output_tokens: int
    precision: str
    time_to_first_token_s: float
    time_per_output_token_s: float
    tokens_per_s: float
    power_w: float = Field(description="Mean power of all boards together.")
    energy_per_token_j: float
    energy_per_request_j: float
    overhead_s: float = Field(description="Mean seconds of a step in which the GPU waits for the engine.")
    largest_batch: int = Field(description="Sequences of these lengths that would fit.")
    memory: GenerationMemoryAnswer
    interval: GenerationIntervalAnswer | None
    prefill: PredictionAnswer = Field(description="On one GPU, a step that reads prompts and nothing else.")
    decode: PredictionAnswer = Field(description="On one GPU, a step in which the batch decodes and nothing else.")
    notes: list[str]
