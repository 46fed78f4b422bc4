"""GenerationPrediction: time, power and energy of a language model that generates text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..hardware.host import USUAL
from ..predictors.networks.prediction import Prediction
from ..rendering.answers import Answer, Table
from ..rendering.described import LEVEL, Description, Unit, totals
from ..rendering.pictures import Picture, StackedBar, stacked_bars
from ..units import si
from .deployment import GenerationMemory
from .intervals import HOST_S, GenerationInterval, factors
from .parallel import Parallel

_QUANTITIES = (
    *("time_to_first_token_s", "time_per_output_token_s", "latency_s", "tokens_per_s"),
    *("power_w", "energy_per_token_j", "energy_per_request_j"),
)
_TOTALS: tuple[tuple[str, str, Unit], ...] = (
    ("time to first token", "time_to_first_token_s", "s"),
    ("time per output token", "time_per_output_token_s", "s"),
    ("power", "power_w", "W"),
    ("energy per token", "energy_per_token_j", "J"),
    ("time per request", "latency_s", "s"),
    ("energy per request", "energy_per_request_j", "J"),
    ("tokens per second", "tokens_per_s", "{:,.0f}".format),
)
_KINDS = 6  # Kinds of operations in the picture, beside all others.


@dataclass(frozen=True, repr=False)
class GenerationPrediction(Answer):
    """Time, power and energy of a language model that generates text for a batch of requests.

    Args:
        model: Name of the model.
        gpu: Full name of the GPU model; all GPUs are alike.
        gpus: Number of GPUs.
        tensor_parallel: Number of GPUs that share each layer.
        expert_parallel: Number of GPUs over which whole experts are distributed.
        engine: Name of the engine.
        batching: "continuous" or "static".
        batch: Number of sequences that run at a time, on all GPUs together.
        prompt_tokens: Mean tokens of a prompt, those of its images included.
        output_tokens: Mean tokens that the model generates for a prompt.
        precision: Precision of the weights.
        cache_precision: Precision of keys and values; None for 16 bits.
        clock_mhz: The requested graphics clock in MHz.
        power_limit_w: Power cap of a board in watts.
        time_to_first_token_s: Seconds from the start of a request to its first token, without waiting in a queue. A
            batch whose prompts and outputs fill all steps has its queue inside: there, it includes the wait for room.
        time_per_output_token_s: Mean seconds from one token of a request to the next: the latency without the time to
            the first token, for each further token; 0 if the output is a single token.
        tokens_per_s: Output tokens per second, of all requests together.
        power_w: Mean power of all boards together in watts.
        energy_per_token_j: Joules of all boards per output token; those for the prompts are included.
        energy_per_request_j: Joules of all boards per request.
        host: The machine that runs the engine; "usual" if it was not named.
        overhead_s: Mean seconds of a step in which the GPU waits for the engine; included in all times above.
        memory: Memory of one GPU.
        largest_batch: The largest number of sequences of these lengths that would fit into the memory of all GPUs.
        prefill: One step on one GPU that reads prompts, as many as the largest step of the engine, and decodes nothing.
        decode: One step on one GPU in which the batch decodes and no prompt is read.
        image_tokens: Tokens that the images of a prompt add.
        reading_images: What reads the images of one prompt, on one GPU; None without images.
        prompt_deviation, output_deviation: Standard deviations of the tokens of prompts and outputs.
        idle_power_w: Power of a board without any work in watts.
        sigmas: Standard deviations of the logarithms of "time", "power" and "energy"; None if no errors are known.
        notes: Warnings about this prediction.
    """

    model: str
    gpu: str
    gpus: int
    tensor_parallel: int
    expert_parallel: int
    engine: str
    batching: str
    batch: int
    prompt_tokens: float
    output_tokens: float
    precision: str
    cache_precision: str | None
    clock_mhz: float
    power_limit_w: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    tokens_per_s: float
    power_w: float
    energy_per_token_j: float
    energy_per_request_j: float
    host: str
    overhead_s: float
    memory: GenerationMemory
    largest_batch: int
    prefill: Prediction = field(repr=False)
    decode: Prediction = field(repr=False)
    image_tokens: int = 0
    reading_images: Prediction | None = field(default=None, repr=False)
    prompt_deviation: float = 0.0
    output_deviation: float = 0.0
    idle_power_w: float = 0.0
    sigmas: Mapping[str, float] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        """Number of copies of the model, which share the batch."""
        return self.gpus // max(self.tensor_parallel, self.expert_parallel)

    @property
    def latency_s(self) -> float:
        """Seconds from the start of a request to its last token, without waiting in a queue."""
        return self.time_to_first_token_s + (self.output_tokens - 1) * self.time_per_output_token_s

    @property
    def tokens(self) -> str:
        """The lengths of prompts and outputs, such as "200 + 650 +- 610 tokens"."""
        lengths = (self.prompt_tokens, self.prompt_deviation), (self.output_tokens, self.output_deviation)
        return (
            " + ".join(f"{mean:.6g}" + (f" +- {spread:.6g}" if spread else "") for mean, spread in lengths) + " tokens"
        )

    @property
    def boards(self) -> str:
        """The GPUs with their number and layout, such as "2x NVIDIA H200 (TP 2)"."""
        layout = Parallel(self.tensor_parallel, self.expert_parallel, self.replicas)
        return f"{self.gpus}x {self.gpu} ({layout})" if self.gpus > 1 else self.gpu

    def __str__(self) -> str:
        return (
            f"{self.model}, {self.tokens}, batch {self.batch}, {self.precision}, {self.engine} on {self.boards}: "
            f"{si(self.time_per_output_token_s, 's')} per token, "
            f"{si(self.energy_per_token_j, 'J')} per token, {si(self.power_w, 'W')}"
        )

    def described(self) -> Description:
        """What a terminal and a notebook show: quantities with intervals, memory, and the steps."""
        memory, read, decode = self.memory, self.reading_images, self.decode
        said = [
            f"memory of a GPU: {si(memory.weights_bytes, 'B')} of weights, {si(memory.cache_bytes, 'B')} of cache, "
            f"{si(memory.activations_bytes, 'B')} besides; {si(memory.usable_bytes, 'B')} to use, for a batch of up to "
            f"{self.largest_batch}"
        ]
        if read is not None:
            tokens = f"images: {self.image_tokens} tokens of each prompt"
            said.append(f"{tokens}, read in {si(read.time_s, 's')} at {si(read.power_w, 'W')}")
        said.append(
            f"a step that only decodes: {si(decode.time_s, 's')}, {si(decode.power_w, 'W')}; "
            f"one that reads prompts only: {si(self.prefill.time_s, 's')}, {si(self.prefill.power_w, 'W')}; "
            f"waiting for the engine: {si(self.overhead_s, 's')} a step"
        )
        title = (
            f"{self.model}, {self.precision}, {self.tokens}, batch {self.batch} "
            f"({self.batching}), by {self.engine} on {self.boards}"
        )
        return Description(title, [totals(self, self.interval(LEVEL), _TOTALS), "\n".join(said)], self.notes)

    def _table(self) -> Table:
        """The quantities of a request, each with its 90 % interval."""
        interval = self.interval()
        ends = {name: getattr(interval, name, (None, None)) for name in _QUANTITIES}
        return Table(
            ("quantity", "value", "low", "high"), [(name, getattr(self, name), *ends[name]) for name in _QUANTITIES]
        )

    def _picture(self) -> Picture:
        """Energy of the two steps on one GPU, each as its largest kinds of operations."""
        steps = {"reading prompts": self.prefill, "decoding": self.decode}
        joules: dict[str, dict[str, float]] = {}
        for step, prediction in steps.items():
            for cost in prediction.operations:
                each = joules.setdefault(cost.operation.kind, dict.fromkeys(steps, 0.0))
                each[step] += 100 * (cost.energy_j or 0.0) / prediction.known_energy_j
        largest = sorted(joules, key=lambda kind: -max(joules[kind].values()))[:_KINDS]
        bars = []
        for step in steps:
            shares = [joules[kind][step] for kind in largest]
            bars.append(StackedBar(step, [*shares, max(0.0, 100 - sum(shares))]))
        title = f"Percent of a step's energy by kind of operation: {self.model} on {self.boards}"
        return Picture(stacked_bars(bars, [*largest, "rest"], "%", title))

    def interval(self, level: float = 0.9) -> GenerationInterval | None:
        """The intervals that should contain the values of a share of runs; None if no errors of kernels are known.

        Args:
            level: The share of runs, above 0 and below 1.

        Raises:
            InputError: The level is not between 0 and 1.
        """
        if self.sigmas is None:
            return None
        boards_idle_w = self.gpus * self.idle_power_w
        step_s, host_s = self.decode.time_s + self.overhead_s, HOST_S if self.host == USUAL.name else 0.0
        known = factors(level, self.sigmas, step_s, boards_idle_w / self.power_w, host_s)

        def around(value: float, quantity: str) -> tuple[float, float]:
            low, high = known[quantity]
            return value * low, value * high

        low_w, high_w = around(self.power_w, "power")
        return GenerationInterval(
            level,
            around(self.time_to_first_token_s, "time"),
            around(self.time_per_output_token_s, "time"),
            (max(low_w, boards_idle_w), min(high_w, self.gpus * self.power_limit_w)),
            around(self.energy_per_token_j, "energy"),
        )

    def to_dict(self, *, details: bool = True) -> dict[str, Any]:
        """The prediction as plain lists and dictionaries; quantities in SI units.

        Args:
            details: Whether to list the operations of both steps.
        """
        interval = self.interval()
        plain = (str, int, float, type(None))
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **{name: value for name, value in found.items() if isinstance(value, plain) and name != "sigmas"},
            "replicas": self.replicas,
            "latency_s": self.latency_s,
            "interval": None if interval is None else interval.to_dict(),
            "memory": self.memory.to_dict(),
            "prefill": self.prefill.to_dict(details=details),
            "decode": self.decode.to_dict(details=details),
            "reading_images": self.reading_images and self.reading_images.to_dict(details=details),
            "notes": list(self.notes),
        }
