"""Ways to serve a rate of requests, and the commands that start them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import named
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..generation.parallel import Parallel
from ..rendering.answers import Plain, Table, Tabular
from ..units import si

VERSIONS: Mapping[str, str] = {"vllm": "0.11", "sglang": "0.5", "tensorrt_llm": "1.0"}
"""Engine -> the version whose options `ServingChoice.command` writes, as its documentation lists them."""


@dataclass(frozen=True)
class ServingChoice(Plain):
    """One way to serve a rate of requests.

    Args:
        model: Name of the model.
        gpu: Full name of the GPU model.
        gpus: Number of all GPUs.
        replicas: Number of copies of the model, which share the requests.
        tensor_parallel: Number of GPUs that share each layer.
        expert_parallel: Number of GPUs over which whole experts are distributed.
        precision: Precision of the weights.
        cache_precision: Precision of keys and values; None for 16 bits.
        clock_mhz: Graphics clock in MHz.
        default_clock: Whether it is the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.
        max_sequences: Largest number of sequences of a replica in a step.
        max_step_tokens: Largest number of tokens of a step.
        memory_share: Share of the board's memory that the engine uses.
        rate_per_s: Requests per second of all replicas.
        highest_rate_per_s: The highest rate at which these GPUs hold the limits.
        ttft_p99_s: Seconds to the first token, P99.
        tpot_p99_s: Mean seconds of a request per further token, P99.
        tokens_per_s: Output tokens per second of all replicas.
        power_w: Mean watts of all boards.
        energy_per_token_j: Joules of all boards per output token.
        value: Value of the objective; lower is better. The negative rate where the highest rate was asked for.
        cost_per_million_tokens: Price of a million output tokens; None without prices.
        carbon_g_per_million_tokens: Grams of CO2 equivalent for a million output tokens; None without an intensity.
    """

    model: str
    gpu: str
    gpus: int
    replicas: int
    tensor_parallel: int
    expert_parallel: int
    precision: str
    cache_precision: str | None
    clock_mhz: float
    default_clock: bool
    power_limit_w: float | None
    max_sequences: int
    max_step_tokens: int
    memory_share: float
    rate_per_s: float
    highest_rate_per_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    tokens_per_s: float
    power_w: float
    energy_per_token_j: float
    value: float
    cost_per_million_tokens: float | None = None
    carbon_g_per_million_tokens: float | None = None

    @property
    def replica(self) -> str:
        """The GPUs of a replica, such as "2x NVIDIA H200"."""
        each = self.gpus // self.replicas
        return f"{each}x {self.gpu}" if each > 1 else self.gpu

    def __str__(self) -> str:
        layout = Parallel(self.tensor_parallel, self.expert_parallel, self.replicas)
        boards = f"{self.gpus}x {self.gpu} ({layout})" if self.gpus > 1 else self.gpu
        return (
            f"{boards} at {self.clock_mhz:g} MHz, up to {self.max_sequences} sequences: {self.rate_per_s:.3g} "
            f"requests/s of at most {self.highest_rate_per_s:.3g}, P99 {si(self.ttft_p99_s, 's')} to the first token "
            f"and {si(self.tpot_p99_s, 's')} for a further one, {si(self.energy_per_token_j, 'J')} per token, "
            f"{si(self.power_w, 'W')}"
        )

    def command(self, engine: str = "vllm") -> str:
        """Commands that start one replica; `replicas` of them stand behind a router.

        TensorRT-LLM takes the precisions of weights and cache from the checkpoint, and its share is of the memory that
        is free when the weights are loaded.

        Args:
            engine: vllm, sglang or tensorrt_llm; see `VERSIONS`.

        Raises:
            UnknownNameError: No commands are known for this engine.
        """
        named("engine with commands", engine, VERSIONS)
        known = LANGUAGE_MODELS.get(self.model)
        model = self.model if known is None else known.source
        tensor, experts = self.tensor_parallel, self.expert_parallel
        fp8, cache = self.precision == "fp8", self.cache_precision == "fp8"
        options: tuple[tuple[str, object], ...]
        if engine == "vllm":
            start = f"vllm serve {model}"
            options = (
                ("--tensor-parallel-size", tensor if tensor > 1 else None),
                ("--enable-expert-parallel", "" if experts > 1 else None),
                ("--max-num-seqs", self.max_sequences),
                ("--max-num-batched-tokens", self.max_step_tokens),
                ("--gpu-memory-utilization", self.memory_share),
                ("--quantization", "fp8" if fp8 else None),
                ("--kv-cache-dtype", "fp8" if cache else None),
            )
        elif engine == "sglang":
            start = f"python -m sglang.launch_server --model-path {model}"
            options = (
                ("--tp", tensor if tensor > 1 else None),
                ("--ep", experts if experts > 1 else None),
                ("--max-running-requests", self.max_sequences),
                ("--chunked-prefill-size", self.max_step_tokens),
                ("--mem-fraction-static", self.memory_share),
                ("--quantization", "fp8" if fp8 else None),
                ("--kv-cache-dtype", "fp8_e4m3" if cache else None),
            )
        else:
            start = f"trtllm-serve {model}"
            options = (
                ("--tp_size", tensor if tensor > 1 else None),
                ("--ep_size", experts if experts > 1 else None),
                ("--max_batch_size", self.max_sequences),
                ("--max_num_tokens", self.max_step_tokens),
                ("--kv_cache_free_gpu_memory_fraction", self.memory_share),
            )
        written = " ".join(f"{name} {value}".rstrip() for name, value in options if value is not None)
        lines = [] if self.default_clock else [f"nvidia-smi --lock-gpu-clocks={self.clock_mhz:g}"]
        if self.power_limit_w is not None:
            lines.append(f"nvidia-smi --power-limit={self.power_limit_w:g}")
        return "\n".join([*lines, f"{start} {written}"])

    def to_dict(self) -> dict[str, Any]:
        """The choice as a dictionary; quantities in SI units."""
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "command": self.command()}


class ServingChoices(tuple[ServingChoice, ...], Tabular, Plain):
    """Ways to serve a rate of requests, best first.

    Attributes:
        left_out: GPUs of a replica -> the reason why they are not among them.
    """

    left_out: dict[str, str]

    def __new__(cls, rows: Iterable[ServingChoice], left_out: dict[str, str]) -> ServingChoices:
        """The rows in the order of their value.

        Args:
            rows: The ways.
            left_out: GPUs of a replica -> the reason why they are not among them.
        """
        made = super().__new__(cls, sorted(rows, key=lambda row: (row.value, row.gpus)))
        made.left_out = left_out
        return made

    def _table(self) -> Table:
        names = [each.name for each in fields(ServingChoice)]
        return Table(names, ([getattr(row, name) for name in names] for row in self))

    def to_dict(self) -> dict[str, Any]:
        """The choices as plain lists and dictionaries."""
        return {"choices": [choice.to_dict() for choice in self], "left_out": dict(self.left_out)}
