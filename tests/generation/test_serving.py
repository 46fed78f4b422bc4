"""Steps of a batch, counted by hand."""

import numpy as np
import pytest

from joulecast.errors import InputError
from joulecast.generation.engines import ENGINES
from joulecast.generation.serving import Lengths, Load, cycle_of, in_lockstep

VLLM = ENGINES["vllm"]  # At most 8192 tokens in a step.


def pieces(cycle):
    return sum(steps.count * steps.tokens.prompts for steps in cycle)


def test_few_sequences_mostly_decode():
    cycle = cycle_of(Load(8, 300, 300), VLLM, "continuous")
    # Each request: one step for its prompt, which gives the first token, and 299 for the others.
    decoding, reading = cycle
    assert (decoding.count, reading.count) == pytest.approx((292, 8))
    assert decoding.tokens.prompts == 0
    assert reading.tokens.prompts == 1
    assert reading.tokens.prompt_tokens == 300
    # 8 x 299 tokens in 300 steps: 7.97 sequences decode, which see their prompt and half of their output.
    assert (decoding.tokens.decoding, reading.tokens.decoding) == (8, 7)
    assert decoding.tokens.cached == 450
    # One of the eight steps that read is the request's own; it decodes in the other seven and in 292 without prompts.
    assert [steps.further for steps in cycle] == pytest.approx([292 / 299, 7 / 299])
    assert [steps.first for steps in cycle] == pytest.approx([0, 1])


def test_many_sequences_read_prompts_in_each_step():
    cycle = cycle_of(Load(512, 300, 300), VLLM, "continuous")
    # 512 prompts in 300 steps: 1.707 a step, so 88 steps read one and 212 read two.
    assert [steps.tokens.prompts for steps in cycle] == [1, 2]
    assert [steps.count for steps in cycle] == pytest.approx([88, 212])
    assert pieces(cycle) == pytest.approx(512)


def test_long_prompts_are_read_in_pieces():
    cycle = cycle_of(Load(10, 20000, 100), VLLM, "continuous")
    # 8182 tokens have room beside ten: three pieces of 6667. A request takes part in 3 + 99 steps.
    assert sum(steps.count for steps in cycle) == pytest.approx(102)
    assert pieces(cycle) == pytest.approx(30)
    assert sum(steps.first for steps in cycle) == pytest.approx(3)
    # The other nine requests read 27 pieces in these 102 steps, a request decodes in 99 of them.
    assert sum(steps.further * steps.tokens.prompts for steps in cycle) == pytest.approx(27 / 99)
    assert cycle[-1].tokens.prompt_tokens == 6667
    assert cycle[-1].tokens.prompt_cached == 6667  # The mean of 0, 6667 and 13334 tokens that were read before.


@pytest.mark.parametrize("batching", ["continuous", "static"])
@pytest.mark.parametrize(
    "load", [Load(1, 100_000, 100), Load(8, 300, 300), Load(512, 2000, 10), Load(4000, 9000, 2), Load(7, 50, 1)]
)
def test_first_and_next_tokens_are_all_steps_of_a_request(load, batching):
    cycle = cycle_of(load, VLLM, batching)
    for steps in cycle:
        assert steps.first + (load.output_tokens - 1) * steps.further == pytest.approx(steps.count)
        assert load.output_tokens > 1 or steps.tokens.decoding == 0
    read = sum(steps.count * steps.tokens.prompts * steps.tokens.prompt_tokens for steps in cycle)
    assert read == pytest.approx(load.batch * load.prompt_tokens, rel=0.01)


def test_where_prompts_do_not_fit_into_the_steps_fewer_sequences_decode():
    cycle = cycle_of(Load(512, 2000, 10), VLLM, "continuous")
    # 512 x 2009 tokens fill 125.6 steps of 8192, instead of 10 steps; 512 x 9 of them are decoded, 36.7 in a step. The
    # other 8155 are four prompts and the beginning of a fifth.
    (steps,) = cycle
    assert steps.count == pytest.approx(512 * 2009 / 8192)
    assert steps.tokens.prompts == 4
    assert steps.tokens.prompt_tokens == 8155 // 4
    assert steps.tokens.decoding == 37
    assert steps.tokens.tokens <= 8192
    # A request waits until the prompts before its own are read, and then decodes in nine steps.
    assert steps.first == pytest.approx(512 * 2009 / 8192 - 9)


def test_running_sequences_of_varying_length_see_more():
    # Half of the requests write 100 tokens, half 300: a running one is long with a probability of 3 / 4, and has
    # written half of its output: 1/4 x 50 + 3/4 x 150 = 125, where equal outputs of 200 would give 100.
    lengths = [100] * 500 + [300] * 500
    of_array = Lengths.of("output_tokens", lengths)
    of_pair = Lengths.of("output_tokens", (200, 100))
    for output in (of_array, of_pair, Lengths.of("output_tokens", np.array(lengths))):
        steps, *_ = cycle_of(Load.of(8, Lengths.of("prompt_tokens", 300), output), VLLM, "continuous")
        assert steps.tokens.cached == 300 + 125
    equal, *_ = cycle_of(Load(8, 300, 200), VLLM, "continuous")
    assert equal.tokens.cached == 300 + 100


@pytest.mark.parametrize(
    "wrong", [[], (0, 10), (100, -1), (float("nan"), 1), [1, 2, 0], ["a", "b"], "512", b"x", [True], 2.5, np.array([])]
)
def test_lengths_are_positive(wrong):
    with pytest.raises(InputError, match="output_tokens"):
        Lengths.of("output_tokens", wrong)


def test_static_batching_reads_then_decodes():
    reading, decoding = cycle_of(Load(8, 300, 300), VLLM, "static")
    assert (reading.count, reading.tokens.prompts) == (1, 8)
    # The first step after the prompt sees 301 keys, the last one 599, and their number grows evenly.
    assert (decoding.count, decoding.tokens.cached) == (299, 450)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "8", None])
def test_counts_are_positive_integers(wrong):
    with pytest.raises(InputError, match="positive integer"):
        Load(wrong, 10, 10)


def test_no_more_sequences_than_tokens_of_a_step():
    with pytest.raises(InputError, match="more sequences than"):
        cycle_of(Load(8192, 10, 10), VLLM, "continuous")


def test_ranks_that_share_experts_wait_for_the_busiest():
    load = Load(1, 2000, 250)
    alone = cycle_of(load, VLLM, "continuous")
    together = in_lockstep(alone, load, ranks=8, most=8192)
    # A request's prompt is one of its 250 steps; seven others read theirs whenever they like.
    before, after = (sum(e.count for e in some if e.tokens.prompts) for some in (alone, together))
    assert (before, after) == (1, pytest.approx(1 + 249 * (1 - (249 / 250) ** 7)))
    assert sum(each.count for each in together) == pytest.approx(250)
    assert sum(each.first + 249 * each.further for each in together) == pytest.approx(250)
    assert in_lockstep(alone, load, ranks=1, most=8192) == alone


def test_steps_that_are_padded_to_the_longest_prompt_read_it():
    load = Load.of(100, Lengths.of("prompt_tokens", (500, 300)), Lengths.of("output_tokens", 300))
    alone = cycle_of(load, VLLM, "continuous")
    share = sum(each.count for each in alone if each.tokens.prompts) / 300
    longest, *_ = (each for each in in_lockstep(alone, load, ranks=4, most=8192) if each.tokens.prompts)
    # Of the three others, none, one, two or all read, too: the longest of two, three or four prompts is half, 5/6 or
    # 13/12 of a deviation above the mean.
    others = 3 * share * (1 - share) ** 2 / 2 + 3 * share**2 * (1 - share) * 5 / 6 + share**3 * 13 / 12
    assert longest.tokens.prompt_tokens == round(500 + 300 * others)
