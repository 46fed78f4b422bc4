"""The operations of a step, against arithmetic."""

import pytest

import joulecast
from joulecast.generation.deployment import activations_bytes, cached_bytes, weights_bytes
from joulecast.generation.engines import ENGINES
from joulecast.generation.models import known_decoder
from joulecast.generation.steps import Precisions, StepTokens, step_network

BF16 = Precisions("bf16")
VLLM = ENGINES["vllm"]


def network(name, tokens, precisions=BF16):
    return step_network(known_decoder(name), tokens, VLLM, precisions)


def flops(step, kind):
    return sum(entry.count * entry.operation.flops for entry in step if entry.operation.kind == kind)


def test_a_step_of_decoding_multiplies_each_weight_once_per_sequence():
    step = network("llama3_8b", StepTokens(decoding=8, cached=451, sampled=8))
    # All weights, except the embedding and the norms (65 of 4096).
    weights = 8_030_261_248 - 128256 * 4096 - 65 * 4096
    assert flops(step, "linear") == 2 * 8 * weights
    # Two products with the keys and values of 451 tokens, for each of 32 heads of 128, in 32 layers.
    assert flops(step, "attention") == 32 * 8 * 2 * 2 * 32 * 128 * 451
    assert step.calls < 400  # Eager execution has 1,400.
    (attention,) = [entry.operation for entry in step if entry.operation.kind == "attention"]
    # Keys and values of 8 heads, and queries of 32.
    assert attention.bytes_read == 2 * 8 * 8 * 451 * 128 * 2 + 8 * 32 * 128 * 2


def test_logits_are_of_sampled_tokens_only():
    step = network("llama3_8b", StepTokens(prompts=2, prompt_tokens=500, sampled=2))
    (logits,) = [e.operation for e in step if e.operation.attributes.get("out_features") == 128256]
    assert logits.input_shapes == ((2, 4096),)
    none = network("llama3_8b", StepTokens(prompts=1, prompt_tokens=500))
    assert not [e for e in none if e.operation.attributes.get("out_features") == 128256]
    # Three numbers in fp32 for each word.
    few, many = (StepTokens(prompts=2, prompt_tokens=500, sampled=sampled) for sampled in (1, 2))
    llama = known_decoder("llama3_8b")
    assert activations_bytes(llama, many) - activations_bytes(llama, few) == 3 * 4 * 128256


def test_a_mixed_step_reads_weights_once():
    step = network("llama3_8b", StepTokens(decoding=60, cached=400, prompts=1, prompt_tokens=300, sampled=61))
    shapes = {e.operation.input_shapes[0] for e in step if e.operation.kind == "linear"}
    # 360 tokens and 61 logits.
    assert shapes == {(360, 4096), (360, 14336), (61, 4096)}
    assert sorted(e.operation.input_shapes[0][-2] for e in step if e.operation.kind == "attention") == [1, 300]


def test_windows_hide_what_lies_before():
    step = network("gemma3_27b", StepTokens(decoding=4, cached=5000, sampled=4))
    seen = {e.operation.input_shapes[1][-2]: e.count for e in step if e.operation.kind == "attention"}
    assert seen == {1024: 52, 5000: 10}


def test_quantized_weights_leave_logits_and_attention_in_16_bits():
    step = network("llama3_8b", StepTokens(decoding=4, cached=500, sampled=4), Precisions("fp8", "fp8"))
    linear = {
        e.operation.attributes["out_features"]: e.operation.precision for e in step if e.operation.kind == "linear"
    }
    assert linear == {6144: "fp8", 4096: "fp8", 28672: "fp8", 128256: "bf16"}
    (attention,) = [e.operation for e in step if e.operation.kind == "attention"]
    assert (attention.precision, attention.attributes["cache_precision"]) == ("bf16", "fp8")


def test_latent_attention_decodes_without_expanding_its_cache():
    step = network("deepseek_v3", StepTokens(decoding=2, cached=1000, sampled=2))
    (attention,) = [e.operation for e in step if e.operation.kind == "attention"]
    assert attention.input_shapes == ((2, 128, 1, 576), (2, 1, 1000, 576), (2, 1, 1000, 512))
    read = network("deepseek_v3", StepTokens(prompts=1, prompt_tokens=100, sampled=1))
    (attention,) = [e.operation for e in read if e.operation.kind == "attention"]
    assert attention.input_shapes == ((1, 128, 100, 192), (1, 128, 100, 192), (1, 128, 100, 128))


def test_memory_of_weights_and_cache():
    llama = known_decoder("llama3_8b")
    assert weights_bytes(llama, BF16) == 2 * 8_030_261_248
    # In fp8, all weights take one byte, except embedding, logits and norms.
    wide = 2 * 128256 * 4096 + 65 * 4096
    assert weights_bytes(llama, Precisions("fp8")) == 2 * wide + (8_030_261_248 - wide)
    assert cached_bytes(llama, 1000, BF16) == 1000 * 2 * 32 * 8 * 128 * 2  # 131 kB for each token
    assert cached_bytes(llama, 1000, Precisions("bf16", "fp8")) == cached_bytes(llama, 1000, BF16) / 2
    gemma = known_decoder("gemma3_27b")
    a_layer = 2 * 16 * 128 * 2
    assert cached_bytes(gemma, 8000, BF16) == a_layer * (10 * 8000 + 52 * 1024)
    # The embedding is also the weight of the logits.
    assert weights_bytes(known_decoder("llama3_2_1b"), BF16) == pytest.approx(2 * 1.236e9, rel=0.001)


def test_experts_in_fp8_on_blackwell_fill_whole_tiles():
    # Four GPUs choose 8 of 160 experts for each of 8 tokens. Each GPU has 40 of them, with room for the choices of all
    # four and for 127 more rows for each of its own: 64 + 40 x 127 rows are one tile of 128 rows for each expert.
    load = {"batch": 8, "prompt_tokens": 8190, "output_tokens": 100, "batching": "static"}
    apart = {"precision": "fp8", "tensor_parallel": 1, "expert_parallel": 4}
    found = joulecast.predict_generation("qwen3_coder_480b_a35b", "4x B200", **load, **apart)
    decoding, reading = (
        [each.operation.input_shapes[0] for each in step.operations if each.operation.output_shape[-1] >= 40 * 5120]
        for step in (found.decode, found.prefill)
    )
    assert decoding == [(128, 6144), (128, 2560)]
    # Prompts: 4 x 8190 x 8 + 40 x 127 rows are 52.2 tiles for each expert.
    assert reading == [(52 * 128, 6144), (52 * 128, 2560)]
    assert not any(cost.operation.kind == "experts" for cost in found.decode.operations)


def test_experts_on_amd_are_products_of_those_that_get_a_token():
    # 16 tokens choose 2 of 8 experts each: 8 x (1 - (7/8)^32) = 7.9 experts get a token, and 32 / 8 = 4 tokens each.
    load = {"batch": 16, "prompt_tokens": 100, "output_tokens": 100}
    found = joulecast.predict_generation("mixtral_8x7b", "MI300X", **load)
    shapes = {cost.operation.input_shapes for cost in found.decode.operations if cost.operation.kind == "matmul"}
    assert ((8, 4, 4096), (8, 4096, 2 * 14336)) in shapes
    assert ((8, 4, 14336), (8, 14336, 4096)) in shapes
    # All weights but the embedding are read once.
    assert 2 * (46.7e9 - 32000 * 4096) / 5.3e12 < found.decode.time_s < 2.5 * 2 * 46.7e9 / 5.3e12
