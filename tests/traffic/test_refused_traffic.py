"""What simulations and choices at a rate refuse."""

import math

import pytest

from joulecast import best_generation, simulate_serving
from joulecast.errors import InputError

SHORT = {"model": "qwen3_0_6b", "gpu": "L4", "prompt_tokens": 200, "output_tokens": (50, 30)}
SHORT |= {"duration_s": 20, "max_sequences": 32, "max_step_tokens": 512}
OF_TRACE = {"prompt_tokens": None, "output_tokens": None}
UNEVEN = {"arrival_s": [0, 1], "prompt_tokens": [5], "output_tokens": [3]}


def large(prompt_tokens):
    """A trace of one request, to a model that leaves little memory."""
    trace = {"arrival_s": [0.0], "prompt_tokens": [prompt_tokens], "output_tokens": [5]}
    return {"model": "qwen3_8b", "requests": trace, "max_sequences": 8, **OF_TRACE}


SIMULATED = [
    ({}, "needs its requests"),
    ({"requests": 1, "concurrency": 2}, "needs its requests"),
    ({"requests": -1}, "requests is out of range"),
    ({"requests": math.nan}, "requests is out of range"),
    ({"requests": 1, "duration_s": None}, "needs its requests"),
    ({"requests": 1, "warmup_s": 30}, "warmup_s is out of range"),
    ({"requests": 1, "prefix_hit_rate": 1.5}, "prefix_hit_rate is out of range"),
    ({"requests": 1, "output_tokens": None}, "needs its requests"),
    ({"requests": 1, "output_tokens": 0}, "output_tokens"),
    ({"requests": 1, "max_sequences": 600}, "fewer tokens than sequences"),
    ({"requests": 1e9}, "number of requests is out of range"),
    ({"requests": 1, "engine": "transformers"}, "no queue to simulate"),
    ({"requests": 1, "acceptance": 2}, "acceptance is out of range"),
    ({"requests": 1, "prefixes": (0, 5)}, "prefixes is out of range"),
    ({"concurrency": 1, "prefixes": (1, 5)}, "prefixes are how many"),
    ({"requests": 1, "level": 1.5}, "level"),
    ({"requests": 1, "router": "round-robin"}, "router"),
    ({"requests": 1, "priority": "prompt"}, "priority"),
    ({"requests": 1, "prefill_replicas": 1}, "some replicas read the prompts"),
    ({"requests": 1, "draft_model": "qwen3_0_6b"}, "needs a number of tokens"),
    ({"requests": UNEVEN, **OF_TRACE}, "empty or differ in length"),
    ({"requests": "nowhere.csv", **OF_TRACE}, "no such trace"),
    (large(900_000), "longer than the context"),
    (large(40_000), "does not fit into the memory"),
]
ASKED = {"model": "qwen3_0_6b", "prompt_tokens": 100, "output_tokens": (40, 20), "gpus": "L4", "batches": (16,)}
CHOSEN = [
    ({"rate_per_s": 1, "draft_tokens": 40}, "draft_tokens is out of range"),
    ({"p99_ttft_s": 1}, "limits of full batches do not hold"),
    ({"rate_per_s": 1, "min_tokens_per_s": 5}, "limits of full batches do not hold"),
    ({"rate_per_s": -1}, "rate_per_s is out of range"),
    ({"rate_per_s": 1, "precisions": ("bf16", "fp9")}, "unknown precision of weights"),
    ({"rate_per_s": 1, "draft_tokens": 4, "draft_model": "no_such"}, "no_such"),
    ({"rate_per_s": 1, "draft_model": "qwen3_0_6b"}, "needs a number of tokens"),
    ({"rate_per_s": 1, "seed": -1}, "seed is out of range"),
    ({"rate_per_s": 1, "batches": ()}, "batches is out of range"),
    ({"rate_per_s": 1, "objective": "cost"}, "cost needs prices"),
    ({"rate_per_s": 1, "prefix_hit_rate": 2}, "prefix_hit_rate is out of range"),
]
REFUSED = [
    *((simulate_serving, {**SHORT, **options}, says) for options, says in SIMULATED),
    *((best_generation, {**ASKED, **options}, says) for options, says in CHOSEN),
]


@pytest.mark.parametrize(("function", "options", "says"), REFUSED)
def test_what_is_no_question_is_refused(function, options, says):
    with pytest.raises(InputError, match=says) as caught:
        function(**options)
    assert caught.value.given
    assert caught.value.allowed
