"""simulate_serving: what comes out, that it is the same for the same seed, and what is refused."""

import json
import math

import numpy as np
import pytest
from documented import ROOT

import joulecast
from joulecast import predict_generation, simulate_serving
from joulecast.errors import InputError
from joulecast.traffic.requests import Drawn, at_rate, read_trace

SHORT = {"prompt_tokens": 200, "output_tokens": (50, 30), "duration_s": 20, "max_sequences": 32, "max_step_tokens": 512}


@pytest.fixture(scope="module")
def chat():
    return simulate_serving("qwen3_0_6b", "L4", requests=3, **SHORT)


def test_the_same_seed_gives_the_same_and_another_seed_another(chat):
    again, other = (simulate_serving("qwen3_0_6b", "L4", requests=3, seed=seed, **SHORT) for seed in (0, 1))
    assert again.to_csv() == chat.to_csv()
    assert other.to_csv() != chat.to_csv()


def test_what_is_counted_adds_up(chat):
    assert chat.counted == len(chat.requests["end_s"]) > 30
    assert chat.ttft_s(0.5) <= chat.ttft_s(0.99) <= chat.latency_s(0.99)
    whole = chat.timeline(0.1)
    end_s = whole.time_s[-1] + 0.1
    assert (whole.power_w * 0.1).sum() == pytest.approx(sum(log["energy_j"].sum() for log in chat.logs), rel=1e-9)
    assert whole.power_w.max() <= 72 * 1.0001
    assert end_s >= chat.requests["end_s"].max()
    counted = whole.time_s < 20 - 1e-9
    assert (whole.power_w[counted] * 0.1).sum() == pytest.approx(chat.energy_j, rel=1e-9)
    assert chat.energy_j == pytest.approx(chat.power_w * 20)
    told = json.loads(chat.to_json())
    assert told["requests"] == chat.counted
    assert told["ttft_s"]["p99"] == chat.ttft_s(0.99)
    assert len(chat.to_csv().splitlines()) == chat.counted + 1
    assert "<svg" in chat._repr_html_()
    assert chat.goodput_per_s() * 20 == chat.counted
    assert chat.goodput_per_s(latency_s=chat.latency_s(0.5)) * 20 == pytest.approx(chat.counted / 2, abs=1)
    assert chat.goodput_per_s(ttft_s=0) == 0


def test_a_single_request_is_that_of_predict_generation():
    alone = joulecast.predict_generation("qwen3_8b", "H100 SXM", batch=1, prompt_tokens=500, output_tokens=300)
    asked = {"prompt_tokens": 500, "output_tokens": 300, "duration_s": 30, "max_step_tokens": 8192}
    found = simulate_serving("qwen3_8b", "H100 SXM", concurrency=1, **asked)
    # Parts of a step that would draw more than the cap are slowed one by one, not together.
    assert found.ttft_s(0.5) == pytest.approx(alone.time_to_first_token_s, rel=0.025)
    assert found.tpot_s(0.5) == pytest.approx(alone.time_per_output_token_s, rel=0.01)
    assert found.power_w == pytest.approx(alone.power_w, rel=0.01)


def test_requests_fit_where_predict_generation_says_so():
    asked = {"prompt_tokens": 300, "engine": "sglang"}
    for ask, one in ((predict_generation, {"batch": 1}), (simulate_serving, {"concurrency": 1, "duration_s": 1})):
        assert ask("mistral_7b", "RTX 5080", output_tokens=145, **one, **asked)
        with pytest.raises(InputError, match="does not fit"):
            ask("mistral_7b", "RTX 5080", output_tokens=147, **one, **asked)


def test_the_largest_batch_of_predict_generation_is_what_the_simulated_memory_holds():
    most = predict_generation("qwen3_8b", "L4", batch=1, prompt_tokens=500, output_tokens=300).largest_batch
    asked = {"prompt_tokens": 500, "output_tokens": 300, "duration_s": 1, "concurrency": most}
    held = most * (500 + 150 * (1 + 1 / most) + 8)  # one of them ends; each loses half of its last block
    assert held <= simulate_serving("qwen3_8b", "L4", **asked).cache_tokens < held * (1 + 1.2 / most)


def test_replicas_share_the_requests():
    options = {**SHORT, "tensor_parallel": 1}
    turns, least = (
        simulate_serving("qwen3_0_6b", "2x L4", requests=20, router=router, **options)
        for router in ("round_robin", "least_loaded")
    )
    assert turns.counted == least.counted
    assert len(turns.logs) == 2
    assert least.ttft_s(0.99) < 1.2 * turns.ttft_s(0.99)
    # A replica that gets nothing waits at the power of an idle board.
    one = simulate_serving("qwen3_0_6b", "2x L4", concurrency=1, **options)
    assert one.idle_share == pytest.approx(0.5, abs=0.02)
    assert one.idle_energy_j > 0


def test_prompts_read_by_replicas_of_their_own():
    options = {**SHORT, "requests": 12, "tensor_parallel": 1}
    both = simulate_serving("qwen3_0_6b", "2x L4", **options)
    apart = simulate_serving("qwen3_0_6b", "2x L4", prefill_replicas=1, **options)
    slow = simulate_serving("qwen3_0_6b", "2x L4", prefill_replicas=1, prefill_clock=900, **options)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(apart.requests[name], both.requests[name])
    reader, decoder = apart.logs
    assert reader["decoding"].max() == 0
    assert reader["prompt_tokens"].sum() == apart.requests["prompt_tokens"].sum()
    # The last token of each prompt is computed again where it is decoded, and gives the first one of the output.
    assert decoder["prompt_tokens"].sum() == apart.counted == decoder["completed"].sum()
    assert (decoder["steps"] * decoder["decoding"] + decoder["completed"]).sum() == apart.requests[
        "output_tokens"
    ].sum()
    assert apart.ttft_s(0.1) > both.ttft_s(0.1)
    whole_j = sum(log["energy_j"].sum() - log["energy_j"][log["steps"] == 0].sum() for log in apart.logs)
    assert apart.requests["energy_j"].sum() == pytest.approx(whole_j, rel=1e-9)
    assert slow.ttft_s(0.5) > apart.ttft_s(0.5)
    assert slow.energy_j < apart.energy_j


def test_drafts_are_verified_in_fewer_and_longer_steps():
    options = {"concurrency": 4, "prompt_tokens": 64, "output_tokens": 401, "duration_s": 60, "max_step_tokens": 512}
    plain, none, free, drafted = (
        simulate_serving("qwen3_8b", "L40S", **options, **more)
        for more in (
            {},
            {"draft_tokens": 3, "acceptance": 0.0},
            {"draft_tokens": 3, "acceptance": 0.5},
            {"draft_tokens": 3, "acceptance": 0.5, "draft_model": "qwen3_0_6b"},
        )
    )
    # 1 + 0.5 + 0.25 + 0.125 tokens a step, in steps that read the same weights for four times as many tokens.
    assert none.itl_s(0.5) == pytest.approx(plain.itl_s(0.5), rel=0.15)
    assert none.tpot_s(0.5) / free.tpot_s(0.5) == pytest.approx(1.875, rel=0.02)
    assert free.tpot_s(0.5) < drafted.tpot_s(0.5) < plain.tpot_s(0.5)
    assert drafted.cache_tokens < free.cache_tokens == plain.cache_tokens
    assert drafted.ttft_s(0.5) > 1.03 * free.ttft_s(0.5)  # The model that drafts reads prompts, too.
    assert free.energy_per_token_j < plain.energy_per_token_j
    # What a prediction of full batches says of the engine, of sampling and of what was measured; and who drafts.
    batch = predict_generation("qwen3_8b", "L40S", batch=4, prompt_tokens=64, output_tokens=401)
    assert {*batch.notes} == {*plain.notes}
    (said,) = {*drafted.notes} - {*plain.notes}
    assert said == (
        "assumed: 3 tokens of each sequence are drafted by qwen3_0_6b before each step, and one is accepted with a "
        "probability of 0.5 if those before it were"
    )


def test_phases_have_clocks_and_caps_of_their_own(chat):
    asked = {**SHORT, "prompt_tokens": 400, "duration_s": 400}
    default, slow, both, capped = (
        simulate_serving("qwen3_0_6b", "L4", requests=1, **asked, **options)
        for options in ({}, {"clock": 900}, {"clock": 900, "prefill_clock": 2040}, {"prefill_power_limit_w": 50})
    )
    assert both.ttft_s(0.5) == pytest.approx(default.ttft_s(0.5), rel=0.005)
    assert both.ttft_s(0.5) < 0.9 * slow.ttft_s(0.5)
    assert both.tpot_s(0.5) == pytest.approx(slow.tpot_s(0.5), rel=0.02)
    assert slow.energy_j < both.energy_j < default.energy_j
    assert capped.ttft_s(0.5) > default.ttft_s(0.5)
    assert "prompts are read at 2040 MHz and with at most 72 W of a board" in both.notes
    parts = chat.timeline(0.5)
    np.testing.assert_allclose(parts.prompt_power_w + parts.decode_power_w + parts.idle_power_w, parts.power_w)
    assert (parts.idle_power_w * 0.5).sum() >= chat.idle_energy_j * (1 - 1e-12)  # but for rounding
    assert parts.decode_power_w.max() > parts.prompt_power_w.max() > 1


def test_prompts_that_come_first_shorten_the_first_token_and_lengthen_the_longest_gap():
    options = {**SHORT, "requests": 6, "prompt_tokens": 1000}
    first, decode = (simulate_serving("qwen3_0_6b", "L4", priority=name, **options) for name in ("prompts", "decode"))
    assert first.ttft_s(0.9) < decode.ttft_s(0.9)
    assert first.itl_s(0.99) > decode.itl_s(0.99)


def test_requests_with_a_prefix_go_where_it_was_read():
    options = {**SHORT, "requests": 10, "tensor_parallel": 1, "prompt_tokens": 900, "prefixes": (8, 800)}
    by_turn, by_prefix = (
        simulate_serving("qwen3_0_6b", "4x L4", router=router, **options) for router in ("round_robin", "prefix")
    )
    read = [sum(log["prompt_tokens"].sum() for log in found.logs) for found in (by_turn, by_prefix)]
    # Each beginning is read once by one replica, or once by each of four.
    assert read[1] == pytest.approx(by_prefix.counted * 100 + 8 * 800, rel=0.05)
    assert read[0] > read[1] + 8 * 800
    assert by_prefix.energy_j < by_turn.energy_j


def test_intervals_hold_the_prediction_and_are_narrower_with_a_host_that_is_named(chat):
    wide, named, narrow = (
        simulate_serving("qwen3_0_6b", "L4", requests=3, level=0.9, host=host, **SHORT) for host in (None, "usual", 1.0)
    )
    assert named.intervals == wide.intervals
    for found in (wide, narrow):
        for name in ("ttft_s", "tpot_s", "latency_s"):
            low, high = found.intervals[f"{name} p99"]
            assert low < getattr(found, name)(0.99) < high
        low, high = found.intervals["energy_per_token_j"]
        assert low < found.energy_per_token_j < high
        assert found.power_w < found.intervals["power_w"][1] <= found.power_limit_w
    assert wide.energy_j == chat.energy_j
    assert narrow.intervals["tpot_s p50"][1] < wide.intervals["tpot_s p50"][1]
    assert " to " in wide.latencies()[1][0][1]


def test_too_many_requests_are_told():
    flooded = simulate_serving("qwen3_0_6b", "L4", requests=200, **{**SHORT, "duration_s": 5})
    assert flooded.requests_per_s < 150
    assert "the queue grows" in flooded.notes[0]


def test_a_trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,5\n3,50,20\n1,10,1\n")
    found = simulate_serving("qwen3_0_6b", "L4", requests=path, max_sequences=8, max_step_tokens=512)
    assert found.requests["arrival_s"].tolist() == [0, 1, 3]
    assert found.duration_s == found.requests["end_s"].max()
    assert found.notes[0] == f"the trace {path} was not in the order of arrival, and was sorted"
    assert found.tokens_per_s * found.duration_s == pytest.approx(26)
    # Turns of a session: the second reads what the first has not left in the cache.
    path.write_text("arrival_s,prompt_tokens,output_tokens,session\n0,100,60,a\n5,200,5,a\n9,200,5,b\n")
    found = simulate_serving("qwen3_0_6b", "L4", requests=path, max_sequences=8, max_step_tokens=512)
    assert found.logs[0]["prompt_tokens"].sum() == 100 + (200 - 160) + 200


def test_lengths_and_arrivals_have_the_moments_that_were_asked_for():
    seeds = np.random.SeedSequence(0).spawn(3)
    prompt, output = Drawn("prompt_tokens", (650, 610), seeds[0]), Drawn("output_tokens", 10, seeds[1])
    some = prompt.take(200_000)
    assert (some.mean(), some.std()) == pytest.approx((650, 610), rel=0.02)
    gaps = np.diff(at_rate(100.0, 2.0, 500.0, prompt, output, math.inf, seeds[2]).arrival_s)
    assert gaps.mean() == pytest.approx(0.01, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("arrival_s,prompt_tokens\n0,1\n", "no column for output_tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,5,5\n", "a value of arrival_s that cannot be"),
        ("arrival_s,prompt_tokens,output_tokens\n1,5,0\n", "a value of output_tokens that cannot be"),
        ("arrival_s,prompt_tokens,output_tokens\n1,x,0\n", "no numbers"),
        ("arrival_s,prompt_tokens,output_tokens\n", "empty or differ in length"),
        ("arrival_s,prompt_tokens,output_tokens\n1,2\n", "no table"),
    ],
)
def test_a_trace_that_cannot_be(tmp_path, text, what):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=what):
        read_trace(path)


def test_the_command(printed, tmp_path):
    picture = tmp_path / "picture.svg"
    arguments = ["simulate", "qwen3_0_6b", "L4", "--rate", "3", "--prompt", "200", "--output", "50,30"]
    arguments += ["--duration", "20", "--max-sequences", "32", "--max-step-tokens", "512", "--plot", str(picture)]
    assert "time to first token" in printed(*arguments)
    assert picture.read_text().startswith("<svg")


@pytest.mark.slow
def test_the_page_shows_what_is_simulated():
    page = (ROOT / "docs/serving-traffic.md").read_text("utf-8").partition("## Clocks of prompts")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if " ms |" in line]
    assert len(rows) == 8
    lengths = {"requests": 20, "prompt_tokens": (1000, 800), "output_tokens": (300, 200), "duration_s": 600}
    for clock, reading, apart, *shown in rows:
        asked = {"power_limit_w": 400} if "cap" in clock else {"clock": int(clock), "prefill_clock": int(reading)}
        split = {"tensor_parallel": 1, "router": "least_loaded", "prefill_replicas": int(apart != "no")}
        found = simulate_serving("llama3_8b", "4x H100 SXM", **lengths, **asked, **split)
        figures = [1e3 * found.ttft_s(0.99), 1e3 * found.tpot_s(0.99), found.energy_per_token_j]
        assert [float(each.removesuffix(" ms")) for each in shown] == pytest.approx(figures, rel=0.03), clock
