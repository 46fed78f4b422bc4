"""best_generation: the GPUs, their number, clock, batch and precision that serve a language model best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from ..checked import in_range
from ..errors import InputError, named
from ..generation.choices import GenerationChoices
from ..generation.choosing import LIMITS, steady_ways
from ..generation.deployment import checked_precisions
from ..generation.engines import ENGINES
from ..generation.serving import Tokens
from ..hardware import GPU
from ..operations.inputs import require_positive_integer
from .rates import ways_at_a_rate
from .simulate import refuse_idle_drafts

if TYPE_CHECKING:
    from ..extraction.sources import Model
    from ..predictors.board.profile import Calibrated

_OF_RATES = (
    *("p99_ttft_s", "p99_tpot_s", "max_total_power_w", "max_gpus", "prefill_split", "burstiness", "prefix_hit_rate"),
    *("draft_tokens", "draft_model", "acceptance", "seed"),
)
"""Arguments of requests at a rate."""


def best_generation(
    model: Model,
    *,
    prompt_tokens: Tokens,
    output_tokens: Tokens,
    images: Sequence[Sequence[int]] | None = None,
    objective: str = "energy",
    gpus: str | GPU | Iterable[str | GPU] | None = None,
    counts: Iterable[int] = (1,),
    batches: Iterable[int] | None = None,
    precisions: Iterable[str] = ("bf16",),
    clocks: Iterable[float] | None = None,
    engine: str = "vllm",
    cache_precision: str | None = None,
    power_limit_w: float | Iterable[float] | None = None,
    max_time_to_first_token_s: float | None = None,
    max_time_per_output_token_s: float | None = None,
    min_tokens_per_s: float | None = None,
    rate_per_s: float | None = None,
    p99_ttft_s: float | None = None,
    p99_tpot_s: float | None = None,
    max_total_power_w: float | None = None,
    max_gpus: int = 64,
    prefill_split: bool = False,
    burstiness: float = 1.0,
    prefix_hit_rate: float = 0.0,
    draft_tokens: int = 0,
    draft_model: Model | None = None,
    acceptance: float = 0.7,
    seed: int = 0,
    price_per_hour: float | str | Mapping[str, float] | None = None,
    price_per_kwh: float | None = None,
    carbon: float | str | None = None,
    calibration: Calibrated | None = None,
) -> GenerationChoices:
    """Choose how to serve a language model: the best layout, clock, batch and precision of each GPU, best first.

    The batch is always full, or requests arrive at a rate. With a rate, each way is simulated: the highest rate that a
    replica holds within the limits of P99 is searched, and the rate is divided over as many replicas as it needs. Each
    gets its share at random. GPUs without enough memory, without the precision, or outside a limit are left out; the
    result's `left_out` says why.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.
        prompt_tokens: Tokens of each prompt: an int, a pair (mean, standard deviation), or an array with the length of
            each request.
        output_tokens: Tokens that the model generates for each prompt, in the same forms.
        images: Height and width in pixels of each image of a prompt; see `predict_generation`.
        objective: energy, time, cost or carbon, each per output token, or gpus; the lowest value is best. Without a
            rate but with a total power, ways are ordered by the requests per second that it allows.
        gpus: Names, aliases or files of GPUs, or "2x H100 SXM"; None for the whole catalogue.
        counts: Numbers of GPUs to compare, for names without a number; with a rate, those of one replica. Each number
            is tried in all layouts: tensor parallelism, for models with experts also expert parallelism with and
            without data-parallel attention, and replicas.
        batches: Numbers of sequences that run at a time on all GPUs, to choose from; None for those from 1 to the
            largest that fits. With a rate, the most that a replica may have; None for 64 and 256.
        precisions: Precisions of the weights, to choose from.
        clocks: Graphics clocks in MHz, to choose from; None for eight of each GPU, its default among them, and with a
            rate for its default, and four fifths and two thirds of it.
        engine: Name of an engine in `joulecast.generation.engines.ENGINES`, such as vllm.
        cache_precision: fp8 for keys and values; None for 16 bits.
        power_limit_w: Power cap of a board in watts, or several to choose from; None for each board's default. Boards
            whose highest limit is lower keep that one.
        max_time_to_first_token_s: Largest number of seconds that a request may wait for its first token. This and the
            next two are limits of full batches.
        max_time_per_output_token_s: Largest mean number of seconds from one token of a request to the next.
        min_tokens_per_s: Smallest number of output tokens per second, of all requests together.
        rate_per_s: Mean requests per second of all replicas. None for full batches, or with `max_total_power_w` for as
            many as it allows.
        p99_ttft_s: Seconds that 99 % of the requests may wait for their first token; None for no limit.
        p99_tpot_s: Mean seconds per further token that 99 % of the requests may take; None for no limit.
        max_total_power_w: Mean watts of all boards together; None for no limit.
        max_gpus: Largest number of GPUs.
        prefill_split: Whether to try replicas that only read prompts, too, at clocks of their own; for a rate.
        burstiness: Coefficient of variation of the time between arrivals, see `simulate_serving`.
        prefix_hit_rate: Share of each prompt that the prefix cache holds.
        draft_tokens: Number of tokens to draft for each sequence (speculative decoding): with a rate, each way is tried
            with and without. 0 for none.
        draft_model: The model that drafts them, on the same GPUs; None for drafts that cost nothing, such as n-grams.
        acceptance: Probability that a drafted token is accepted if those before it were.
        seed: Seed of arrivals and lengths.
        price_per_hour: Price of an hour of any GPU, or a mapping from GPU to price; GPUs without a price are left out.
        price_per_kwh: Price of a kilowatt-hour of electricity, in the same currency.
        carbon: Intensity of the grid in grams of CO2 per kWh, or a country such as "DE": its yearly average.
        calibration: What was measured on a board of one of the GPUs; see `joulecast.predict`. Others are predicted as
            usual.

    Raises:
        UnknownNameError: No such model, GPU, engine, precision, objective or country.
        InputError: A number that cannot be, or no GPU serves the model within the limits: the error says what can be
            reached; or prompt and output are longer than the model's context.

    Examples:
        >>> ways = best_generation("llama3_8b", prompt_tokens=300, output_tokens=300, gpus=["H100 SXM", "L40S"])
        >>> [way.gpu for way in ways]
        ['NVIDIA H100 80GB HBM3', 'NVIDIA L40S']
    """
    asked = dict(locals())
    caps = power_limit_w if isinstance(power_limit_w, Iterable) else [power_limit_w]
    asked["power_limit_w"] = list(dict.fromkeys(caps))
    asked |= {name: tuple(asked[name]) for name in ("batches", "clocks", "precisions") if asked[name] is not None}
    has_rate = rate_per_s is not None or max_total_power_w is not None
    _check(asked, has_rate)
    return ways_at_a_rate(asked) if has_rate else steady_ways(asked)


def _check(asked: dict[str, Any], has_rate: bool) -> None:
    other = [name for name in LIMITS if asked[name] is not None]
    if not has_rate:
        usual = signature(best_generation).parameters
        other = [name for name in _OF_RATES if asked[name] != usual[name].default]
    if other:
        raise InputError(
            "limits of full batches do not hold for requests at a rate, nor the other way round",
            given=", ".join(f"{name}={asked[name]!r:.60}" for name in other),
            allowed="rate_per_s or max_total_power_w, with p99_ttft_s and p99_tpot_s"
            if has_rate
            else f"{', '.join(LIMITS)}; or rate_per_s, or max_total_power_w",
            hint=f"leave out {other[0]}" if has_rate else "give rate_per_s=20, or max_total_power_w=10000",
        )
    # What is not known at all is refused here, and not left out as what some GPUs lack.
    engine, cache = named("engine", asked["engine"], ENGINES), asked["cache_precision"]
    found = (checked_precisions(precision, cache, engine).weights for precision in asked["precisions"])
    asked["precisions"] = tuple(dict.fromkeys(found))
    refuse_idle_drafts(asked)
    for batch in asked["batches"] or ():
        require_positive_integer("batch", batch)
    for name in (*LIMITS, "rate_per_s", "p99_ttft_s", "p99_tpot_s", "max_total_power_w", "max_gpus", "burstiness"):
        if asked[name] is not None:
            in_range(name, asked[name], above=True)
    for name, most in (("prefix_hit_rate", 1), ("acceptance", 1), ("draft_tokens", 32), ("seed", math.inf)):
        in_range(name, asked[name], high=most, whole=most > 1)
