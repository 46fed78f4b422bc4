"""Laws of generation: what longer requests, more GPUs, narrower weights and larger models cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from law import Case, CaseLaw, Subject

from joulecast import predict_generation
from joulecast.errors import JoulecastError
from joulecast.extraction.models.language_models import LANGUAGE_MODELS
from joulecast.generation.engines import ENGINES
from joulecast.generation.prediction import GenerationPrediction
from joulecast.hardware import gpus

FAMILIES = (
    ("qwen3_0_6b", "qwen3_1_7b", "qwen3_4b", "qwen3_8b", "qwen3_14b", "qwen3_32b"),
    ("qwen2_5_7b", "qwen2_5_14b", "qwen2_5_32b", "qwen2_5_72b"),
    ("llama3_2_1b", "llama3_2_3b", "llama3_1_8b", "llama3_1_70b", "llama3_1_405b"),
    ("gemma3_12b", "gemma3_27b"),
    ("qwen3_30b_a3b", "qwen3_235b_a22b"),
    ("gpt_oss_20b", "gpt_oss_120b"),
)
"""Models of one kind, the smaller first."""

Question = dict[str, Any]
Pair = tuple[Question, Question]

_LONG_S = 40e-6
_FIGURES = ("time_to_first_token_s", "time_per_output_token_s", "energy_per_request_j")


def _power_of_two(rng: random.Random, low: int, high: int) -> int:
    return int(2 ** rng.uniform(low.bit_length() - 1, high.bit_length() - 1))


def _drawn(rng: random.Random) -> Question:
    gpu = rng.choice(list(gpus().values()))
    precisions = [each for each in ("bf16", "fp16", "fp8", "nvfp4") if each in gpu.peak_flops]
    return {
        "model": rng.choice(list(LANGUAGE_MODELS)),
        "gpu": gpu.name,
        "batch": _power_of_two(rng, 1, 1024),
        "prompt_tokens": _power_of_two(rng, 16, 16384),
        "output_tokens": _power_of_two(rng, 2, 4096),
        "precision": rng.choice(precisions),
        "engine": rng.choice([name for name, engine in ENGINES.items() if engine.fused]),
        "tensor_parallel": rng.choice((1, 1, 2, 4, 8)),
        "sampling": rng.choice(("greedy", "temperature", "top_p")),
    }


def _compared(
    rng: random.Random,
    subject: Subject,
    pair: Callable[[random.Random], Pair],
    figures: tuple[str, ...],
    least_s: float = 0.0,
) -> Iterator[Case]:
    """Cases in which the second question costs no less of any figure; pairs that are refused are none.

    Nor are those of which a layer takes less than `least_s` in a step of the second question.
    """
    while True:
        one, other = pair(rng)
        try:
            less, more = (predict_generation(**each, predictor=subject.predictor) for each in (one, other))
        except JoulecastError:
            continue
        layers = (each for each in more.decode.operations if each.operation.kind in ("linear", "experts"))
        if any((each.device_time_s or 0.0) / each.count < least_s for each in layers):
            continue
        ratios = [(_of(less, name) / _of(more, name), name) for name in figures if _of(more, name)]
        changed = ", ".join(f"{name} {value}" for name, value in other.items() if one[name] != value)
        excess, name = max(ratios, default=(0.0, "nothing"))
        yield Case(excess, f"{name} of {', '.join(map(str, one.values()))}, and with {changed}")


def _of(answer: GenerationPrediction, name: str) -> float:
    value: float = getattr(answer, name)
    return value


def _law(says: str, pair: Callable[[random.Random], Pair], *figures: str, least_s: float = 0.0) -> CaseLaw:
    return CaseLaw(says, lambda rng, subject: _compared(rng, subject, pair, figures, least_s), exact=False)


def _doubled(name: str) -> Callable[[random.Random], Pair]:
    def pair(rng: random.Random) -> Pair:
        one = _drawn(rng)
        return one, {**one, name: 2 * one[name]}

    return pair


def _larger(rng: random.Random) -> Pair:
    family = rng.choice(FAMILIES)
    place = rng.randrange(1, len(family))
    one = _drawn(rng)
    return {**one, "model": family[place - 1]}, {**one, "model": family[place]}


def _narrower(rng: random.Random) -> Pair:
    one = _drawn(rng)
    return {**one, "precision": "fp8"}, {**one, "precision": "bf16"}


def _shared(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        one = _drawn(rng)
        other = {**one, "tensor_parallel": 2 * one["tensor_parallel"]}
        try:
            few, many = (predict_generation(**each, predictor=subject.predictor) for each in (one, other))
        except JoulecastError:
            continue
        quicker = [few.decode.time_s / many.decode.time_s, few.prefill.time_s / many.prefill.time_s]
        yield Case(max(quicker) / 2, f"{', '.join(map(str, one.values()))}, and on twice as many GPUs")


def _latency(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        asked = _drawn(rng)
        try:
            answer = predict_generation(**asked, predictor=subject.predictor)
        except JoulecastError:
            continue
        by_rate = answer.batch * answer.output_tokens / answer.tokens_per_s
        ratio = answer.latency_s / by_rate
        yield Case(max(ratio, 1 / ratio), ", ".join(map(str, asked.values())))


GENERATION_LAWS: dict[str, CaseLaw] = {
    "latency": CaseLaw(
        "Time to first token + (tokens - 1) x time per output token is the latency, and the batch is the rate of "
        "requests times their latency.",
        _latency,
    ),
    "longer outputs": _law(
        "A request with twice the output costs no less time and energy.",
        _doubled("output_tokens"),
        "latency_s",
        "energy_per_request_j",
    ),
    # Where prompts fill all steps, fewer sequences decode beside longer ones, so the time per token may be shorter.
    "longer prompts": _law(
        "With twice the prompt, the first token comes no sooner, and a request costs no less energy.",
        _doubled("prompt_tokens"),
        "time_to_first_token_s",
        "energy_per_request_j",
    ),
    "larger batches": _law(
        "With twice the batch, no token comes sooner.", _doubled("batch"), "time_to_first_token_s", "latency_s"
    ),
    "shared models": CaseLaw(
        "A step on twice as many GPUs that share the model is not over twice as quick.", _shared, exact=False
    ),
    "larger language models": _law(
        "A larger model of a family takes no less time and energy.", _larger, *_FIGURES[:2], "energy_per_token_j"
    ),
    # Rows are quantized by kernels of their own, so products that take less were measured to take longer in fp8
    # (`laws.measured_narrow`).
    "narrow weights": _law(
        f"Where each layer takes at least {_LONG_S * 1e6:g} us in 16 bits, weights in fp8 are not slower.",
        _narrower,
        *_FIGURES,
        least_s=_LONG_S,
    ),
}
"""Name -> law of generation."""
