"""best_serving: choices hold what was asked for, and a simulation of all replicas agrees."""

from __future__ import annotations

import pytest

from joulecast import best_serving, simulate_serving
from joulecast.cli import main
from joulecast.errors import InputError, UnknownNameError

ASKED = {"prompt_tokens": 100, "output_tokens": (40, 20), "gpus": "L4", "counts": (1,), "max_sequences": (16,)}


@pytest.fixture(scope="module")
def ways():
    return best_serving("qwen3_0_6b", rate_per_s=60, p99_ttft_s=0.2, p99_tpot_s=0.02, **ASKED)


def test_a_choice_holds_its_limits_in_a_simulation_of_all_replicas(ways):
    (way,) = ways
    assert way.ttft_p99_s <= 0.2
    assert way.tpot_p99_s <= 0.02
    assert way.rate_per_s == 60 <= way.highest_rate_per_s
    assert way.gpus == way.replicas > 1
    whole = simulate_serving(
        "qwen3_0_6b",
        f"{way.gpus}x L4",
        requests=60,
        prompt_tokens=100,
        output_tokens=(40, 20),
        duration_s=60,
        max_sequences=16,
        tensor_parallel=1,
    )
    # Turns are more even than the arrivals at random that each replica was simulated with.
    assert whole.tpot_s(0.99) <= 0.02
    assert whole.power_w == pytest.approx(way.power_w, rel=0.05)
    assert whole.energy_per_token_j == pytest.approx(way.energy_per_token_j, rel=0.05)
    with pytest.raises(InputError, match="no number of these GPUs") as caught:
        best_serving("qwen3_0_6b", rate_per_s=60, p99_tpot_s=0.02, max_gpus=1, **ASKED)
    assert "the highest on 1 GPUs is" in str(caught.value.given)


def test_power_limits_the_requests(ways):
    (way,) = best_serving("qwen3_0_6b", max_total_power_w=500, p99_ttft_s=0.2, p99_tpot_s=0.02, **ASKED)
    assert way.power_w <= 500 * 1.01
    assert way.rate_per_s == way.highest_rate_per_s
    assert way.rate_per_s / way.replicas == pytest.approx(ways[0].highest_rate_per_s / ways[0].replicas)
    with pytest.raises(InputError, match="no number") as caught:
        best_serving("qwen3_0_6b", max_total_power_w=500, p99_tpot_s=1e-5, **ASKED)
    assert "a request alone takes" in str(caught.value.given)


def test_commands_say_what_was_chosen(ways):
    assert ways[0].command() == (
        "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 16 --max-num-batched-tokens 2048 --gpu-memory-utilization 0.9"
    )
    assert "--max-running-requests 16 --chunked-prefill-size 2048" in ways[0].command("sglang")
    assert "--max_batch_size 16 --max_num_tokens 2048" in ways[0].command("tensorrt_llm")
    with pytest.raises(UnknownNameError):
        ways[0].command("tgi")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "needs the requests per second"),
        ({"rate_per_s": -1}, "rate_per_s is out of range"),
        ({"rate_per_s": 1, "max_sequences": ()}, "max_sequences"),
        ({"rate_per_s": 1, "objective": "cost"}, "needs what it is computed from"),
        ({"rate_per_s": 1, "prefix_hit_rate": 2}, "prefix_hit_rate is out of range"),
    ],
)
def test_what_is_no_question_is_refused(options, what):
    with pytest.raises(InputError, match=what):
        best_serving("qwen3_0_6b", **{**ASKED, **options})


def test_the_command(capsys):
    arguments = ["best-serving", "qwen3_0_6b", "--gpu", "L4", "--rate", "60", "--prompt", "100", "--output", "40,20"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--counts", "1", "--max-sequences", "16", "--p99-per-token", "0.02"])
    assert ended.value.code == 0
    assert "trtllm-serve Qwen/Qwen3-0.6B" in capsys.readouterr().out
