"""Schemas of the answers about generation, for the OpenAPI document."""

from __future__ import annotations

from pydantic import Field

from .schemas import Open, PredictionAnswer, SummaryAnswer


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
    tensor_parallel: int = Field(description="GPUs that share each layer.")
    expert_parallel: int = Field(description="GPUs over which whole experts are distributed.")
    replicas: int = Field(description="Copies of the model, which share the batch.")
    engine: str
    batching: str
    batch: int
    prompt_tokens: float
    output_tokens: float
    prompt_deviation: float
    output_deviation: float
    precision: str
    time_to_first_token_s: float
    time_per_output_token_s: float
    latency_s: float = Field(description="Of a request: first token + (tokens - 1) x time per output token.")
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


class GenerationChoiceAnswer(Open):
    """One way to serve a model."""

    gpu: str
    gpus: int = Field(description="Number of GPUs.")
    tensor_parallel: int = Field(description="GPUs that share each layer.")
    expert_parallel: int = Field(description="GPUs over which whole experts are distributed.")
    replicas: int = Field(description="Copies of the model, which share the batch.")
    layout: str = Field(description="The three in words, such as TP 4, 2 replicas.")
    precision: str
    batch: int
    clock_mhz: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    latency_s: float = Field(description="Of a request: first token + (tokens - 1) x time per output token.")
    tokens_per_s: float
    power_w: float = Field(description="Mean power of all boards together.")
    energy_per_token_j: float
    value: float = Field(description="Value of the objective; the lowest is best.")
    cost_per_million_tokens: float | None
    carbon_g_per_million_tokens: float | None


class BestGenerationAnswer(Open):
    """Ways to serve a model within the limits."""

    choices: list[GenerationChoiceAnswer] = Field(description="The best way of each GPU and number of GPUs.")
    pareto: list[GenerationChoiceAnswer] = Field(description="Joules against seconds per token, fastest first.")
    rows: list[GenerationChoiceAnswer] = Field(description="All ways.")
    left_out: dict[str, str] = Field(description="GPU and why it is not among the choices.")


class ImageIntervalAnswer(Open):
    """Low and high of each quantity."""

    level: float
    time_per_image_s: list[float]
    power_w: list[float]
    energy_per_image_j: list[float]
    basis: str


class ImageAnswer(Open):
    """Time, power and energy of images or videos."""

    model: str
    gpu: str
    gpus: int
    batch: int
    frames: int | None = Field(description="Null for images.")
    height: int
    width: int
    steps: int
    precision: str
    time_per_batch_s: float
    time_per_image_s: float
    power_w: float
    energy_per_image_j: float
    weights_bytes: int
    text: list[SummaryAnswer] = Field(description="The text encoders.")
    denoise: SummaryAnswer = Field(description="One forward of the denoiser.")
    decode: SummaryAnswer
    denoise_calls: int = Field(description="Forwards of the denoiser.")
    decode_calls: int = Field(description="Forwards of the decoder.")
    interval: ImageIntervalAnswer
    notes: list[str]


class ParallelTrainingAnswer(Open):
    """Time, power and energy of an iteration of training over several GPUs."""

    model: str
    gpu: str
    gpus: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    micro_batches: int
    time_s: float
    energy_j: float = Field(description="Joules of all boards.")
    power_w: float = Field(description="Mean power of all boards together.")
    compute_s: float
    communication_s: float = Field(description="Seconds of collectives and messages, hidden behind computing or not.")
    waiting_s: float
    memory_bytes: int
    micro: SummaryAnswer = Field(description="One micro-batch through all layers, or a GPU's part of them.")
    notes: list[str]
