"""`joulecast best-generation`: choose how to serve a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..generation.choices import VERSIONS, GenerationChoice
from ..units import number, si
from .options import Asked
from .printing import Column, listing, quantity, tell_ways, word


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
        lambda ways, top: head + _text(ways, top),
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
    commands = [line for name in VERSIONS for line in ("", f"{name} {VERSIONS[name]}:", first.command(name))]
    return ["", "to start a replica of the first:", *commands]


_WORDS = {
    "energy": "energy per token",
    "time": "time per output token",
    "gpus": "GPUs",
    "cost": "cost per million tokens",
    "carbon": "carbon per million tokens",
}
"""Objective -> what is least."""


def _text(choices: Sequence[GenerationChoice], top: int) -> str:
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
