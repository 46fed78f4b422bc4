"""Attention on tensor cores: counts by hand, libraries, and laws."""

import numpy as np
import pytest
from test_physics import constants, machine

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model.machine import WAYS, Machine, way
from joulecast.predictors.model.physics import STARTS, costs
from joulecast.predictors.model.work import Work


def attention(queries, keys, *, heads=1, cached_heads=1, size=64, sequences=1, precision="bf16", **attributes):
    attributes = {"implementation": "sglang", **attributes}
    shapes = [(sequences, heads, queries, size), *[(sequences, cached_heads, keys, size)] * 2]
    return Operation("attention", shapes, attributes, precision=precision)


def work(*operations):
    return Work.of(OperationList(operations))


def found(*operations, at=None, **given):
    return costs(Work.of(OperationList(operations)), at or machine(sms=1.0, generation="9.0"), constants(**given))


@pytest.mark.parametrize(
    ("operation", "pairs"),
    [
        (attention(3, 5), 15),
        (attention(4, 4, causal=True), 1 + 2 + 3 + 4),
        (attention(2, 5, causal=True), 4 + 5),
        (attention(4, 4, causal=True, window=2), 1 + 2 + 2 + 2),
        (attention(2, 6, causal=True, window=3), 3 + 3),
        (attention(1, 9), 9),
        (attention(1, 9, window=4), 4),
    ],
    ids=str,
)
def test_pairs_of_queries_and_keys_that_see_each_other(operation, pairs):
    one = work(operation)
    assert one.reduction * one.rows == [pairs]


def test_heads_that_share_keys_read_them_once():
    operation = attention(1, 100, heads=32, cached_heads=4, sequences=2)
    narrow = attention(1, 100, heads=32, cached_heads=4, sequences=2, cache_precision="fp8")
    # 2 sequences x 4 heads x 100 keys x (64 + 64 elements)
    assert work(operation, narrow).held_bytes.tolist() == [102_400 * 2, 102_400]


def test_a_window_leaves_keys_unread():
    # The last 20 queries see the last 20 + 9 keys, each 10 of them.
    assert work(attention(20, 100, causal=True, window=10)).held_bytes == [29 * 128 * 2]


def test_one_tile_takes_products_exponentials_and_its_start():
    # 2 x (64 + 64) FLOPs of 0.5 x 1024 a cycle and 0.5 of an exponential of 16 a cycle, for 128 x 128 pairs.
    cycles = 128 * 128 * (256 / 512 + 0.5 / 16) + 5000
    one = found(attention(128, 128), share_of_peak=0.5, exposed_exponentials=0.5, tile_cycles=5000.0)
    assert one.compute_s == pytest.approx(cycles / 1e9)


def test_blackwell_ultra_has_twice_the_exponentials():
    b200, b300 = (Machine.of(find_gpu(name)) for name in ("B200", "B300"))
    assert (b200.exponentials, b300.exponentials) == (16, 32)


@pytest.mark.parametrize(
    ("generation", "size", "computed"),
    [("8.9", 72, 128), ("8.9", 192, 192), ("9.0", 72, 96), ("9.0", 128, 128)],
    ids=["Triton", "Triton in two parts", "FlashAttention", "exactly"],
)
def test_kernels_pad_the_heads(generation, size, computed):
    # Triton's rate lies half way to 1024 FLOPs per cycle, which is the rate of this machine. 2 x 2 FLOPs for each pair.
    one = found(attention(128, 128, size=size), at=machine(sms=1.0, generation=generation))
    assert one.compute_s == pytest.approx(128 * 128 * 2 * 2 * computed / 1024 / 1e9, rel=1e-3)


def test_half_of_the_tiles_of_a_long_causal_attention_is_skipped():
    causal, full = found(attention(65536, 65536, causal=True), attention(65536, 65536)).compute_s
    # 512 tiles see 1 to 512 blocks: 513 / 2 of 512 in the mean.
    assert causal / full == pytest.approx(513 / 1024, rel=0.01)


def test_decoding_reads_its_cache_at_the_bandwidth_of_the_memory():
    one = found(attention(1, 65536, heads=8, cached_heads=8, size=128, sequences=8), share_of_bandwidth=0.5)
    assert one.memory_s == pytest.approx(8 * 8 * 65536 * 256 * 2 / (1e11 * 0.5), rel=0.01)


@pytest.mark.parametrize(("part", "over_forward"), [(0, 1.0), (1, 2.5 / 0.88)])
def test_the_backward_has_five_products_for_two_and_a_lower_rate(part, over_forward):
    training = attention(128, 128, implementation="pytorch").replace(mode="training")
    assert found(training).compute_s[part] == pytest.approx(128 * 128 * 256 / 1024 / 1e9 * over_forward)
    # Kernels of their own sum gradients in fp32: 16-bit results and their gradients are read; sums are set to zero,
    # read and written in 16 bits.
    assert Work.of([training]).passed_bytes.tolist() == [0, 128 * 64 * (2 + 2 + 4 + 4 + 2)]


def test_flash_attention_2_loses_as_many_cycles_per_flop_on_every_gpu():
    rates = {
        rate: found(
            attention(128, 128, implementation="pytorch"),
            at=machine(sms=1.0, flops_per_cycle=np.full(8, float(rate))),
            share_of_peak=1 / 1.5,
        ).compute_s[0]
        for rate in (1024, 2048, 8192)
    }
    flops = 4 * 128 * 128 * 64
    assert rates[1024] == pytest.approx(flops * (1 / 1024 + 0.5 / 2048) / 1e9, rel=1e-3)
    assert rates[2048] == rates[8192] == pytest.approx(flops * 1.5 / 2048 / 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("implementation", "generation", "slower"),
    [("pytorch", "9.0", 1.0), ("pytorch", "gfx942", 1.0), ("pytorch", "7.5", 1.5), ("triton", "8.0", 1.8)],
)
def test_kernels_before_flash_attention_2_take_longer(implementation, generation, slower):
    one = found(attention(128, 128, implementation=implementation), at=machine(sms=1.0, generation=generation))
    assert one.compute_s == pytest.approx(128 * 128 * 256 / 1024 / 1e9 * slower)


def by(implementation, queries=512, **attributes):
    return attention(queries, 512, implementation=implementation, **attributes)


@pytest.mark.parametrize(
    ("operation", "gpu", "library"),
    [
        (by("pytorch", causal=True), "H100 SXM", "flash attention 2"),
        (by("sglang", causal=True, size=512), "H100 SXM", "triton"),
        (by("sglang", causal=True, size=256), "H100 SXM", "tensor cores"),
        (by("sglang", causal=True, size=256, window=128), "H100 SXM", "triton"),
        (by("vllm", causal=True, size=512), "H100 SXM", "tensor cores"),
        (by("sglang", causal=True, size=128), "L40S", "tensor cores"),
        (by("sglang", causal=True, size=64), "L40S", "triton"),
        (by("sglang", size=128), "L40S", "triton"),
        (by("sglang", size=64), "A100 SXM4 80GB", "flash attention 2"),
        (by("sglang", causal=True, size=192), "B200", "triton"),
        (by("sglang", causal=True, size=256, cache_precision="fp8"), "B300", "triton"),
        (by("sglang", causal=True, size=128, cache_precision="fp8"), "B200", "tensor cores"),
        (by("tensorrt_llm", causal=True, size=192), "B200", "tensorrt_llm"),
        (by("tensorrt_llm", queries=1, heads=32), "H100 SXM", "tensorrt_llm"),
        (by("tensorrt_llm", queries=1, heads=33), "H100 SXM", "each head by itself"),
        (by("tensorrt_llm", queries=1), "L40S", "each head by itself"),
        (by("tensorrt_llm", queries=1), "B200", "tensorrt_llm"),
        (by("sglang", queries=1, heads=48), "L40S", "triton"),
    ],
    ids=str,
)
def test_the_library_that_computes_an_operation(operation, gpu, library):
    assert WAYS[way(Work.of([operation]), Machine.of(find_gpu(gpu)))[0]] == library


def test_kernels_that_cannot_skip_keys_outside_a_window_take_as_long_as_without_one():
    operations = [
        attention(4096, 4096, size=size, causal=True, implementation=engine, **({"window": w} if w else {}))
        for engine, size in (("sglang", 64), ("sglang", 128), ("tensorrt_llm", 64))
        for w in (None, 128)
    ]
    times = costs(Work.of(OperationList(operations)), Machine.of(find_gpu("L40S")), STARTS).compute_s
    triton, flash, tensorrt_llm = times.reshape(3, 2)
    assert triton[0] == triton[1]
    assert flash[0] == flash[1]
    assert tensorrt_llm[1] < tensorrt_llm[0] / 3


@pytest.mark.parametrize("gpu", ["A100 SXM4 80GB", "L40S", "H100 SXM", "B200"])
@pytest.mark.parametrize("queries", [300, 1])
def test_more_sequences_keys_and_heads_never_take_less(queries, gpu):
    steps = [
        attention(queries, keys, heads=heads, cached_heads=heads, sequences=sequences)
        for sequences, keys, heads in [(1, 300, 4), (4, 300, 4), (4, 3000, 4), (4, 3000, 16), (64, 3000, 16)]
    ]
    times = costs(Work.of(OperationList(steps)), Machine.of(find_gpu(gpu)), STARTS).time_s
    assert (np.diff(times) >= 0).all()
