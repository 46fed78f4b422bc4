"""simulate_serving: requests as they arrive, through the scheduler of an engine, over predicted steps."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checked import in_range
from ..errors import InputError, named, unknown_name
from ..generation.engines import ENGINES
from ..generation.models import find_decoder
from ..generation.serving import Lengths, Tokens
from ..generation.towers import find_images
from ..hardware import GPU
from ..hardware.host import Host
from ..predictors.board.profile import Calibrated
from ..predictors.intervals.conformal import require_level
from .requests import Drawn, Trace, at_rate, endless, read_trace
from .served import ROUTERS, Served
from .simulation import ServingSimulation
from .timeline import usual_step

if TYPE_CHECKING:
    from ..extraction.sources import Model


def simulate_serving(
    model: Model,
    gpu: str | GPU | None,
    *,
    requests: float | str | Path | Any = None,
    prompt_tokens: Tokens | None = None,
    output_tokens: Tokens | None = None,
    images: Sequence[Sequence[int]] | None = None,
    duration_s: float | None = None,
    seed: int = 0,
    level: float | None = None,
    concurrency: int | None = None,
    burstiness: float = 1.0,
    warmup_s: float = 0.0,
    router: str = "round_robin",
    priority: str = "decode",
    prefixes: tuple[int, int] | None = None,
    max_sequences: int = 256,
    max_step_tokens: int | None = None,
    prefix_hit_rate: float = 0.0,
    prefill_replicas: int = 0,
    prefill_clock: float | None = None,
    prefill_power_limit_w: float | None = None,
    draft_tokens: int = 0,
    draft_model: Model | None = None,
    acceptance: float = 0.7,
    precision: str = "bf16",
    engine: str = "vllm",
    tensor_parallel: int | None = None,
    expert_parallel: int = 1,
    clock: float | None = None,
    power_limit_w: float | None = None,
    cache_precision: str | None = None,
    sampling: str | None = None,
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    predictor: str | Path | None = None,
) -> ServingSimulation:
    """Simulate a language model that serves requests as they arrive: latencies with their tails, and power over time.

    Each replica of the model is replayed step by step with continuous batching, chunked prompts, and a cache of keys
    and values from which the youngest sequence is dropped when it is full. The same seed gives the same result.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.
        gpu: Name or alias from the catalogue; "4x H100 SXM" are four, which share the model or are replicas of it, see
            `tensor_parallel`.
        requests: Mean number of requests per second; or a trace, which is the path of a CSV or Parquet file or a data
            frame with the columns arrival_s, prompt_tokens and output_tokens. None with `concurrency`.
        prompt_tokens: Tokens of prompts: an int, a pair (mean, standard deviation) of a log-normal distribution, or an
            array to draw from. None with a trace.
        output_tokens: Tokens of outputs, in the same forms.
        images: Height and width in pixels of each image of a prompt, whose tokens are added to those of each prompt, of
            a trace as well; see `predict_generation`.
        duration_s: Seconds in which requests arrive, and over which rates and energies are taken. None for a whole
            trace up to the end of its last request.
        seed: Seed of arrivals and lengths.
        level: Share of runs whose values should lie in intervals, such as 0.9: the same requests are replayed with
            steps that are as quick, and as slow, as they may be. None for no intervals.
        concurrency: Number of requests at a time, on all GPUs together: whenever one ends, the next begins.
        burstiness: Coefficient of variation of the time between arrivals at a rate: 1 for a Poisson process, 0 for
            equal times, more for bursts (gamma distribution).
        warmup_s: Seconds at the beginning that are not counted.
        router: "round_robin", "least_loaded" for the replica with the fewest requests, or "prefix" for that which has
            read the prefix of the request.
        priority: "decode" if sequences that decode share each step with prompts, as in vLLM; "prompts" if they wait
            while prompts are read, as in engines that read prompts in steps of their own.
        prefixes: How many beginnings the prompts have, and tokens of each, such as (20, 1000) for 20 system prompts;
            they stay in memory that is free. A trace has them in columns prefix and prefix_tokens. None for none.
        max_sequences: Largest number of sequences of a replica in a step (vLLM's --max-num-seqs).
        max_step_tokens: Largest number of tokens of a step (--max-num-batched-tokens); None for the engine's own.
        prefix_hit_rate: Share of each prompt whose keys and values the prefix cache holds.
        prefill_replicas: Number of replicas that only read prompts, and send keys and values to those that decode; 0 if
            all do both. For requests at a rate or from a trace.
        prefill_clock: Graphics clock in MHz of these replicas, or without any, of the steps that read prompts; None for
            `clock`.
        prefill_power_limit_w: Power cap in watts of a board of the same; None for `power_limit_w`.
        draft_tokens: Number of tokens that are drafted for each sequence and verified in the next step (speculative
            decoding); 0 for none.
        draft_model: The model that drafts them, on the same GPUs; None for drafts that cost nothing, such as n-grams.
        acceptance: Probability that a drafted token is accepted if those before it were.
        precision: Precision of the weights, see `predict_generation`.
        engine: Name of an engine with continuous batching, such as vllm.
        tensor_parallel: Number of GPUs that share each layer; further GPUs are replicas. None for as many as the model
            can be divided over.
        expert_parallel: Number of GPUs over which whole experts are distributed.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.
        cache_precision: Precision of keys and values: fp8; None for 16 bits.
        sampling: greedy, temperature or top_p; see `predict_generation`.
        host: The machine that runs the engine; see `predict_generation`.
        calibration: What was measured on a board of this GPU; see `joulecast.predict`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.

    Raises:
        UnknownNameError: No such model, GPU, engine, router, precision, sampling, host or predictor.
        InputError: The requests are not given as one of the above, a number cannot be, a request is longer than the
            context of the model or than the memory holds, or the model does not fit.
        ZooError, ExtractionError, UncoveredError, MissingDependencyError: See `joulecast.predict`.

    Examples:
        >>> chat = simulate_serving(
        ...     "llama3_8b", "H100 SXM", requests=2, prompt_tokens=500, output_tokens=100, duration_s=60
        ... )
        >>> chat.ttft_s(0.5) < chat.ttft_s(0.99)
        True
    """
    asked = dict(locals())
    _check(asked)
    decoder = find_decoder(model)
    looked_at = find_images(model, decoder, images)
    seen = 0 if looked_at is None else looked_at.tokens  # Tokens that images add to each prompt
    context = math.inf if decoder.context is None else float(decoder.context)
    for_prompts, for_outputs, for_arrivals, for_prefixes = np.random.SeedSequence(seed).spawn(4)
    trace: Trace | None = None
    if isinstance(requests, Real) or requests is None:
        prompts = Drawn("prompt_tokens", prompt_tokens, for_prompts, seen)
        outputs = Drawn("output_tokens", output_tokens, for_outputs)
        lengths = prompts.lengths, outputs.lengths
        if requests is not None:
            lasting_s = 0.0 if duration_s is None else duration_s  # (None is refused above)
            trace = at_rate(float(requests), burstiness, lasting_s, prompts, outputs, context, for_arrivals)
            trace = trace if prefixes is None else trace.sharing(prefixes, for_prefixes)
    else:
        trace = read_trace(requests).until(duration_s)
        trace = replace(trace, prompt=trace.prompt + seen)
        lengths = Lengths.of("prompt_tokens", trace.prompt), Lengths.of("output_tokens", trace.output)
        longest = float((trace.prompt + trace.output).max())
        if longest > context:
            raise InputError(
                f"a request of the trace is longer than the context of {decoder.name}",
                given=f"{longest:g} tokens of prompt and output",
                allowed=f"up to {context:g}",
                hint="leave such requests out, or take a model with a longer context",
            )

    made = Served.of(asked, *lengths, concurrency=concurrency)
    served = made.server.deployment
    groups = served.parallel.groups
    reading = {"clock": prefill_clock, "power_limit_w": prefill_power_limit_w}
    reading = {name: value for name, value in reading.items() if value is not None}
    reader = Served.of({**asked, **reading}, *lengths, concurrency=concurrency) if reading else made
    if prefill_replicas and (trace is None or prefill_replicas >= groups):
        raise InputError(
            "some replicas read the prompts of requests at a rate or from a trace, and others decode",
            given=f"prefill_replicas={prefill_replicas}, {groups} replicas, concurrency={concurrency}",
            allowed="fewer prefill_replicas than replicas, and requests",
            hint="use more GPUs, or a smaller tensor_parallel",
        )

    def replayed(made: Served, reader: Served) -> ServingSimulation:
        if prefill_replicas and trace is not None:
            done = made.divided(trace, reader, prefill_replicas, router)
        else:
            source: Trace | Iterator[tuple[int, int]] | None = trace
            if source is None:
                again = Drawn("prompt_tokens", prompt_tokens, for_prompts, seen)
                source = endless(again, Drawn("output_tokens", output_tokens, for_outputs), context)
            # Steps that read prompts as those of the reader, as if boards changed their clock in between.
            both = made if made is reader else replace(made, costs=replace(made.costs, prompts=reader.costs))
            done = both.replicas(source, router=router, concurrency=concurrency, duration_s=duration_s)
        return made.simulated(
            done,
            layout=str(served.parallel) + (f", {prefill_replicas} of which read prompts" if prefill_replicas else ""),
            seed=seed,
            rate_per_s=float(requests) if isinstance(requests, Real) else None,
            concurrency=concurrency,
            warmup_s=warmup_s,
            duration_s=duration_s,
            notes=() if trace is None else trace.notes,
        )

    found = replayed(made, reader)
    usual = usual_step(found.logs)
    read_w = reader.server.deployment.gpu.checked_power_limit_w(reader.server.power_limit_w)
    read = f"prompts are read at {reader.clock_mhz:g} MHz and with at most {read_w:g} W of a board"
    found = replace(found, notes=(*found.notes, *([read] if reading else []), *made.notes(asked, *usual)))
    if level is None:
        return found
    spreads = made.spreads(level, *usual)
    if spreads is None:
        return found
    ends = []
    for factor in spreads["time"]:
        slower = made.stretched(factor)
        ends.append(replayed(slower, slower if reader is made else reader.stretched(factor)))
    return found.between(ends, spreads, level)


DEFAULTS = {name: each.default for name, each in inspect.signature(simulate_serving).parameters.items()}
"""Arguments of `simulate_serving` and their defaults."""

_RANGES: Mapping[str, dict[str, Any]] = {
    "requests": {"above": True},
    "duration_s": {"above": True},
    "concurrency": {"low": 1, "whole": True},
    "burstiness": {"high": 100},
    "warmup_s": {},
    "max_sequences": {"low": 1, "high": 8192, "whole": True},
    "max_step_tokens": {"low": 2, "high": 65536, "whole": True},
    "prefix_hit_rate": {"high": 1},
    "draft_tokens": {"high": 32, "whole": True},
    "acceptance": {"high": 1},
    "prefill_replicas": {"whole": True},
    "seed": {"whole": True},
}


def _check(asked: dict[str, Any]) -> None:
    """Refuse what is no question: see `simulate_serving`."""
    requests, concurrency = asked["requests"], asked["concurrency"]
    is_trace = requests is not None and not isinstance(requests, Real)
    lengths = [asked[name] is None for name in ("prompt_tokens", "output_tokens")]
    endless_time = asked["duration_s"] is None and not is_trace
    if (requests is None) == (concurrency is None) or lengths != [is_trace, is_trace] or endless_time:
        names = ("requests", "concurrency", "prompt_tokens", "output_tokens", "duration_s")
        raise InputError(
            "a simulation needs its requests, with their lengths and the time in which they arrive",
            given=", ".join(f"{name}={asked[name]!r:.60}" for name in names),
            allowed="requests per second or concurrency, with both lengths and duration_s; or a trace, with its own",
            hint="give requests=10, prompt_tokens=500, output_tokens=(300, 200), duration_s=600",
        )
    for name, limits in _RANGES.items():
        left_out = asked[name] is DEFAULTS[name] is None
        if not left_out and not (is_trace and name == "requests"):
            in_range(name, asked[name], **limits)
    if asked["warmup_s"] and asked["duration_s"] is not None:
        in_range("warmup_s", asked["warmup_s"], high=math.nextafter(asked["duration_s"], 0))
    if not named("engine", asked["engine"], ENGINES).fused:
        raise InputError(
            f"{asked['engine']} runs one batch from beginning to end, and has no queue to simulate",
            given=f"engine={asked['engine']!r}",
            allowed=", ".join(name for name, engine in ENGINES.items() if engine.fused),
            hint="ask predict_generation for its batches",
        )
    if asked["level"] is not None:
        require_level(asked["level"])
    for name, known in (("router", ROUTERS), ("priority", ("decode", "prompts"))):
        if asked[name] not in known:
            raise unknown_name(name, asked[name], known)
    refuse_idle_drafts(asked)
    prefixes = asked["prefixes"]
    if prefixes is None:
        return
    if is_trace or requests is None or not isinstance(prefixes, Sequence) or len(prefixes) != 2:
        raise InputError(
            "prefixes are how many beginnings the prompts of requests at a rate have, and the tokens of each",
            given=f"prefixes={prefixes!r:.60}",
            allowed="two numbers from 1 to 10,000,000",
            hint="give prefixes=(20, 1000), or a trace with the columns prefix and prefix_tokens",
        )
    for each in prefixes:
        in_range("prefixes", each, 1, 1e7, whole=True)


def refuse_idle_drafts(asked: Mapping[str, Any]) -> None:
    """Refuse an unknown model that drafts, and one that drafts nothing."""
    if asked["draft_model"] is None:
        return
    name = find_decoder(asked["draft_model"]).name
    if not asked["draft_tokens"]:
        raise InputError(
            "a model that drafts needs a number of tokens",
            given=f"draft_model={name!r}, draft_tokens=0",
            allowed="1 to 32 draft_tokens",
            hint="give draft_tokens=4, or leave draft_model out",
        )
