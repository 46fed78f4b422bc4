"""`joulecast simulate` and `joulecast best-serving`: a language model that serves requests as they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..traffic.best import OBJECTIVES
from ..traffic.choices import VERSIONS
from ..traffic.replay import ROUTERS
from ..units import duration, si
from .generate import LAYOUT, SERVED
from .options import PRICES, AsJson, Asked, Option, Plot, Shown, asking, option
from .printing import Column, listing, quantity, reason_lines, table, tell, word
from .reading import positive_integers

if TYPE_CHECKING:
    from ..traffic import ServingSimulation


BURSTINESS = Option(option(float, help="Variation of the time between arrivals: 1 is Poisson."), default=1.0)
PREFIX_HIT_RATE = Option(option(float, help="Share of prompts that the prefix cache holds."), default=0.0)


@asking(
    *("prompt", "output", "cache_precision", "clock", "host", "calibration", "predictor", "power_limit"),
    model=SERVED["model"],
    gpu=Option(Annotated[str | None, typer.Argument(help='GPUs, such as "H100 SXM" or "4x H100 SXM".')]),
    gpu_option=Option(option(str | None, "--gpu", help="The GPUs, in place of the argument.")),
    rate=Option(option(float | None, help="Mean requests per second."), "requests"),
    trace=Option(option(Path | None, help="CSV or Parquet file with arrival_s, prompt_tokens and output_tokens.")),
    concurrency=Option(option(int | None, help="Requests at a time: one begins when another ends.")),
    seconds=Option(option(float | None, "--duration", help="Seconds in which requests arrive."), "duration_s"),
    burstiness=BURSTINESS,
    warmup=Option(option(float, help="Seconds at the beginning that are not counted."), "warmup_s", 0.0),
    seed=Option(option(int, help="Seed of arrivals and lengths."), default=0),
    router=Option(option(str, help=f"How replicas get requests: {' or '.join(ROUTERS)}."), default="round_robin"),
    max_sequences=Option(option(int, help="Sequences of a replica in a step."), default=256),
    max_step_tokens=Option(option(int | None, help="Tokens of a step. Default: the engine's.")),
    prefix_hit_rate=PREFIX_HIT_RATE,
    prefill_replicas=Option(option(int, help="Replicas that only read prompts; all others decode."), default=0),
    prefill_clock=Option(option(float | None, help="Their graphics clock in MHz.")),
    draft_tokens=Option(option(int, help="Tokens drafted for each sequence and verified in a step."), default=0),
    draft_model=Option(option(str | None, help="Model that drafts. Default: drafts cost nothing.")),
    acceptance=Option(option(float, help="Probability that a drafted token is accepted."), default=0.7),
    precision=SERVED["precision"],
    engine=SERVED["engine"],
    **LAYOUT,
)
def simulate(
    asked: Asked,
    plot: Plot = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all requests as CSV.")] = False,
) -> None:
    """Simulate a language model that serves requests as they arrive: latencies with their tails, power and energy."""
    from ..traffic.simulate import simulate_serving

    gpu, other, rate, trace = asked["gpu"], asked.pop("gpu_option"), asked["requests"], asked.pop("trace")
    if (gpu is None) == (other is None):
        raise InputError(
            "a simulation needs the GPUs, once", given=f"{gpu} and {other}", allowed='such as "4x H100 SXM"'
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
    tell(found, as_json, as_csv, lambda: _text(found), plot)


def _text(found: ServingSimulation) -> str:
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
