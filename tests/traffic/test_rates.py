"""best_generation at a rate: choices hold what was asked for, and a simulation of all replicas agrees."""

import pytest

from joulecast import best_generation, simulate_serving
from joulecast.errors import InputError, UnknownNameError

ASKED = {"prompt_tokens": 100, "output_tokens": (40, 20), "gpus": "L4", "batches": (16,), "clocks": (2040,)}
WHOLE = {"output_tokens": (40, 20), "max_sequences": 16, "tensor_parallel": 1}


@pytest.fixture(scope="module")
def ways():
    return best_generation("qwen3_0_6b", rate_per_s=60, p99_ttft_s=0.2, p99_tpot_s=0.02, **ASKED)


def test_a_choice_holds_its_limits_in_a_simulation_of_all_replicas(ways):
    (way,) = ways
    assert way.command() == (
        "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 16 --max-num-batched-tokens 2048 --gpu-memory-utilization 0.9"
    )
    assert "--max_batch_size 16 --max_num_tokens 2048" in way.command("tensorrt_llm")
    with pytest.raises(UnknownNameError):
        way.command("tgi")
    assert way.ttft_p99_s <= 0.2
    assert way.tpot_p99_s <= 0.02
    assert way.rate_per_s == 60 <= way.highest_rate_per_s
    assert way.gpus == way.replicas > 1
    whole = simulate_serving("qwen3_0_6b", f"{way.gpus}x L4", requests=60, prompt_tokens=100, duration_s=60, **WHOLE)
    # Turns are more even than the arrivals at random that each replica was simulated with.
    assert whole.tpot_s(0.99) <= 0.02
    assert whole.power_w == pytest.approx(way.power_w, rel=0.05)
    assert whole.energy_per_token_j == pytest.approx(way.energy_per_token_j, rel=0.05)
    with pytest.raises(InputError, match="no number of these GPUs") as caught:
        best_generation("qwen3_0_6b", rate_per_s=60, p99_tpot_s=0.02, max_gpus=1, **ASKED)
    assert caught.value.given == "rate_per_s=60, p99_tpot_s=0.02, max_gpus=1"
    assert str(caught.value.allowed).startswith("NVIDIA L4: a replica with 16 sequences holds ")
    assert "the highest on 1 GPUs is" in str(caught.value.allowed)


def test_power_limits_the_requests(ways):
    (way,) = best_generation("qwen3_0_6b", max_total_power_w=500, p99_ttft_s=0.2, p99_tpot_s=0.02, **ASKED)
    assert way.power_w <= 500 * 1.01
    assert way.rate_per_s == way.highest_rate_per_s
    assert way.rate_per_s / way.replicas == pytest.approx(ways[0].highest_rate_per_s / ways[0].replicas)
    with pytest.raises(InputError, match="no number") as caught:
        best_generation("qwen3_0_6b", max_total_power_w=500, p99_tpot_s=1e-5, **ASKED)
    assert "a request alone takes" in str(caught.value.given)


def test_the_fewest_joules_are_at_a_lower_clock_or_cap(ways):
    options = {**ASKED, "clocks": (2040, 1200), "power_limit_w": (72, 50)}
    found = best_generation("qwen3_0_6b", rate_per_s=60, p99_ttft_s=0.2, p99_tpot_s=0.02, **options)
    assert {(row.clock_mhz, row.power_limit_w) for row in found.rows} == {
        (f, w) for f in (2040, 1200) for w in (72, 50)
    }
    # Under the low cap, boards hold less than either clock, so both ways are the same.
    rows = {(row.clock_mhz, row.power_limit_w): row for row in found.rows}
    joules = {way: row.energy_per_token_j for way, row in rows.items()}
    assert found[0].power_limit_w == 50
    assert joules[2040, 50] == pytest.approx(joules[1200, 50], rel=0.002)
    assert joules[1200, 50] < joules[1200, 72] < 0.95 * joules[2040, 72]
    assert found[0].energy_per_token_j < 0.95 * ways[0].energy_per_token_j
    assert rows[1200, 50].command().startswith("nvidia-smi --lock-gpu-clocks=1200\nnvidia-smi --power-limit=")


def test_prompts_apart_hold_the_limits_too():
    options = {**ASKED, "prompt_tokens": 800, "clocks": (1200,), "p99_ttft_s": 0.3, "p99_tpot_s": 0.012}
    found = best_generation("qwen3_0_6b", rate_per_s=40, prefill_split=True, **options)
    (way,) = (row for row in found.rows if row.prefill_replicas)
    assert 0 < way.prefill_replicas < way.replicas == way.gpus
    apart = {"prefill_replicas": way.prefill_replicas, "prefill_clock": way.prefill_clock_mhz, "clock": way.clock_mhz}
    asked = {"requests": 40, "prompt_tokens": 800, "duration_s": 20, **apart, **WHOLE}
    whole = simulate_serving("qwen3_0_6b", f"{way.gpus}x L4", **asked)
    assert whole.tpot_s(0.99) <= 0.012 * 1.02
    assert whole.energy_per_token_j == pytest.approx(way.energy_per_token_j, rel=0.08)
    assert "of which read prompts" in way.layout
    assert '"kv_connector":"NixlConnector"' in way.command()
    assert "--disaggregation-mode prefill" in way.command("sglang")


def test_drafts_are_tried_beside_ways_without(ways):
    options = {**ASKED, "batches": (4,), "rate_per_s": 5, "p99_ttft_s": 0.5, "draft_tokens": 3}
    good = best_generation("qwen3_0_6b", **options, acceptance=0.9)
    assert {row.draft_tokens for row in good.rows} == {0, 3}
    plain, drafted = (next(row for row in good.rows if row.draft_tokens == count) for count in (0, 3))
    # A step gives 1 + 0.9 + 0.81 + 0.73 tokens and verifies four for each of few sequences, so it is little longer.
    assert 0.25 < drafted.time_per_output_token_s / plain.time_per_output_token_s < 0.45
    assert good[0] == drafted
    assert "3 drafted tokens" in str(drafted)
    assert drafted.command().startswith("# with speculative decoding: 3 tokens")
    poor = best_generation("qwen3_0_6b", **options, acceptance=0.0)
    assert poor[0].draft_tokens == 0
