"""`joulecast generate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..generation.choices import GenerationChoice
from ..generation.engines import COMMANDS
from ..units import duration, number, si
from .options import Asked
from .printing import LEVEL, Column, listing, quantity, table, tell, tell_ways, totals, word

if TYPE_CHECKING:
    from ..generation.images.predict import ImagePrediction
    from ..generation.prediction import GenerationPrediction
    from ..traffic import ServingSimulation


def generate(asked: Asked, tree: bool = False, depth: int = 5, as_json: bool = False, plot: Path | None = None) -> None:
    """Predict seconds, watts and joules per token of an engine that writes text with a language model."""
    from ..generation.generate import predict_generation

    prediction = predict_generation(**asked)
    steps = prediction.decode
    text = (lambda: steps.tree().summarized().to_text(depth)) if tree else (lambda: _text(prediction))
    tell(prediction, as_json, False, text, plot)


def _text(found: GenerationPrediction) -> str:
    interval = found.interval(LEVEL)
    quantities = (
        ("time to first token", "time_to_first_token_s", "s"),
        ("time per output token", "time_per_output_token_s", "s"),
        ("power", "power_w", "W"),
        ("energy per token", "energy_per_token_j", "J"),
        ("time per request", "latency_s", "s"),
        ("energy per request", "energy_per_request_j", "J"),
        ("tokens per second", "tokens_per_s", lambda value: f"{value:,.0f}"),
    )
    boards = found.boards
    memory = found.memory
    parts = [
        f"{found.model}, {found.precision}, {found.tokens}, batch {found.batch} "
        f"({found.batching}), by {found.engine} on {boards}",
        "",
        totals(found, interval, quantities),
        "",
        f"memory of a GPU: {si(memory.weights_bytes, 'B')} of weights, {si(memory.cache_bytes, 'B')} of cache, "
        f"{si(memory.activations_bytes, 'B')} besides; {si(memory.usable_bytes, 'B')} to use, for a batch of up to "
        f"{found.largest_batch}",
        *_images_text(found),
        f"a step that only decodes: {si(found.decode.time_s, 's')}, {si(found.decode.power_w, 'W')}; one that reads "
        f"prompts only: {si(found.prefill.time_s, 's')}, {si(found.prefill.power_w, 'W')}; waiting for the engine: "
        f"{si(found.overhead_s, 's')} a step",
        "",
        *(f"note: {note}" for note in found.notes),
    ]
    return "\n".join(parts)


def _images_text(found: GenerationPrediction) -> Iterator[str]:
    read = found.reading_images
    if read is not None:
        yield (
            f"images: {found.image_tokens} tokens of each prompt, read in {si(read.time_s, 's')} at "
            f"{si(read.power_w, 'W')}"
        )


# `joulecast simulate`.


def simulate(asked: Asked, plot: Path | None = None, as_json: bool = False, as_csv: bool = False) -> None:
    """Simulate a language model that serves requests as they arrive: latencies with their tails, power and energy."""
    from ..traffic.simulate import simulate_serving

    gpu, other, rate, trace = asked["gpu"], asked.pop("gpu_option"), asked["requests"], asked.pop("trace")
    if (gpu is None) == (other is None):
        raise InputError(
            "a simulation needs the GPUs, once",
            given="none" if gpu is None else f"{gpu} --gpu {other}",
            allowed='such as "4x H100 SXM", as the second argument or after --gpu',
        )
    if rate is not None and trace is not None:
        raise InputError(
            "requests arrive at a rate or as in a trace",
            given=f"--rate {rate:g} --trace {trace}",
            allowed="one of them",
        )
    if trace is not None:
        asked.update(prompt_tokens=None, output_tokens=None, requests=trace)
    found = simulate_serving(**{**asked, "gpu": gpu or other})
    tell(found, as_json, as_csv, lambda: _simulation_text(found), plot)


def _simulation_text(found: ServingSimulation) -> str:
    boards = f"{found.gpus}x {found.gpu} ({found.layout})" if found.gpus > 1 else found.gpu
    return "\n".join(
        [
            f"{found.model}, {found.precision}, by {found.engine} on {boards}",
            f"{found.counted:,} requests in {duration(found.duration_s - found.warmup_s)}, "
            f"{found.requests_per_s:.3g} requests/s and {found.tokens_per_s:,.0f} tokens/s were served",
            "",
            table(*found.latencies(), frozenset({1, 2, 3})),
            "",
            f"power {si(found.power_w, 'W')}, {si(found.energy_j, 'J')} in all, "
            f"{si(found.energy_per_token_j, 'J')} per token; "
            f"{100 * found.idle_share:.1f} % of the time without requests; {found.preemptions} preemptions",
            *(f"note: {note}" for note in found.notes),
        ]
    )


# `joulecast best-generation`: choose how to serve a language model.


def best_generation(
    asked: Asked,
    pareto: bool = False,
    top: int = 10,
    as_json: bool = False,
    as_csv: bool = False,
    plot: Path | None = None,
) -> None:
    """Choose GPU, number of GPUs and their layout, clock, batch and precision to serve a language model.

    Shows the best way of each GPU and number of GPUs; the best comes first. TP is tensor parallelism, EP expert
    parallelism; other GPUs are replicas. With --rate or --max-total-power, each way is simulated, times are those at
    P99, and the commands that start the first way are printed.
    """
    from ..traffic.best import best_generation as best_of

    choices = best_of(**{**asked, "precisions": asked["precisions"] or ("bf16",)})
    given = asked.given
    title = "Pareto front of energy and time per token" if pareto else f"least {_WORDS[given['objective']]}"
    if choices[0].rate_per_s is not None and given["rate"] is None:
        title = "most requests per second"
    lengths = " + ".join(map(_lengths_text, (asked["prompt_tokens"], asked["output_tokens"])))
    head = f"{given['model']}, {lengths} tokens, by {given['engine']}: {title}\n\n"
    tell_ways(
        choices,
        (pareto, top, as_json, as_csv, plot),
        lambda ways, top: head + _ways_text(ways, top),
        lambda: _start(choices[0]),
    )


def _lengths_text(lengths: int | list[float]) -> str:
    """A number of tokens, a mean with its deviation, or how many lengths were given."""
    if isinstance(lengths, int) or len(lengths) == 1:
        return f"{lengths if isinstance(lengths, int) else lengths[0]:g}"
    return f"{lengths[0]:g} +- {lengths[1]:g}" if len(lengths) == 2 else f"{len(lengths)} lengths of"


def _start(first: GenerationChoice) -> list[str]:
    """The commands that start a way that was simulated."""
    if first.rate_per_s is None:
        return []
    commands = [
        line for name, words in COMMANDS.items() for line in ("", f"{name} {words.version}:", first.command(name))
    ]
    return ["", "to start a replica of the first:", *commands]


_WORDS = {
    "energy": "energy per token",
    "time": "time per output token",
    "gpus": "GPUs",
    "cost": "cost per million tokens",
    "carbon": "carbon per million tokens",
}
"""Objective -> what is least."""


def _ways_text(choices: Sequence[GenerationChoice], top: int) -> str:
    plain = "{:g}".format
    columns = [
        word("GPU", "boards"),
        Column("layout", lambda each: each.layout if each.gpus > 1 or each.draft_tokens else None, right=False),
        quantity("clock MHz", "clock_mhz", plain),
        quantity("of prompts", "prefill_clock_mhz", plain),
        quantity("cap W", "power_limit_w", plain),
        word("precision", "precision"),
        quantity("batch", "batch", str),
        quantity("requests/s", "rate_per_s", number),
        quantity("of at most", "highest_rate_per_s", number),
        quantity("energy per token", "energy_per_token_j", "J"),
        Column("time per token", lambda each: si(each.tpot_p99_s or each.time_per_output_token_s, "s")),
        Column("first token", lambda each: si(each.ttft_p99_s or each.time_to_first_token_s, "s")),
        quantity("tokens/s", "tokens_per_s", "{:,.0f}".format),
        quantity("power", "power_w", "W"),
        quantity("cost per million", "cost_per_million_tokens", number),
        quantity("CO2 per million", "carbon_g_per_million_tokens", "g"),
    ]
    return listing(choices, columns, top)


# `joulecast image`.


def image(asked: Asked, as_json: bool = False, plot: Path | None = None) -> None:
    """Predict seconds, watts and joules for each image or video that a diffusion pipeline makes."""
    from ..generation.images.predict import predict_image

    prediction = predict_image(**asked)
    tell(prediction, as_json, False, lambda: _image_text(prediction), plot)


def _image_text(prediction: ImagePrediction) -> str:
    batch, boards = prediction.batch, prediction.gpus

    def row(name: str, times: str, time_s: float, power_w: float | None, energy_j: float) -> list[str]:
        return [name, times, si(time_s, "s"), si(power_w, "W"), si(energy_j, "J")]

    rows = [
        row(name, str(times), part.time_s, part.power_w, boards * times * part.known_energy_j / batch)
        for name, times, part in prediction.parts
    ]
    each = prediction.time_per_image_s, prediction.power_w, prediction.energy_per_image_j
    rows.append(row(f"per {prediction.made}", "", *each))
    head = (
        f"{prediction.model}, {prediction.size}, batch {batch}, {prediction.precision}, on {boards}x {prediction.gpu}; "
        f"{si(prediction.weights_bytes, 'B')} of weights\n"
    )
    shown = table(["part", "times", "each", "power", f"joules per {prediction.made}"], rows, frozenset({1, 2, 3, 4}))
    return "\n".join([head, shown, *(f"note: {note}" for note in prediction.notes)])
