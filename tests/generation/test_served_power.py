"""Power of serving: published runs, joules of bytes and FLOPs, and the cap."""

import numpy as np
import pytest

from joulecast import Operation, predict_generation
from joulecast.generation.run_energy import served_j
from joulecast.hardware import find_gpu


def llama(batch, prompt=300, output=300, gpu="H100 SXM", **options):
    return predict_generation("llama3_8b", gpu, batch=batch, prompt_tokens=prompt, output_tokens=output, **options)


PUBLISHED = [  # Seconds of a static batch of 1024 + 1024 tokens in fp16, and watts (benchmarks/serving/runs.csv).
    ("llama3_8b", 1, 7.233, 408.6),
    ("llama3_8b", 64, 14.373, 527.6),
    ("llama2_7b", 32, 16.037, 557.4),
]


@pytest.mark.parametrize(("model", "batch", "seconds", "watts"), PUBLISHED)
def test_published_runs_of_tensorrt_llm_on_an_h100(model, batch, seconds, watts):
    options = {"prompt_tokens": 1024, "output_tokens": 1024, "precision": "fp16", "batching": "static"}
    found = predict_generation(model, "H100 SXM", batch=batch, engine="tensorrt_llm", **options)
    assert batch * 1024 / found.tokens_per_s == pytest.approx(seconds, rel=0.06)
    assert found.power_w == pytest.approx(watts, rel=0.13)


def test_an_h100_does_not_draw_what_the_bandwidth_of_an_h200_costs():
    # Both have one die; an H100 reads the same weights in 1.4 times the time.
    h100, h200 = (llama(8, gpu=gpu).decode for gpu in ("H100 SXM", "H200"))
    assert h100.time_s > 1.2 * h200.time_s
    assert h100.power_w < h200.power_w
    # Without what the boards draw for no work (121 and 80 W), a multiprocessor that is active for longer is left.
    h100_j, h200_j = (sum(cost.dynamic_energy_j for cost in step.operations) for step in (h100, h200))
    assert h200_j < h100_j < 1.12 * h200_j


# Watts per board of chats with 8 sequences in vLLM 0.11.1, and milliseconds per token (ML.ENERGY; see
# benchmarks/serving/ENERGY.md): weights are read at the full bandwidth of the memory.
READING = [
    ("gemma3_27b", "B200", 718, 804.6, 13.4),
    ("llama3_1_70b", "2x B200", 352, 849.0, 16.8),
    ("gemma3_27b", "H100 SXM", 719, 510.4, 23.6),
    ("llama3_1_70b", "4x H100 SXM", 350, 441.4, 17.0),
]


@pytest.mark.parametrize(("model", "gpu", "output", "watts", "milliseconds"), READING)
def test_boards_that_read_weights_draw_what_whole_runs_drew(model, gpu, output, watts, milliseconds):
    options = {"batch": 8, "prompt_tokens": 200, "output_tokens": (output, output), "engine": "vllm_async"}
    found = predict_generation(model, gpu, **options)
    assert found.power_w / found.gpus == pytest.approx(watts, rel=0.1)
    assert 8e3 / found.tokens_per_s == pytest.approx(milliseconds, rel=0.1)


def test_the_energy_of_kernels_is_that_of_their_causes():
    linear = Operation("linear", [(16, 8192)], {"out_features": 4096, "bias": False}, precision="bf16")
    shapes = [(8, 32, 1, 128), (8, 8, 500, 128), (8, 8, 500, 128)]
    decoding = Operation("attention", shapes, {"cache_precision": "fp8"}, precision="bf16")
    norm = Operation("rms_norm", [(16, 8192)], precision="bf16")
    drawn, sort = Operation("random", [(8, 1000)]), Operation("sort", [(8, 1000)], {"dim": -1})
    # 132 multiprocessors for a millisecond at 0.7 W, and 4 W more where random numbers are drawn.
    active, drawing = 132 * 1e-3 * 0.7, 132 * 1e-3 * 4.7
    # 4096 x 8192 weights of two bytes at 110 pJ, and 2 x 16 x 4096 x 8192 FLOPs at 0.83 pJ.
    weights = 2 * 4096 * 8192 * 110e-12 + 2 * 16 * 4096 * 8192 * 0.83e-12
    cached = 2 * 8 * 8 * 500 * 128 * 110e-12 + decoding.flops * 0.83e-12
    pairs = 8 * 1000 * 480 * 110e-12
    found = served_j([linear, decoding, norm, drawn, sort], np.full(5, 1e-3), find_gpu("H100 SXM"), {})
    assert found == pytest.approx([active + weights, active + cached, active, drawing, active + pairs])


def test_experts_on_blackwell_cost_joules_for_feeding_tensor_cores():
    attributes = {"intermediate": 768, "top_k": 8, "experts": 128}
    experts = Operation("experts", [(4096, 2048)], attributes, precision="bf16")
    assert experts.flops == 6 * 4096 * 8 * 768 * 2048
    h100, b200 = (served_j([experts], np.ones(1), find_gpu(gpu), {}, triton=True)[0] for gpu in ("H100 SXM", "B200"))
    assert b200 - h100 == pytest.approx(0.7 * (148 - 132) + (0.58 + 1.9 - 0.83) * 1e-12 * experts.flops)
    # Kernels of TensorRT-LLM, which compute GPT-OSS's experts in MXFP4 as well, do not.
    assert served_j([experts], np.ones(1), find_gpu("B200"), {})[0] < b200
    assert served_j([experts], np.ones(1), find_gpu("B200"), {experts: 0.53125}, triton=True)[0] < b200


# Watts of a multiprocessor, their number, and joules of a FLOP in 16 bits; an H100 unpacks both, a B200 reads MXFP4.
UNPACKED = [
    ("H100 SXM", 0.53125, 0.7 * 132, 0.83e-12, 40e-12),
    ("H100 SXM", 0.51953125, 0.7 * 132, 0.83e-12, 40e-12),
    ("B200", 0.53125, 0.7 * 148, 0.58e-12, 0.0),
    ("B200", 0.51953125, 0.7 * 148, 0.58e-12, 40e-12),
]


@pytest.mark.parametrize(("gpu", "stored", "watts", "per_flop", "unpacked"), UNPACKED)
def test_weights_of_four_bits_are_fewer_bytes_and_are_unpacked(gpu, stored, watts, per_flop, unpacked):
    linear = Operation("linear", [(16, 8192)], {"out_features": 4096, "bias": False}, precision="bf16")
    weights = 4096 * 8192
    expected = watts * 1e-3 + weights * (stored * 110e-12 + unpacked + 2 * 16 * per_flop)
    found = served_j([linear], np.array([1e-3]), find_gpu(gpu), {linear: stored})
    assert found == pytest.approx([expected])


@pytest.mark.parametrize("gpu", ["H100 SXM", "B200", "A100 SXM4 80GB"])
def test_no_step_draws_more_than_the_cap(gpu):
    found = llama(256, gpu=gpu)
    assert max(found.decode.power_w, found.prefill.power_w) <= found.power_limit_w * (1 + 1e-9)
    capped = llama(256, gpu=gpu, power_limit_w=0.6 * found.power_limit_w)
    assert capped.decode.power_w <= 0.6 * found.power_limit_w * 1.001
    assert capped.decode.time_s > found.decode.time_s
