"""Attention on GPUs of the catalogue: published rates, and what more work takes. test_laws.py has laws of masks."""

import numpy as np
import pytest

from joulecast import predict_operations
from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model.machine import Machine
from joulecast.predictors.model.physics import STARTS, costs
from joulecast.predictors.model.work import Work


def attention(queries, *, keys=None, batch=1, heads=1, size=64, mode="training", precision="bf16", **attributes):
    shapes = [(batch, heads, tokens, size) for tokens in (queries, keys or queries, keys or queries)]
    return Operation("attention", shapes, attributes, mode=mode, precision=precision)


def counted(gpu, operations):
    return costs(Work.of(OperationList(operations)), Machine.of(find_gpu(gpu)), STARTS)


def rates_of(gpu, *, tokens=4096, batch=8, heads=16, size=128, causal=False, **options):
    """TFLOP/s of the forward and of the backward, which has 2.5 times as many FLOPs."""
    options |= {"batch": batch, "heads": heads, "size": size, "causal": causal}
    forward_s, both_s = (
        predict_operations([attention(tokens, mode=mode, **options)], gpu).device_time_s[0]
        for mode in ("inference", "training")
    )
    flops = 4 * batch * heads * tokens**2 * size * (0.5 if causal else 1.0)
    return [1e-12 * flops / forward_s, 1e-12 * 2.5 * flops / (both_s - forward_s)]


LONG = {"tokens": 8192, "batch": 2}


@pytest.mark.parametrize(
    ("gpu", "options", "rates"),
    [
        # FlashAttention 2, then 3 (as quick as cuDNN): flash-attention pull request 1791.
        ("H100 SXM", LONG, [370, 291]),
        ("H100 SXM", {**LONG, "causal": True}, [284, 287]),
        ("H100 SXM", {**LONG, "implementation": "cudnn"}, [659, 554]),
        ("H100 SXM", {**LONG, "causal": True, "implementation": "cudnn"}, [630, 532]),
        # tritonbench pull request 171, and flash-attention issue 1589.
        ("B200", {}, [354]),
        ("B200", {"batch": 4, "heads": 32, "size": 64}, [307, 315]),
        # arXiv 2307.08691, section 4.1: 73 % and 63 % of 312 at best.
        ("A100 SXM4 80GB", LONG, [228, 197]),
    ],
    ids=str,
)
def test_rates_are_near_published_ones(gpu, options, rates):
    assert rates_of(gpu, **options)[: len(rates)] == pytest.approx(rates, rel=0.25)


def test_kernels_that_cannot_skip_keys_outside_a_window_take_as_long_as_without_one():
    operations = [
        attention(4096, size=size, mode="inference", causal=True, implementation=engine, **window)
        for engine, size in (("sglang", 64), ("sglang", 128), ("tensorrt_llm", 64))
        for window in ({}, {"window": 128})
    ]
    triton, flash, tensorrt_llm = counted("L40S", operations).compute_s.reshape(3, 2)
    assert triton[0] == triton[1]
    assert flash[0] == flash[1]
    assert tensorrt_llm[1] < tensorrt_llm[0] / 3


@pytest.mark.parametrize("gpu", ["A100 SXM4 80GB", "L40S", "H100 SXM", "B200"])
@pytest.mark.parametrize("queries", [300, 1])
def test_more_sequences_keys_and_heads_never_take_less(queries, gpu):
    steps = [
        attention(queries, keys=keys, heads=heads, batch=batch, mode="inference", implementation="sglang")
        for batch, keys, heads in [(1, 300, 4), (4, 300, 4), (4, 3000, 4), (4, 3000, 16), (64, 3000, 16)]
    ]
    assert (np.diff(counted(gpu, steps).time_s) >= 0).all()
