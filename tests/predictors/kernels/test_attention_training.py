"""Attention by PyTorch, forward and backward: work by hand, published rates, and laws over the catalogue."""

import numpy as np
import pytest

from joulecast import predict_operations
from joulecast.hardware import find_gpu, gpus
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.kernels.attention_libraries import over_flash_2
from joulecast.predictors.kernels.attention_physics import CONTEXT_CONSTANTS, flash_2_s
from joulecast.predictors.kernels.parts import variant_parts
from joulecast.predictors.kernels.products import Machine
from joulecast.predictors.physics.attention_sizes import attention_sizes

# One FLOP of a machine takes a cycle of a nanosecond; nothing but products and bytes takes time.
MACHINE = Machine(sms=1, clock_hz=1e9, flops_per_cycle=1.0, bandwidth=1e12, l2_bytes=1e12)
FREE = {"call_s": 0.0, "exposed_exponentials": 0.0, "tile_cycles": 0.0, "picojoules_per_flop": 0.0}
CONSTANTS = {
    **FREE,
    "products_over_peak": 1.0,
    "share_of_bandwidth": 1.0,
    "l2_bytes_per_sm_cycle": 1e12,
    "burst_s": 1.0,
}
PLAIN = np.array([CONSTANTS[constant.name] for constant in CONTEXT_CONSTANTS])


def attention(queries=128, *, batch=1, heads=1, size=64, mode="training", precision="bf16", **attributes):
    shape = (batch, heads, queries, size)
    return Operation("attention", [shape] * 3, attributes, mode=mode, precision=precision)


def passes(gpu, *, tokens=4096, batch=8, heads=16, size=128, **options):
    """Seconds of the forward and of the backward."""
    sizes = {"batch": batch, "heads": heads, "size": size}
    modes = [attention(tokens, **sizes, mode=mode, **options) for mode in ("inference", "training")]
    forward, both = (float(predict_operations([each], gpu).device_time_s[0]) for each in modes)
    return forward, both - forward


def rates(gpu, *, causal, tokens=4096, batch=8, heads=16, size=128, **options):
    """TFLOP/s of the forward and of the backward, whose FLOPs are 2.5 times those of the forward."""
    flops = 4 * batch * heads * tokens**2 * size * (0.5 if causal else 1.0) / 1e12
    sizes = {"tokens": tokens, "batch": batch, "heads": heads, "size": size}
    forward_s, backward_s = passes(gpu, causal=causal, **sizes, **options)
    return flops / forward_s, 2.5 * flops / backward_s


def test_the_backward_computes_five_products_and_sums_gradients_of_queries_in_fp32():
    sizes = attention_sizes(OperationList([attention(128, heads=3, size=64)]))
    product = 2 * 3 * 128 * 128 * 64
    # Scores again, and gradients of values, scores, queries and keys, at 0.88 of the forward's rate.
    assert sizes.backward_flops == [5 * product]
    # 16-bit results and their gradients are read; fp32 sums are set to zero, read, and written in 16 bits.
    assert sizes.gradient_bytes == [3 * 128 * 64 * (2 + 2 + 4 + 4 + 2)]
    forward_s, backward_s = (flash_2_s(sizes, MACHINE, PLAIN, backward=each) for each in (False, True))
    assert forward_s == pytest.approx(2 * product / 1e9, rel=1e-6)
    assert backward_s == pytest.approx(5 * product / 0.88e9, rel=1e-3)


def test_loads_cost_as_many_cycles_per_flop_on_every_gpu_and_newer_instructions_are_not_used():
    constants = PLAIN + np.array([0, 0.5, 0, 0, 0, 0, 0, 0])
    sizes = attention_sizes(OperationList([attention(128, size=64)]))
    cycles = {
        rate: 1e9 * flash_2_s(sizes, Machine(1, 1e9, float(rate), 1e12, 1e12), constants)[0]
        for rate in (1024, 2048, 8192)
    }
    flops = 4 * 128 * 128 * 64
    assert cycles[1024] == pytest.approx(flops * (1 / 1024 + 0.5 / 2048), rel=1e-3)
    assert cycles[2048] == cycles[8192] == pytest.approx(flops * 1.5 / 2048, rel=1e-3)


@pytest.mark.parametrize(
    ("implementation", "gpu", "factors"),
    [
        ("pytorch", "H100 SXM", (1.0, 1.0)),
        ("pytorch", "MI300X", (1.0, 1.0)),
        ("pytorch", "T4", (1.5, 2.4)),
        ("triton", "A100 SXM4 80GB", (1.8, 1.8)),
    ],
)
def test_kernels_before_flash_attention_2_take_longer(implementation, gpu, factors):
    operations = OperationList([attention(implementation=implementation)])
    found = [over_flash_2(operations, find_gpu(gpu), backward=each)[0] for each in (False, True)]
    assert tuple(found) == factors


def test_an_attention_in_training_is_its_forward_with_a_backward():
    training, forward = attention(), attention(mode="inference")
    parts = variant_parts(OperationList([training, forward, attention(implementation="vllm")]))
    found = [(part.family, [*part.operations], part.backward.tolist(), part.learned_names) for part in parts]
    assert found == [
        ("attention by PyTorch", [forward, forward], [True, False], ("attention", "half")),
        ("attention", [attention(mode="inference", implementation="vllm")], [True], ("attention", "half")),
    ]


LONG = {"tokens": 8192, "batch": 2}


@pytest.mark.parametrize(
    ("gpu", "options", "forward", "backward"),
    [
        # FlashAttention 2, then 3 (as quick as cuDNN): flash-attention pull request 1791.
        ("H100 SXM", {"causal": False, **LONG}, 370, 291),
        ("H100 SXM", {"causal": True, **LONG}, 284, 287),
        ("H100 SXM", {"causal": False, **LONG, "implementation": "cudnn"}, 659, 554),
        ("H100 SXM", {"causal": True, **LONG, "implementation": "cudnn"}, 630, 532),
        # tritonbench pull request 171, and flash-attention issue 1589.
        ("B200", {"causal": False}, 354, None),
        ("B200", {"causal": False, "batch": 4, "heads": 32, "size": 64}, 307, 315),
        # arXiv 2307.08691, section 4.1: 73 % and 63 % of 312 at best.
        ("A100 SXM4 80GB", {"causal": False, **LONG}, 228, 197),
    ],
    ids=str,
)
def test_rates_are_near_published_ones(gpu, options, forward, backward):
    found = rates(gpu, **options)
    assert found[0] == pytest.approx(forward, rel=0.25)
    assert backward is None or found[1] == pytest.approx(backward, rel=0.25)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_masks_and_passes_on_every_gpu(precision):
    wrong = []
    for name, gpu in gpus().items():
        if precision not in gpu.peak_flops:
            continue
        full, causal = (passes(gpu, causal=each, precision=precision) for each in (False, True))
        halves = [b / a for a, b in zip(full, causal, strict=True)]
        quick = [
            rate * 1e12 / gpu.peak_flops[precision]
            for each in (False, True)
            for rate in rates(gpu, causal=each, precision=precision)
        ]
        if not (0.45 < min(halves) <= max(halves) < 0.6 and 2.2 < full[1] / full[0] < 5 and max(quick) <= 1.02):
            wrong.append((name, halves, full[1] / full[0], quick))
    assert not wrong


def test_siblings_are_ordered_as_their_data_sheets():
    b200, b300 = (passes("B200", causal=False), passes("B300", causal=False))
    assert b200[1] > b300[1] > 0.8 * b200[1]
