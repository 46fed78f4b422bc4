"""Attention by PyTorch, forward and backward: published rates, and laws over the catalogue."""

import numpy as np
import pytest

from joulecast import predict_operations
from joulecast.hardware import gpus
from joulecast.operations.operation import Operation


def attention(queries=128, *, batch=1, heads=1, size=64, mode="training", precision="bf16", **attributes):
    shape = (batch, heads, queries, size)
    return Operation("attention", [shape] * 3, attributes, mode=mode, precision=precision)


def passes(gpu, *, causal=(False,), tokens=4096, batch=8, heads=16, size=128, **options):
    """Seconds of the forwards and of the backwards: rows of both for each mask."""
    sizes = {"batch": batch, "heads": heads, "size": size}
    forward, both = (
        predict_operations([attention(tokens, **sizes, mode=mode, causal=each, **options) for each in causal], gpu)
        for mode in ("inference", "training")
    )
    return np.stack([forward.device_time_s, both.device_time_s - forward.device_time_s], axis=1)


def rates(seconds, *, causal, tokens=4096, batch=8, heads=16, size=128):
    """FLOP/s of the forward and of the backward, whose FLOPs are 2.5 times those of the forward."""
    return 4 * batch * heads * tokens**2 * size * (0.5 if causal else 1.0) * np.array([1, 2.5]) / seconds


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
    sizes = {name: value for name, value in options.items() if name not in ("causal", "implementation")}
    (seconds,) = passes(gpu, **{**options, "causal": (options["causal"],)})
    found = rates(seconds, causal=options["causal"], **sizes) / 1e12
    assert found[0] == pytest.approx(forward, rel=0.25)
    assert backward is None or found[1] == pytest.approx(backward, rel=0.25)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_masks_and_passes_on_every_gpu(precision):
    wrong = []
    for name, gpu in gpus().items():
        if precision not in gpu.peak_flops:
            continue
        full, causal = passes(gpu, causal=(False, True), precision=precision)
        halves = causal / full
        quick = np.maximum(rates(full, causal=False), rates(causal, causal=True)) / gpu.peak_flops[precision]
        if not (0.45 < min(halves) <= max(halves) < 0.62 and 2.2 < full[1] / full[0] < 5 and max(quick) <= 1.02):
            wrong.append((name, halves, full[1] / full[0], quick))
    assert not wrong


def test_siblings_are_ordered_as_their_data_sheets():
    b200, b300 = (passes("B200")[0], passes("B300")[0])
    assert b200[1] > b300[1] > 0.8 * b200[1]
