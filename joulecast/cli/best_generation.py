"""`joulecast best-generation`: choose how to serve a language model."""

from __future__ import annotations

from collections.abc import Sequence

from ..generation.choices import OBJECTIVES, VERSIONS, GenerationChoice
from ..units import number, si
from .generate import SERVED
from .options import PRICES, AsJson, Asked, Option, Pareto, Plot, Shown, WaysCsv, asking, option
from .printing import Column, listing, quantity, tell_ways, word
from .reading import names, positive_integers
from .simulate import BURSTINESS, DRAFTS, PREFIX_HIT_RATE


@asking(
    *("prompt", "output", "gpus", "clocks", "cache_precision", "calibration", *PRICES),
    model=SERVED["model"],
    objective=Option(
        option(str, help=f"What to minimize: {', '.join(OBJECTIVES)}; but for gpus, all per token."), default="energy"
    ),
    power_limit=Option(
        option(str | None, help="Power cap of a board in watts, or several to choose from, such as 400,700."),
        "power_limit_w",
        read=lambda text: positive_integers(text, "watts"),
    ),
    counts=Option(
        option(str, help="Numbers of GPUs, such as 1,2,4, with --rate of a replica; all layouts are compared."),
        default="1",
        read=lambda text: positive_integers(text, "numbers of GPUs"),
    ),
    batches=Option(
        option(
            str | None,
            "--batches",
            help="Sequences at a time, such as 8,64. Default: up to all that fit; with --rate 64,256.",
        ),
        read=lambda text: positive_integers(text, "batches"),
    ),
    precision=Option(
        option(
            list[str] | None,
            help="Of the weights: bf16 (default), fp16, fp8, nvfp4, mxfp4 or int4 (AWQ, GPTQ); several with commas.",
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
    rate=Option(option(float | None, help="Mean requests per second. Default: full batches."), "rate_per_s"),
    p99_first_token=Option(option(float | None, help="Most seconds to the first token, at P99."), "p99_ttft_s"),
    p99_per_token=Option(option(float | None, help="Most seconds for each further token, at P99."), "p99_tpot_s"),
    max_total_power=Option(
        option(float | None, help="Most mean watts of all boards; without --rate, how many requests they allow."),
        "max_total_power_w",
    ),
    max_gpus=Option(option(int, help="Most GPUs, with --rate."), default=64),
    prefill_split=Option(
        option(bool, "--prefill-split", help="With --rate, try replicas that only read prompts, too."), default=False
    ),
    burstiness=BURSTINESS,
    prefix_hit_rate=PREFIX_HIT_RATE,
    **DRAFTS,
)
def best_generation(
    asked: Asked,
    pareto: Pareto = False,
    top: Shown = 10,
    as_json: AsJson = False,
    as_csv: WaysCsv = False,
    plot: Plot = None,
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
