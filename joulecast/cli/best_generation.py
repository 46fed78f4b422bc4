"""`joulecast best-generation`: choose how to serve a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..units import number
from .generate import SERVED
from .options import PRICES, AsJson, Asked, Option, Plot, Shown, asking, option
from .printing import Column, listing, quantity, reason_lines, tell, word
from .reading import names, positive_integers

if TYPE_CHECKING:
    from ..generation.choices import GenerationChoice


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
    tell(choices, as_json, False, lambda: "\n".join([head, _text(shown, top), *left_out]), plot)


_WORDS = {
    "energy": "energy per token",
    "time": "time per output token",
    "cost": "cost per million tokens",
    "carbon": "carbon per million tokens",
}
"""Objective -> what is least."""


def _text(choices: Sequence[GenerationChoice], top: int) -> str:
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
