"""What generation costs: laws, hand rooflines, and what is refused."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from joulecast import predict_generation
from joulecast.errors import InputError
from joulecast.generation.intervals import KERNEL_LEVEL, factors, normal_quantile, step_sigmas
from joulecast.hardware import find_gpu

H100 = find_gpu("H100 SXM")


def llama(batch=32, prompt=300, output=300, gpu="H100 SXM", **options):
    return predict_generation("llama3_8b", gpu, batch=batch, prompt_tokens=prompt, output_tokens=output, **options)


def test_totals_belong_together():
    found = llama()
    assert found.power_w == pytest.approx(found.energy_per_token_j * found.tokens_per_s)
    assert found.energy_per_request_j == pytest.approx(300 * found.energy_per_token_j)
    # A full batch gives a token to each sequence in each step.
    assert found.tokens_per_s == pytest.approx(32 / found.time_per_output_token_s, rel=0.01)
    assert found.decode.tree().total.energy_j == pytest.approx(found.decode.energy_j)


@pytest.mark.parametrize("gpu", ["H100 SXM", "H200", "B200", "A100 SXM4 80GB", "L40S", "A30"])
def test_decoding_reads_all_weights_and_not_much_slower_than_memory_allows(gpu):
    found = llama(batch=1, prompt=10, output=100, gpu=gpu)
    roofline_s = 2 * (8.03e9 - 128256 * 4096) / find_gpu(gpu).memory_bandwidth
    assert roofline_s < found.decode.time_s < 1.8 * roofline_s + 1e-3
    assert found.time_per_output_token_s > found.decode.time_s


@pytest.mark.parametrize("gpu", ["T4", "RTX 2080 Ti", "V100 SXM2 32GB", "P100 SXM2"])
def test_gpus_without_bf16_serve_in_fp16(gpu):
    found = predict_generation("gpt2", gpu, batch=1, prompt_tokens=10, output_tokens=10, precision="fp16")
    roofline_s = 2 * 124.4e6 / find_gpu(gpu).memory_bandwidth
    assert roofline_s < found.decode.time_s < 3 * roofline_s + 1e-3


def test_reading_prompts_computes_below_the_peak():
    found = llama(prompt=4000, output=10)
    # 32 x 4009 tokens fill 15.7 steps of 8192. In each, 19 decode, and 8173 are of two prompts and some of a third.
    assert found.prefill.input_shape == (2 * (8173 // 2),)
    flops = 2 * 8172 * (8.03e9 - 2 * 128256 * 4096)
    assert 0.3 < flops / found.prefill.time_s / H100.peak_flops["bf16"] < 1


def test_lengths_that_vary_cost_more_than_their_mean():
    even, varied, listed = (llama(64, output=each) for each in (650, (650, 610), [40] * 50 + [1260] * 50))
    # Chat outputs vary as much as their mean: a running sequence has written 611 tokens, not 325.
    assert varied.decode.time_s > even.decode.time_s
    assert varied.energy_per_token_j > even.energy_per_token_j
    assert listed.decode.time_s == varied.decode.time_s
    assert (varied.output_tokens, varied.output_deviation) == (650, 610)
    assert "650 +- 610 tokens" in str(varied)
    assert varied.largest_batch < even.largest_batch


def test_eager_transformers_is_slower_and_static_and_waits_for_all_prompts():
    eager = llama(8, engine="transformers")
    assert eager.batching == "static"
    assert eager.decode.execution == "eager"
    assert eager.time_per_output_token_s > 2 * llama(8).time_per_output_token_s
    static, continuous = llama(64, batching="static"), llama(64)
    assert static.time_to_first_token_s > 5 * continuous.time_to_first_token_s
    # Nobody's prompt is read while others decode.
    assert static.time_per_output_token_s < continuous.time_per_output_token_s


def test_intervals_grow_with_their_level_and_hold_the_value():
    found = llama()
    narrow, wide = found.interval(0.5), found.interval(0.95)
    for quantity in ("time_to_first_token_s", "time_per_output_token_s", "power_w", "energy_per_token_j"):
        (low, high), (lower, higher) = getattr(narrow, quantity), getattr(wide, quantity)
        assert lower < low < getattr(found, quantity) < high < higher
    with pytest.raises(InputError, match="between 0 and 1"):
        found.interval(1.0)


def test_a_slow_host_lengthens_steps_that_draw_less():
    # A step of 8 ms to which 4 ms are added: 1.5 of the time with idle boards, which draw a quarter of the mean power.
    one = 2 * NormalDist().cdf(1) - 1
    slow = factors(one, dict.fromkeys(("time", "energy", "power"), 0.0), 0.008, 0.25, 0.004)
    assert [*slow["time"], *slow["energy"], *slow["power"]] == pytest.approx([1.0, 1.5, 1.0, 1.125, 1.125 / 1.5, 1.0])
    found = llama(1)
    low, high = found.interval().time_per_output_token_s
    assert high / found.time_per_output_token_s > found.time_per_output_token_s / low
    low_w, high_w = found.interval().power_w
    assert found.power_w / low_w > high_w / found.power_w


def test_errors_add_up_within_a_kind_and_independently_between_kinds():
    one = normal_quantile(KERNEL_LEVEL)  # The level whose half width is one standard deviation.
    halves, seconds = {"time": one * np.array([0.3, 0.4, np.nan])}, np.array([2.0, 1.0, 1.0])
    # Shares of 1/2, 1/4 and 1/4; the third is as wrong as the others: (0.5 x 0.3 + 0.25 x 0.4) / 0.75 = 1/3.
    alike = step_sigmas(halves, seconds, ["a", "a", "a"], 0.0, 0.7)["time"]
    assert alike == pytest.approx(math.hypot(0.15 + 0.1 + 1 / 12, 0.07))
    apart = step_sigmas(halves, seconds, ["a", "b", "a"], 0.0, 0.7)["time"]
    assert apart == pytest.approx(math.hypot(0.15 + 1 / 12, 0.1, 0.07))
    # A GPU that waits half of the time for its engine: a factor of two for that half.
    waiting = step_sigmas(halves, seconds, ["a", "b", "a"], 0.5, math.log(2))["time"]
    assert waiting == pytest.approx(math.hypot((0.15 + 1 / 12) / 2, 0.05, 0.07, 0.5 * math.log(2)))


def test_what_does_not_fit_says_what_would():
    with pytest.raises(InputError, match="batch of at most") as refused:
        llama(2000, 2000, 2000)
    largest = int(str(refused.value).split("at most ")[1].split(",")[0])
    assert llama(largest, 2000, 2000).memory.fits
    with pytest.raises(InputError, match="does not fit"):
        llama(largest + 1, 2000, 2000)


def test_hints_name_only_what_is_narrower_than_what_was_given():
    def hint(gpu, **options):
        with pytest.raises(InputError, match="does not fit") as refused:
            predict_generation("llama3_1_405b", gpu, batch=1, prompt_tokens=10, output_tokens=10, **options)
        return refused.value.hint

    assert "fp8 weights" in hint("H100 SXM")
    assert "cache_precision" in hint("H100 SXM")
    assert "fp8" not in hint("H100 SXM", precision="fp8", cache_precision="fp8")
    assert "nvfp4 weights" in hint("B200", precision="fp8")
    assert "fp8 weights" not in hint("A100 SXM4 80GB")  # It has no units for fp8.
    assert "fp8" not in hint("H100 SXM", engine="transformers")


def test_experts_in_four_bits_read_less_and_compute_as_much():
    load = {"batch": 16, "prompt_tokens": 4000, "output_tokens": 300, "engine": "tensorrt_llm"}
    wide, narrow = (predict_generation("gpt_oss_20b", "H100", precision=each, **load) for each in ("bf16", "mxfp4"))
    # 19.1 of 20.9 billion weights are those of experts: 4 bits and a byte for 32 of them (OpenAI: 12.8 GiB in all).
    assert narrow.memory.weights_bytes == pytest.approx(19.11e9 * (0.5 + 1 / 32) + 2 * 1.80e9, rel=0.01)
    # A step of few tokens waits for weights, one of thousands for products.
    assert _seconds(narrow.decode, "experts") < 0.6 * _seconds(wide.decode, "experts")
    # Half of what its tiles read from caches is weights, which are packed there.
    assert 0.85 < _seconds(narrow.prefill, "experts") / _seconds(wide.prefill, "experts") < 1


def test_all_layers_in_four_bits_read_less_and_logits_as_much():
    wide, narrow = (llama(batch=4, precision=each) for each in ("bf16", "int4"))
    # Of Llama 3 8B, 6.98 billion weights are in layers; 128,256 x 4096 each of words and logits stay in 16 bits.
    assert narrow.memory.weights_bytes == pytest.approx(6.98e9 * (4 + 20 / 128) / 8 + 4 * 128256 * 4096, rel=0.002)
    # 13.96 GB become 3.63; 1.05 of logits remain: four sequences wait for weights alone, a step of thousands for none.
    assert 0.3 < _seconds(narrow.decode, "linear") / _seconds(wide.decode, "linear") < 0.45
    assert 0.8 < _seconds(narrow.prefill, "linear") / _seconds(wide.prefill, "linear") <= 1
    assert llama(batch=4, precision="awq").energy_per_token_j == narrow.energy_per_token_j < wide.energy_per_token_j


def _seconds(step, kind):
    return sum(cost.device_time_s for cost in step.operations if cost.operation.kind == kind)


def test_vllm_samples_as_the_generation_config_says():
    told, default, plain = (llama(256, sampling=each) for each in ("top_p", None, "temperature"))
    assert told.decode.time_s == default.decode.time_s > plain.decode.time_s
    assert any("top-p" in note for note in default.notes)
    assert not any("top-p" in note for note in (*told.notes, *plain.notes))
    # 256 x 128256 logits, 480 bytes each at 3.35 TB/s: 4.7 ms. What follows the sort takes less.
    assert 1 < (default.decode.time_s - plain.decode.time_s) / (256 * 128256 * 480 / 3.35e12) < 1.2
    # TensorRT-LLM has kernels of its own, and GPT-OSS samples at a temperature alone.
    assert not any("top-p" in note for note in llama(256, engine="tensorrt_llm").notes)
    options = {"batch": 8, "prompt_tokens": 100, "output_tokens": 100, "precision": "mxfp4"}
    assert not any("top-p" in note for note in predict_generation("gpt_oss_20b", "H100 SXM", **options).notes)


def test_a_named_host_has_no_spread():
    usual, named, slow = (llama(host=host) for host in (None, "h100-server", 1.2))
    assert (usual.host, named.host) == ("usual", "h100-server")
    assert named.time_per_output_token_s == usual.time_per_output_token_s
    # Twice as slow as the 0.6 that is usual for an H100: the GPU waits twice as long, and no kernel is slower.
    assert slow.overhead_s == pytest.approx(2 * usual.overhead_s)
    assert slow.decode.time_s == pytest.approx(usual.decode.time_s, rel=0.01)
    low, high = (each.interval(0.9).time_per_output_token_s[1] for each in (named, usual))
    assert low < high


def test_gpus_that_wait_for_their_host_draw_static_power_meanwhile():
    usual, waiting = llama(), llama(host="25 ms")
    more_s = 25e-3 - usual.overhead_s
    steps = waiting.time_per_output_token_s - usual.time_per_output_token_s
    assert waiting.host == "25 ms"
    assert steps == pytest.approx(more_s, rel=0.01)
    joules = waiting.energy_per_request_j - usual.energy_per_request_j
    waited_s = (waiting.latency_s - usual.latency_s) / usual.batch
    # A board that is awake and runs nothing draws more than one without work, and far less than one that decodes.
    assert waiting.idle_power_w < joules / waited_s < usual.power_w / 2
    assert waiting.power_w < usual.power_w
    (said,) = (note for note in waiting.notes if "waits for vllm" in note)
    assert said == "the GPU waits for vllm 25 ms a step, as host says"
    # How long it waits is known, so that only kernels are in doubt.
    low, high = waiting.interval().time_per_output_token_s
    assert high / low < 1.4


def test_notes_say_which_boards_and_which_layout_were_taken():
    asked = {"batch": 16, "prompt_tokens": 100, "output_tokens": 100}
    shared, apart = (predict_generation("qwen3_30b_a3b", "4x H100", **asked, expert_parallel=n) for n in (1, 4))
    for found in (shared, apart):
        assert any("H100 was taken for H100 SXM" in note for note in found.notes)
    (note,) = (note for note in shared.notes if "are used as" in note)
    assert note.endswith("are used as TP 4; give tensor_parallel for another layout, 1 for replicas that share nothing")
    # Without tensor parallelism the experts are still shared, so that 1 would give the same.
    (note,) = (note for note in apart.notes if "are used as" in note)
    assert note.endswith("are used as EP 4 with DP attention; give tensor_parallel for another layout")
