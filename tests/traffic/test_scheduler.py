"""The scheduler against queues whose answer is known, and against what can never be."""

import math
import random
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np
import pytest

from joulecast.traffic.scheduler import Cache, Limits, Replica, Request

ROOMY = Cache(1e9)


class EqualSteps:
    """Steps that all take the same time, at 300 W, or 400 W with prompts."""

    idle_w = 100.0

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def decode(self, sequences, context):
        return self.step_s, self.step_s * 300

    def mixed(self, sequences, context, prompts, tokens, pairs, sampled):
        return self.step_s, self.step_s * 400


class GrowingSteps(EqualSteps):
    """Steps whose time grows with all keys that are attended to."""

    def decode(self, sequences, context):
        seconds = self.step_s + 1e-6 * sequences * context
        return seconds, 300 * seconds

    def mixed(self, sequences, context, prompts, tokens, pairs, sampled):
        seconds = self.step_s + 1e-6 * (sequences * context + tokens)
        return seconds, 400 * seconds


def served(
    arrivals: list[float],
    lengths: Callable[[], tuple[int, ...]],
    costs: EqualSteps,
    limits: Limits,
    cache: Cache = ROOMY,
) -> tuple[list[Request], Replica]:
    requests, replica = [Request(arrival_s, *lengths()) for arrival_s in arrivals], Replica(costs, cache, limits)
    for request in requests:
        replica.advance(request.arrival_s)
        replica.add(request)
    replica.advance(math.inf)
    return requests, replica


def each(requests: list[Request], name: str) -> np.ndarray:
    return np.array([getattr(request, name) for request in requests])


def poisson(count: int, rate_per_s: float, seed: int = 0) -> list[float]:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, count)).tolist()


def test_one_server_with_equal_times():
    """M/D/1: the mean wait is load / (2 (1 - load)) services (Pollaczek and Khinchine)."""
    requests, _ = served(poisson(30_000, 0.6), lambda: (10, 1), EqualSteps(1.0), Limits(1, 100))
    waited = each(requests, "first_token_s") - each(requests, "arrival_s") - 1
    assert waited.mean() == pytest.approx(0.6 / (2 * 0.4), rel=0.04)
    # Erlang's distribution of the wait: P(W <= t) = (1 - load) sum over k of (load (k - t))^k / k! e^(load (t - k)).
    for wait_s in (0.0, 1.5, 3.0):
        terms = ((0.6 * (k - wait_s)) ** k / math.factorial(k) * math.exp(0.6 * (wait_s - k)) for k in range(4))
        exact = 0.4 * sum(term for k, term in enumerate(terms) if k <= wait_s)
        assert (waited <= wait_s + 1e-9).mean() == pytest.approx(exact, abs=0.01)


def test_several_servers_take_requests_as_they_get_free():
    """M/M/4 by Kiefer and Wolfowitz' recursion: each request takes the server that is free first."""
    step_s, arrivals = 0.001, poisson(3000, 2.8, 2)
    outputs = np.random.default_rng(3).geometric(step_s, len(arrivals)).tolist()
    lengths = iter(outputs)
    requests, _ = served(arrivals, lambda: (1, next(lengths)), EqualSteps(step_s), Limits(4, 100))
    free, waits = [0.0] * 4, []
    for arrival_s, output in zip(arrivals, outputs, strict=True):
        begin_s = max(arrival_s, heappop(free))
        waits.append(begin_s - arrival_s)
        heappush(free, begin_s + output * step_s)
    found = each(requests, "first_token_s") - arrivals - step_s
    assert 0.3 < (np.array(waits) > 0).mean() < 0.6
    for quantile in (0.7, 0.9, 0.99):
        assert np.quantile(found, quantile) == pytest.approx(np.quantile(waits, quantile), rel=0.01, abs=2 * step_s)


def tight() -> tuple[list[Request], Replica]:
    lengths = random.Random(3)
    return served(
        poisson(300, 40.0, 4),
        lambda: (lengths.randint(1, 300), lengths.randint(1, 200)),
        GrowingSteps(0.005),
        Limits(16, 128),
        Cache(1000),
    )


def test_what_comes_in_goes_out_and_never_beyond_the_memory():
    requests, replica = tight()
    log = replica.log
    # A sequence that was put back is read again, with what it had written.
    assert sum(each(requests, "preemptions")) > 20
    assert log["prompt_tokens"].sum() > sum(each(requests, "prompt_tokens"))
    assert np.isfinite(each(requests, "end_s")).all()
    written = (log["steps"] * log["decoding"] + log["completed"]).sum()
    assert written == sum(each(requests, "output_tokens"))
    assert log["cached"].max() <= 1000
    assert (log["decoding"] <= 16).all()
    assert (log["decoding"] + log["prompt_tokens"])[log["steps"] == 1].max() <= 128
    idle_j = log["energy_j"][log["steps"] == 0].sum()
    assert sum(each(requests, "energy_j")) + idle_j == pytest.approx(log["energy_j"].sum(), rel=1e-12)
    # No time is lost or counted twice.
    np.testing.assert_allclose(log["start_s"][1:], (log["start_s"] + log["time_s"])[:-1], rtol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_without_a_full_cache_each_prompt_is_read_once_but_for_its_cached_prefix(share):
    requests, replica = served(
        poisson(200, 5.0), lambda: (100, 20), GrowingSteps(0.005), Limits(16, 128, cached_share=share)
    )
    assert sum(replica.log["prompt_tokens"]) == 200 * 100 * (1 - share)
    assert not any(each(requests, "preemptions"))


def test_one_request_by_hand():
    """A prompt of 250 tokens in steps of 100 takes three steps, and each further token one."""
    requests, replica = served([2.0], lambda: (250, 4), EqualSteps(0.5), Limits(8, 100))
    assert list(each(requests, "first_token_s")) == [3.5]
    assert list(each(requests, "end_s")) == [5.0]
    assert sum(replica.log["energy_j"]) == pytest.approx(2 * 100 + 1.5 * 400 + 1.5 * 300)
    assert list(each(requests, "energy_j")) == pytest.approx([1.5 * 400 + 1.5 * 300])


def test_a_jump_is_as_long_as_its_steps():
    """1000 steps of one sequence, of 5 ms and a microsecond for each of 101 to 1100 keys."""
    requests, _ = served([0.0], lambda: (100, 1001), GrowingSteps(0.005), Limits(8, 128))
    decoded_s = requests[0].end_s - requests[0].first_token_s
    assert decoded_s == pytest.approx(1000 * 0.005 + 1e-6 * sum(range(101, 1101)), rel=1e-9)


def test_windows_and_states_bound_the_cache():
    cache = Cache(1000.0, ((0.5, math.inf), (0.5, 128)), block=0)
    assert cache.used(1, 100) == 100
    assert cache.used(1, 1000) == 0.5 * 1000 + 0.5 * 128
    assert cache.used(4, 4000) == 4 * 564
    # A recurrent state has 0.9 of the bytes of a token, however long it is; other layers lose half a block.
    cache = Cache(1000.0, ((0.9, 1.0), (0.1, math.inf)), block=16)
    assert cache.used(2, 200) == pytest.approx(2 * (0.9 + 0.1 * (100 + 8)))


def test_prompts_first_by_hand():
    """At 1 s another prompt arrives: the first sequence waits for its two steps, and gets its tokens after them."""
    lengths = iter([(100, 6), (200, 2)])
    requests, replica = served([0.0, 0.9], lambda: next(lengths), EqualSteps(0.5), Limits(8, 100, prompts_first=True))
    # The step that began at 0.5 s ends first, and gives a token.
    assert list(each(requests, "first_token_s")) == [0.5, 2.0]
    assert list(each(requests, "end_s")) == [4.0, 2.5]
    log = replica.log
    assert sum(each_s * count for each_s, count in zip(log["time_s"], log["stalled"], strict=True)) == 1.0
    assert sum(each(requests, "energy_j")) == pytest.approx(sum(log["energy_j"]))


def prefixed(groups: list[int], cache: Cache) -> list[float]:
    """Seconds to the first token of prompts of 1000 tokens, 800 of which are those of their group."""
    kinds = iter(groups)
    arrivals = [100.0 * place for place in range(len(groups))]
    requests, _ = served(arrivals, lambda: (1000, 2, next(kinds), 800), EqualSteps(0.5), Limits(8, 100), cache)
    return (each(requests, "first_token_s") - each(requests, "arrival_s")).tolist()


def test_a_shared_prefix_is_read_once():
    assert prefixed([1, 1, 2, 1, -1], ROOMY) == [5.0, 1.0, 5.0, 1.0, 5.0]
    # Only one prefix fits beside the request that is read.
    assert prefixed([1, 2, 1, 1], Cache(1900.0)) == [5.0, 5.0, 5.0, 1.0]
