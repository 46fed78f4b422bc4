"""`joulecast best-serving`: the GPUs that hold limits of latency at a rate of requests."""

from __future__ import annotations

from typing import Annotated

import typer

from ..traffic.best import OBJECTIVES
from ..traffic.choices import VERSIONS
from .generate import SERVED
from .options import PRICES, AsJson, Asked, Option, Shown, asking, option
from .printing import Column, listing, quantity, reason_lines, tell, word
from .reading import positive_integers
from .simulate import BURSTINESS, PREFIX_HIT_RATE


@asking(
    *("prompt", "output", "gpus", "clocks", "cache_precision", "power_limit", *PRICES),
    **SERVED,
    rate=Option(
        option(float | None, help="Mean requests per second. Default: as many as the power is for."), "rate_per_s"
    ),
    p99_first_token=Option(option(float | None, help="Most seconds to the first token, at P99."), "p99_ttft_s"),
    p99_per_token=Option(option(float | None, help="Most seconds for each further token, at P99."), "p99_tpot_s"),
    max_total_power=Option(option(float | None, help="Most mean watts of all boards together."), "max_total_power_w"),
    max_gpus=Option(option(int, help="Most GPUs."), default=64),
    objective=Option(option(str, help=f"What to minimize: {', '.join(OBJECTIVES)}."), default="energy"),
    counts=Option(
        option(str, help="Numbers of GPUs that may share each layer."),
        default="1,2,4,8",
        read=lambda text: positive_integers(text, "numbers of GPUs"),
    ),
    max_sequences=Option(
        option(str, help="Limits of sequences in a step, to choose from."),
        default="64,256",
        read=lambda text: positive_integers(text, "numbers of sequences"),
    ),
    burstiness=BURSTINESS,
    prefix_hit_rate=PREFIX_HIT_RATE,
)
def best_serving(
    asked: Asked,
    top: Shown = 10,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all choices as CSV.")] = False,
) -> None:
    """Choose how many GPUs serve requests within limits of P99 latency, and print the commands that start them."""
    from ..traffic.best import best_serving as best_of

    found = best_of(**{**asked, "clocks": asked["clocks"] or (None,)})
    columns = [
        word("GPUs of a replica", "replica"),
        Column("replicas", lambda each: str(each.replicas)),
        Column("clock", lambda each: f"{each.clock_mhz:g}"),
        Column("sequences", lambda each: str(each.max_sequences)),
        Column("requests/s", lambda each: f"{each.rate_per_s:.3g}"),
        Column("of at most", lambda each: f"{each.highest_rate_per_s:.3g}"),
        quantity("first token", "ttft_p99_s", "s"),
        quantity("per token", "tpot_p99_s", "s"),
        quantity("energy", "energy_per_token_j", "J"),
        quantity("power", "power_w", "W"),
    ]
    shown = listing(found[: top or None], columns)
    commands = (line for name in VERSIONS for line in ["", f"{name} {VERSIONS[name]}:", found[0].command(name)])
    text = "\n".join([shown, *reason_lines(found.left_out.items()), "", "to start a replica of the first:", *commands])
    tell(found, as_json, as_csv, lambda: text)
