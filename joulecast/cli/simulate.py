"""`joulecast simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..traffic.replay import ROUTERS
from ..units import duration, si
from .generate import LAYOUT, SERVED
from .options import AsJson, Asked, Option, Plot, asking, option
from .printing import table, tell
from .reading import positive_integers

if TYPE_CHECKING:
    from ..traffic import ServingSimulation

BURSTINESS = Option(option(float, help="Variation of the time between arrivals: 1 is Poisson."), default=1.0)
DRAFTS: Mapping[str, Option] = {
    "draft_tokens": Option(option(int, help="Tokens drafted for each sequence and verified in a step."), default=0),
    "draft_model": Option(option(str | None, help="Model that drafts. Default: drafts cost nothing.")),
    "acceptance": Option(option(float, help="Probability that a drafted token is accepted."), default=0.7),
}
"""Options of speculative decoding."""
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
    priority=Option(
        option(str, help="decode: shares steps with prompts; or prompts: decoding waits for them."), default="decode"
    ),
    prefixes=Option(
        option(str | None, help="Beginnings that prompts share and tokens of each, such as 20,1000."),
        read=lambda text: tuple(positive_integers(text, "prefixes")),
    ),
    level=Option(option(float | None, help="Level of intervals, such as 0.9. Default: no intervals.")),
    prefill_replicas=Option(option(int, help="Replicas that only read prompts; all others decode."), default=0),
    prefill_clock=Option(option(float | None, help="Graphics clock in MHz of these, or of steps that read prompts.")),
    prefill_power_limit=Option(option(float | None, help="Power cap of the same in watts."), "prefill_power_limit_w"),
    **DRAFTS,
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
