"""`joulecast generate` and `joulecast best-generation`: what serving a language model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..generation.engines import ENGINES
from ..units import number, si
from .options import PRICES, REQUIRED, AsJson, Asked, Option, Plot, Shown, argument, asking, option
from .printing import LEVEL, Column, listing, quantity, reason_lines, tell, totals, word
from .reading import names, positive_integers

if TYPE_CHECKING:
    from ..generation.choices import GenerationChoice
    from ..generation.prediction import GenerationPrediction


SERVED: Mapping[str, Option] = {
    "model": Option(
        argument("Name of a language model, or the path of its config.json."),
        default=REQUIRED,
        read=lambda text: Path(text) if text.endswith(".json") else text,
    ),
    "precision": Option(option(str, help="Of the weights: bf16, fp16, fp8, nvfp4 or mxfp4."), default="bf16"),
    "engine": Option(option(str, help=f"The engine that serves it: {', '.join(ENGINES)}."), default="vllm"),
}
"""Options of all commands about a language model that is served."""
LAYOUT: Mapping[str, Option] = {
    "sampling": Option(
        option(str | None, help="greedy, temperature, or top_p (also for top-k). Default: the engine's way.")
    ),
    "tensor_parallel": Option(
        option(
            int | None,
            help="GPUs that share each layer; others are replicas. Default: all that the model divides over.",
        )
    ),
    "expert_parallel": Option(option(int, help="GPUs that whole experts are shared out to."), default=1),
}
"""Options of commands that are told how it is served."""


@asking(
    *("prompt", "output", "cache_precision", "clock", "host", "calibration", "predictor", "power_limit"),
    **SERVED,
    gpu=Option(
        option(str, help='GPU, such as "H100 SXM"; "2x H100 SXM" are two that share the model.'), default=REQUIRED
    ),
    batch=Option(option(int, help="Sequences at a time, on all GPUs together."), default=1),
    batching=Option(option(str | None, help="continuous or static. Default: what the engine does.")),
    **LAYOUT,
)
def generate(
    asked: Asked,
    tree: Annotated[bool, typer.Option("--tree", help="Show the energy of modules in a step of decoding.")] = False,
    depth: Annotated[int, typer.Option(min=0, help="Levels of the tree to show; 0 for all.")] = 5,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
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
        f"a step that only decodes: {si(found.decode.time_s, 's')}, {si(found.decode.power_w, 'W')}; one that reads "
        f"prompts only: {si(found.prefill.time_s, 's')}, {si(found.prefill.power_w, 'W')}; waiting for the engine: "
        f"{si(found.overhead_s, 's')} a step",
        "",
        *(f"note: {note}" for note in found.notes),
    ]
    return "\n".join(parts)


@asking(
    *("prompt", "output", "gpus", "clocks", "cache_precision", "power_limit", *PRICES),
    model=SERVED["model"],
    objective=Option(
        option(str, help="What to minimize: energy (per token), time (per output token), cost or carbon (per token)."),
        default="energy",
    ),
    counts=Option(
        option(str, help="Numbers of GPUs, such as 1,2,4; all their layouts are compared."),
        default="1",
        read=lambda text: positive_integers(text, "numbers of GPUs"),
    ),
    batches=Option(
        option(str | None, "--batches", help="Sequences at a time, such as 8,64. Default: from 1 to all that fit."),
        read=lambda text: positive_integers(text, "batches"),
    ),
    precision=Option(
        option(
            list[str] | None,
            help="Of the weights: bf16, fp16, fp8, nvfp4 or mxfp4; repeat it, or separate by commas. Default: bf16.",
        ),
        "precisions",
        read=names,
    ),
    engine=SERVED["engine"],
    max_first_token=Option(
        option(float | None, help="Most seconds that a request may wait for its first token."),
        "max_time_to_first_token_s",
    ),
    max_time_per_token=Option(
        option(float | None, help="Most seconds from one token of a request to the next."),
        "max_time_per_output_token_s",
    ),
    min_tokens_per_s=Option(option(float | None, help="Least tokens per second, of all requests together.")),
)
def best_generation(
    asked: Asked,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Show the Pareto front of energy and time per token, fastest first.")
    ] = False,
    top: Shown = 10,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print all ways that keep the limits as CSV, or with --pareto the front.")
    ] = False,
    plot: Plot = None,
) -> None:
    """Choose GPU, number of GPUs and their layout, clock, batch and precision to serve a language model.

    Shows the best way of each GPU and number of GPUs; the best comes first. TP is tensor parallelism, EP expert
    parallelism; other GPUs are replicas.
    """
    from ..generation.choices import rows_csv
    from ..generation.choosing import best_generation as best_of

    choices = best_of(**{**asked, "precisions": asked["precisions"] or ("bf16",)})
    if as_csv:
        typer.echo(rows_csv(choices.pareto() if pareto else choices.rows), nl=False)
        return
    given = asked.given
    title = "Pareto front of energy and time per token" if pareto else f"least {_WORDS[given['objective']]}"
    head = f"{given['model']}, {given['prompt']} + {given['output']} tokens, by {given['engine']}: {title}\n"
    shown = choices.pareto() if pareto else choices
    left_out = reason_lines(choices.left_out.items())
    tell(choices, as_json, False, lambda: "\n".join([head, _choices_text(shown, top), *left_out]), plot)


_WORDS = {
    "energy": "energy per token",
    "time": "time per output token",
    "cost": "cost per million tokens",
    "carbon": "carbon per million tokens",
}
"""Objective -> what is least."""


def _choices_text(choices: Sequence[GenerationChoice], top: int) -> str:
    shown = choices[: top or None]
    columns = [
        word("GPU", "boards"),
        word("layout", "layout", any(choice.gpus > 1 for choice in shown)),
        Column("clock MHz", lambda choice: f"{choice.clock_mhz:g}"),
        word("precision", "precision"),
        Column("batch", lambda choice: str(choice.batch)),
        quantity("energy per token", "energy_per_token_j", "J"),
        quantity("time per token", "time_per_output_token_s", "s"),
        quantity("first token", "time_to_first_token_s", "s"),
        Column("tokens/s", lambda choice: f"{choice.tokens_per_s:,.0f}"),
        quantity("power", "power_w", "W"),
        Column(
            "cost per million",
            lambda choice: number(choice.cost_per_million_tokens),
            shown=any(choice.cost_per_million_tokens is not None for choice in shown),
        ),
        quantity(
            "CO2 per million",
            "carbon_g_per_million_tokens",
            "g",
            any(choice.carbon_g_per_million_tokens is not None for choice in shown),
        ),
    ]
    return listing(choices, columns, top)
