"""Ways to serve a language model, with the time, energy and price of each, and the commands that start them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import named
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..queries.objectives import Tariff
from ..queries.ways import Ways
from ..rendering.answers import Plain, Table
from ..rendering.described import Column, quantity, word
from ..units import number, si
from .engines import COMMANDS
from .parallel import Parallel, boards_of

OBJECTIVES = ("energy", "time", "gpus", "cost", "carbon")
"""Joules and seconds per output token, number of GPUs, and price and grams of CO2 per million output tokens."""


_MILLION = 1e6


@dataclass(frozen=True)
class GenerationChoice(Plain):
    """One way to serve a model. With requests at a rate, times are those of requests that wait in a queue.

    Args:
        model: Name of the model.
        gpu: Full name of the GPU model; all GPUs are alike.
        gpus: Number of GPUs.
        tensor_parallel: Number of GPUs that share each layer.
        expert_parallel: Number of GPUs over which whole experts are distributed. Above tensor_parallel, each of them
            has all other layers and sequences of its own.
        replicas: Number of copies of the model, which share the batch.
        precision: Precision of the weights.
        batch: Number of sequences that run at a time, on all GPUs together.
        clock_mhz: Graphics clock of the GPUs in MHz.
        time_to_first_token_s: Seconds from the start of a request to its first token.
        time_per_output_token_s: Mean seconds from one token of a request to the next.
        latency_s: Seconds from the start of a request to its last token.
        tokens_per_s: Output tokens per second, of all requests together.
        power_w: Mean power of all boards together in watts.
        energy_per_token_j: Joules of all boards per output token.
        value: Value of the objective; lower is better.
        cost_per_million_tokens: Price of a million output tokens, in the currency of the prices; None without prices.
        carbon_g_per_million_tokens: Grams of CO2 equivalent for a million output tokens; None without a carbon
            intensity.
        cache_precision: Precision of keys and values; None for 16 bits.
        power_limit_w: Power cap of a board in watts; None for its default.
        default_clock: Whether the clock is the GPU's default.
        max_step_tokens: Largest number of tokens of a step.
        memory_share: Share of the board's memory that the engine uses.
        rate_per_s: Requests per second of all replicas; None if all are there from the beginning, as are the following.
        highest_rate_per_s: The highest rate at which these GPUs hold the limits.
        ttft_p99_s: Seconds to the first token, P99.
        tpot_p99_s: Mean seconds of a request per further token, P99.
        prefill_replicas: Replicas that only read prompts, 0 if all do both.
        prefill_clock_mhz: Graphics clock of these; None without them.
        draft_tokens: Tokens that are drafted for each sequence and verified in a step; 0 for none.
        engine: Name of the engine.
    """

    model: str
    gpu: str
    gpus: int
    tensor_parallel: int
    expert_parallel: int
    replicas: int
    precision: str
    batch: int
    clock_mhz: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    latency_s: float
    tokens_per_s: float
    power_w: float
    energy_per_token_j: float
    value: float
    cost_per_million_tokens: float | None = None
    carbon_g_per_million_tokens: float | None = None
    cache_precision: str | None = None
    power_limit_w: float | None = None
    default_clock: bool = True
    max_step_tokens: int = 0
    memory_share: float = 0.9
    rate_per_s: float | None = None
    highest_rate_per_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    prefill_replicas: int = 0
    prefill_clock_mhz: float | None = None
    draft_tokens: int = 0
    engine: str = "vllm"

    @property
    def boards(self) -> str:
        """The GPUs with their number, such as "2x NVIDIA H200"."""
        return boards_of(self.gpus, self.gpu)

    @property
    def layout(self) -> str:
        """How the GPUs share the model, such as "TP 4, 2 replicas"."""
        reading = f", {self.prefill_replicas} of which read prompts" if self.prefill_replicas else ""
        drafts = f", {self.draft_tokens} drafted tokens" if self.draft_tokens else ""
        return f"{Parallel(self.tensor_parallel, self.expert_parallel, self.replicas)}{reading}{drafts}"

    @property
    def max_sequences(self) -> int:
        """Largest number of sequences of a replica in a step."""
        groups = self.gpus // self.tensor_parallel - self.prefill_replicas
        return -(-self.batch // groups)

    def __str__(self) -> str:
        layout = f" ({self.layout})" if self.gpus > 1 or self.draft_tokens else ""
        first, further = self.time_to_first_token_s, self.time_per_output_token_s
        served = ""
        if self.ttft_p99_s is not None and self.tpot_p99_s is not None:
            first, further = self.ttft_p99_s, self.tpot_p99_s
            served = f" at P99; {number(self.rate_per_s)} requests/s of at most {number(self.highest_rate_per_s)}"
        return (
            f"{self.boards}{layout} at {self.clock_mhz:g} MHz, {self.precision}, batch {self.batch}: "
            f"{si(self.energy_per_token_j, 'J')} and {si(further, 's')} per token, first after {si(first, 's')}{served}"
        )

    def command(self, engine: str | None = None) -> str:
        """Commands that start a replica of each kind; `replicas` of them stand behind a router.

        TensorRT-LLM takes the precisions of weights and cache from the checkpoint, its share is of the memory that is
        free when the weights are loaded, and a file says which of its replicas read prompts, or that each GPU has
        sequences of its own.

        Args:
            engine: vllm, sglang or another of `joulecast.generation.engines.COMMANDS`; None for that of the choice.

        Raises:
            UnknownNameError: No commands are known for this engine.
        """
        words = named("engine with commands", self.engine if engine is None else engine, COMMANDS)
        words = {"reading": "", "decoding": "", **words}
        decoding = self._command(words, words["decoding"], None if self.default_clock else self.clock_mhz)
        if not self.prefill_replicas:
            return decoding
        reading = self._command(words, words["reading"], self.prefill_clock_mhz)
        return f"# reads prompts\n{reading}\n# decodes\n{decoding}"

    def _command(self, words: Mapping[str, str], role: str, clock_mhz: float | None) -> str:
        known = LANGUAGE_MODELS.get(self.model)
        ranks = Parallel(self.tensor_parallel, self.expert_parallel).senders
        each = ranks if "of_all" in words else 1
        quantized = "" if self.precision == "bf16" else words.get(f"{self.precision}_weights", "")
        parts = [
            f"{words['start']} {self.model if known is None else known.source}",
            f"{words['tensor']} {self.tensor_parallel}" if self.tensor_parallel > 1 else "",
            words["ranks"].format(ranks=ranks) if ranks > 1 else "",
            words["experts"].format(experts=self.expert_parallel) if self.expert_parallel > 1 else "",
            f"{words['sequences']} {each * self.max_sequences} {words['tokens']} {each * self.max_step_tokens}",
            f"{words['memory']} {self.memory_share}",
            quantized,
            words.get("fp8_cache", "") if self.cache_precision == "fp8" else "",
            role if self.prefill_replicas else "",
        ]
        lines = [f"# with speculative decoding: {self.draft_tokens} tokens"] if self.draft_tokens else []
        if self.precision != "bf16" and not quantized:
            lines.append(f"# of a checkpoint with weights in {self.precision}")
        if clock_mhz is not None:
            lines.append(f"nvidia-smi --lock-gpu-clocks={clock_mhz:g}")
        if self.power_limit_w is not None:
            lines.append(f"nvidia-smi --power-limit={self.power_limit_w:g}")
        return "\n".join([*lines, " ".join(part for part in parts if part)])

    def to_dict(self) -> dict[str, Any]:
        """The choice as a dictionary; quantities in SI units."""
        command = self.command() if self.engine in COMMANDS else None
        return {**super().to_dict(), "layout": self.layout, "command": command}


class GenerationChoices(Ways[GenerationChoice]):
    """The best way of each GPU and number of GPUs, best first."""

    AIM = "to serve a language model"
    AXES = "time_per_output_token_s", "energy_per_token_j", "time per token"

    def _columns(self) -> list[Column]:
        plain = "{:g}".format
        return [
            word("GPU", "boards"),
            Column("layout", lambda way: way.layout if way.gpus > 1 or way.draft_tokens else None, right=False),
            quantity("clock MHz", "clock_mhz", plain),
            quantity("of prompts", "prefill_clock_mhz", plain),
            quantity("cap W", "power_limit_w", plain),
            word("precision", "precision"),
            quantity("batch", "batch", str),
            quantity("requests/s", "rate_per_s", number),
            quantity("of at most", "highest_rate_per_s", number),
            quantity("energy per token", "energy_per_token_j", "J"),
            Column("time per token", lambda way: si(way.tpot_p99_s or way.time_per_output_token_s, "s")),
            Column("first token", lambda way: si(way.ttft_p99_s or way.time_to_first_token_s, "s")),
            quantity("tokens/s", "tokens_per_s", "{:,.0f}".format),
            quantity("power", "power_w", "W"),
            quantity("cost per million", "cost_per_million_tokens", number),
            quantity("CO2 per million", "carbon_g_per_million_tokens", "g"),
        ]

    @staticmethod
    def table_of(rows: Iterable[GenerationChoice]) -> Table:
        """See `Ways`."""
        names = [field.name for field in fields(GenerationChoice)]
        return Table(names, ([getattr(row, name) for name in names] for row in rows))


def priced(told: Mapping[str, Any], objective: str, tariff: Tariff) -> Iterator[GenerationChoice]:
    """A way with its value, price and carbon; none without the price that is its value."""
    joules, count = told["energy_per_token_j"], told["gpus"]
    cost = tariff.cost(count * _MILLION / told["tokens_per_s"], _MILLION * joules, told["gpu"])
    grams = tariff.carbon_g(_MILLION * joules)
    # A single token has no time from one to the next.
    waits = told["time_per_output_token_s"] or told["latency_s"]
    values = {"energy": joules, "time": waits, "gpus": float(count), "cost": cost, "carbon": grams}
    value = values[objective]
    if value is not None:
        priced = {"cost_per_million_tokens": cost, "carbon_g_per_million_tokens": grams}
        yield GenerationChoice(**{"value": value, **told}, **priced)
