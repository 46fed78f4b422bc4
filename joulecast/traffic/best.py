"""best_serving: the fewest joules, or the most requests, with which a language model keeps its promises of latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, JoulecastError, unknown_name
from ..generation.choosing import named
from ..generation.lengths import Tokens
from ..generation.models import find_decoder
from ..generation.parallel import Parallel, layouts
from ..hardware import GPU
from ..progress import paced
from ..queries.objectives import Tariff
from .choices import ServingChoice, ServingChoices
from .requests import Drawn, Trace, at_rate
from .served import Served

if TYPE_CHECKING:
    from ..extraction.sources import Model

OBJECTIVES = ("energy", "gpus", "cost", "carbon")
"""Joules per output token, number of GPUs, and price and grams of CO2 per million output tokens."""

_REQUESTS = 1500  # Simulated at each rate; so many that P99 is between the 15 slowest.
_STEPS = 7  # Rates that are tried: the highest that holds is found to 1 % of what a replica can do.
_LEAST = 0.005  # Share of what a replica can do at which each request is nearly alone.
_MILLION = 1e6


@dataclass(frozen=True)
class _Seen:
    """What one replica does at a rate."""

    ttft_s: float
    tpot_s: float
    tokens_per_s: float
    power_w: float


def best_serving(
    model: Model,
    *,
    prompt_tokens: Tokens,
    output_tokens: Tokens,
    gpus: str | GPU | Iterable[str | GPU],
    rate_per_s: float | None = None,
    p99_ttft_s: float | None = None,
    p99_tpot_s: float | None = None,
    max_total_power_w: float | None = None,
    max_gpus: int = 64,
    objective: str = "energy",
    counts: Iterable[int] = (1, 2, 4, 8),
    clocks: Iterable[float | None] = (None,),
    max_sequences: Iterable[int] = (64, 256),
    precision: str = "bf16",
    engine: str = "vllm",
    cache_precision: str | None = None,
    power_limit_w: float | None = None,
    burstiness: float = 1.0,
    prefix_hit_rate: float = 0.0,
    seed: int = 0,
    price_per_hour: float | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | None = None,
) -> ServingChoices:
    """Choose how many GPUs serve a rate of requests within limits of P99 latency, or how many requests a power allows.

    For each GPU, layout, clock and batch limit, the highest rate that one replica holds is searched by simulation; the
    rate is then divided over as many replicas as it needs. Each gets its share at random.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.
        prompt_tokens: Tokens of prompts, see `simulate_serving`.
        output_tokens: Tokens of outputs.
        gpus: Names or aliases of GPUs to compare.
        rate_per_s: Mean requests per second of all replicas; None for as many as `max_total_power_w` allows.
        p99_ttft_s: Seconds that 99 % of the requests may wait for their first token; None for no limit.
        p99_tpot_s: Mean seconds per further token that 99 % of the requests may take; None for no limit.
        max_total_power_w: Mean watts of all boards together; None for no limit.
        max_gpus: Largest number of GPUs.
        objective: energy, gpus (the fewest), cost or carbon; with `rate_per_s=None`, choices are ordered by their rate.
        counts: Numbers of GPUs that may share each layer of a replica.
        clocks: Graphics clocks in MHz, to choose from; None is the GPU's default.
        max_sequences: Largest numbers of sequences in a step, to choose from.
        precision: Precision of the weights.
        engine: Name of an engine.
        cache_precision: Precision of keys and values: fp8; None for 16 bits.
        power_limit_w: Power cap of a board in watts; None for its default.
        burstiness: Coefficient of variation of the time between arrivals, see `simulate_serving`.
        prefix_hit_rate: Share of each prompt that the prefix cache holds.
        seed: Seed of arrivals and lengths.
        price_per_hour: Price of an hour of any GPU, or a mapping from GPU to price.
        price_per_kwh: Price of a kilowatt-hour, in the same currency.
        carbon: Intensity of the grid in grams of CO2 per kWh, or a country such as "DE".

    Raises:
        UnknownNameError: No such model, GPU, engine, precision, objective or country.
        InputError: A number that cannot be, or no number of these GPUs holds the limits; the highest rates that hold
            are said.

    Examples:
        >>> ways = best_serving(
        ...     "llama3_8b", prompt_tokens=500, output_tokens=100, gpus="H100 SXM", rate_per_s=20, p99_tpot_s=0.03,
        ...     counts=(1,), max_sequences=(64,),
        ... )  # fmt: skip
        >>> ways[0].tpot_p99_s <= 0.03
        True
    """
    asked = dict(locals())
    _check(asked)
    tariff = Tariff.of(price_per_hour, price_per_kwh, carbon)
    if (objective == "cost" and not tariff.has_prices) or (objective == "carbon" and tariff.carbon_g_per_kwh is None):
        raise InputError(
            f"the objective {objective} needs what it is computed from",
            given="none",
            allowed="price_per_hour or price_per_kwh for cost, carbon for carbon",
        )
    limits = {"ttft_s": p99_ttft_s, "tpot_s": p99_tpot_s}
    batches = sorted(set(max_sequences))
    asked |= dict.fromkeys(("sampling", "host", "calibration", "predictor", "max_step_tokens"))
    asked |= {"max_sequences": batches[-1], "draft_tokens": 0, "draft_model": None, "acceptance": 0.0}
    rows: list[ServingChoice] = []
    left_out: dict[str, str] = {}
    for gpu, parallel, clock in paced(_ways(model, gpus, counts, clocks)):
        boards = f"{parallel.gpus}x {gpu.name}" if parallel.gpus > 1 else gpu.name
        try:
            whole = {"gpu": f"{parallel.gpus}x {gpu.name}", "clock": clock}
            divided = {"tensor_parallel": parallel.tensor, "expert_parallel": parallel.expert}
            drawn = _Arrivals(prompt_tokens, output_tokens, burstiness, seed, find_decoder(model).context or math.inf)
            served = Served.of({**asked, **whole, **divided}, *drawn.lengths)
            for sequences in batches:
                rows += _choices(served, sequences, drawn, limits, asked, tariff, left_out, boards)
        except JoulecastError as error:
            left_out.setdefault(boards, error.what)
    left_out = {boards: why for boards, why in left_out.items() if boards not in {row.replica for row in rows}}
    if not rows:
        raise InputError(
            f"no number of these GPUs serves {find_decoder(model).name} so",
            given="; ".join(f"{boards}: {reason}" for boards, reason in list(left_out.items())[:5]) or "no layouts",
            allowed="limits that some of them hold",
            hint="give other GPUs, counts or max_sequences, a larger max_gpus, or wider limits",
        )
    return ServingChoices(rows, left_out)


class _Arrivals:
    """Requests at any rate: the same ones, quicker or slower after each other."""

    def __init__(self, prompt: Tokens, output: Tokens, burstiness: float, seed: int, context: float) -> None:
        seeds = np.random.SeedSequence(seed).spawn(3)
        prompts, outputs = Drawn("prompt_tokens", prompt, seeds[0]), Drawn("output_tokens", output, seeds[1])
        self.lengths = prompts.lengths, outputs.lengths
        self._once = at_rate(1.0, burstiness, float(_REQUESTS), prompts, outputs, context, seeds[2])

    def at(self, rate_per_s: float) -> Trace:
        """The requests at a mean rate; all at once if it is infinite."""
        return replace(self._once, arrival_s=self._once.arrival_s / rate_per_s)


def _ways(
    model: Model, gpus: str | GPU | Iterable[str | GPU], counts: Iterable[int], clocks: Iterable[float | None]
) -> Iterator[tuple[GPU, Parallel, float | None]]:
    decoder, listed = find_decoder(model), tuple(clocks)
    for count, gpu in named(gpus, tuple(sorted(set(counts)))):
        for parallel in layouts(count, gpu, decoder):
            if parallel.groups == 1:
                yield from ((gpu, parallel, clock) for clock in listed)


def _choices(
    served: Served,
    sequences: int,
    drawn: _Arrivals,
    limits: Mapping[str, float | None],
    asked: Mapping[str, Any],
    tariff: Tariff,
    left_out: dict[str, str],
    boards: str,
) -> Iterator[ServingChoice]:
    """The way with a limit of sequences, if it holds."""

    def seen(rate_per_s: float) -> _Seen:
        return _seen(served, drawn.at(rate_per_s), sequences)

    def holds(rate_per_s: float) -> bool:
        found = seen(rate_per_s)
        return all(limit is None or getattr(found, name) <= limit for name, limit in limits.items())

    # What a replica can do at most; a queue that is never empty grows without end.
    most = 0.95 * seen(math.inf).tokens_per_s / drawn.lengths[1].mean
    low, high = _LEAST * most, most
    if not holds(low):
        alone = seen(low)
        left_out[boards] = (
            f"a request alone takes {alone.ttft_s:.3g} s to its first token and {alone.tpot_s:.3g} s for a further one"
        )
        return
    if holds(high):
        low = high
    for _ in range(_STEPS if low < high else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    rate, each = asked["rate_per_s"], served.server.deployment.parallel.gpus
    watts, most_replicas = asked["max_total_power_w"], asked["max_gpus"] // each
    if rate is None:
        replicas = min(most_replicas, int(watts / seen(low).power_w))
        total = replicas * low
    else:
        replicas, total = math.ceil(rate / low), rate
    found = seen(total / replicas) if replicas else seen(low)
    held = f"a replica with {sequences} sequences holds {low:.3g} requests/s at {seen(low).power_w:.0f} W"
    if not 1 <= replicas <= most_replicas:
        left_out[boards] = f"{held}, so the highest on {asked['max_gpus']} GPUs is {most_replicas * low:.3g} requests/s"
        return
    if watts is not None and replicas * found.power_w > watts:
        left_out[boards] = f"{held}, and {replicas} replicas would draw {replicas * found.power_w:.0f} W"
        return
    tokens, joules = found.tokens_per_s, found.power_w / found.tokens_per_s
    gpu, deployment = served.server.gpu.name, served.server.deployment
    cost = tariff.cost(each * _MILLION / tokens, _MILLION * joules, gpu)
    grams = tariff.carbon_g(_MILLION * joules)
    if cost is None and asked["objective"] == "cost":
        left_out[boards] = "there is no price for it"
        return
    values = {"energy": joules, "gpus": float(replicas * each), "cost": cost, "carbon": grams}
    value = -total if rate is None else values[asked["objective"]]
    yield ServingChoice(
        model=deployment.decoder.name,
        gpu=gpu,
        gpus=replicas * each,
        replicas=replicas,
        tensor_parallel=deployment.parallel.tensor,
        expert_parallel=deployment.parallel.expert,
        precision=asked["precision"],
        cache_precision=asked["cache_precision"],
        clock_mhz=served.clock_mhz,
        default_clock=served.clock_mhz == served.server.gpu.checked_clock_mhz(None),
        power_limit_w=asked["power_limit_w"],
        max_sequences=sequences,
        max_step_tokens=served.limits.tokens,
        memory_share=deployment.engine.memory_share,
        rate_per_s=total,
        highest_rate_per_s=replicas * low,
        ttft_p99_s=found.ttft_s,
        tpot_p99_s=found.tpot_s,
        tokens_per_s=replicas * tokens,
        power_w=replicas * found.power_w,
        energy_per_token_j=joules,
        value=math.nan if value is None else value,
        cost_per_million_tokens=cost,
        carbon_g_per_million_tokens=grams,
    )


def _seen(served: Served, trace: Trace, sequences: int) -> _Seen:
    (replica,) = served.replicas(trace, count=1, sequences=sequences)
    found = replica.requests
    first_s, end_s, output = np.array(found.first_s), np.array(found.end_s), np.array(found.output)
    log = replica.log.columns
    lasting_s = replica.now
    further = output > 1
    tpot_s = (end_s - first_s)[further] / (output[further] - 1)
    return _Seen(
        float(np.quantile(first_s - np.array(found.arrival_s), 0.99)),
        float(np.quantile(tpot_s, 0.99)) if further.any() else 0.0,
        float(output.sum()) / lasting_s,
        math.fsum(log[replica.log.NAMES.index("energy_j")]) / lasting_s,
    )


def _check(asked: Mapping[str, Any]) -> None:
    if asked["objective"] not in OBJECTIVES:
        raise unknown_name("objective", asked["objective"], OBJECTIVES)
    if asked["rate_per_s"] is None and asked["max_total_power_w"] is None:
        raise InputError(
            "a choice needs the requests per second, or the power that there is for them",
            given="neither",
            allowed="rate_per_s, max_total_power_w, or both",
            hint="give rate_per_s=20",
        )
    for name in ("rate_per_s", "p99_ttft_s", "p99_tpot_s", "max_total_power_w", "max_gpus", "burstiness"):
        value = asked[name]
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name} is out of range", given=f"{value!r:.60}", allowed="above 0")
    numbers: Sequence[Any] = tuple(asked["max_sequences"]) if not isinstance(asked["max_sequences"], int) else ()
    if not numbers or not all(isinstance(each, int) and 1 <= each <= 8192 for each in numbers):
        raise InputError(
            "max_sequences are numbers of sequences to choose from",
            given=f"{asked['max_sequences']!r:.60}",
            allowed="1 to 8192 each",
            hint="give max_sequences=(64, 256)",
        )
    if not 0 <= asked["prefix_hit_rate"] <= 1:
        raise InputError("prefix_hit_rate is out of range", given=f"{asked['prefix_hit_rate']!r:.60}", allowed="0 to 1")
