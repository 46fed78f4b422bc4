"""Attention on tensor cores: counts by hand, splits by hand, and laws."""

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.kernels.attention import ATTENTION, DECODING
from joulecast.predictors.kernels.attention_libraries import LIBRARIES, decoding_work
from joulecast.predictors.kernels.attention_physics import (
    CONTEXT_CONSTANTS,
    context_s,
    decoding_s,
    split_keys,
)
from joulecast.predictors.kernels.fit import Measured, fit_constants
from joulecast.predictors.kernels.products import Machine
from joulecast.predictors.physics.attention_sizes import attention_sizes

H100 = find_gpu("H100 SXM")
MACHINE = Machine(sms=1, clock_hz=1e9, flops_per_cycle=1024.0, bandwidth=1e12, l2_bytes=1e6)


def attention(queries, keys, *, heads=1, cached_heads=1, size=64, sequences=1, precision="bf16", **attributes):
    shapes = [(sequences, heads, queries, size), *[(sequences, cached_heads, keys, size)] * 2]
    return Operation("attention", shapes, attributes, precision=precision)


def sizes(*operations):
    return attention_sizes(OperationList(operations))


def starts(constants):
    return np.array([constant.start for constant in constants])


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
    assert sizes(operation).pairs == [pairs]


def test_causal_attention_computes_its_own_half():
    assert sizes(attention(4, 4, heads=3, size=8, causal=True)).flops == [2 * 3 * 10 * 16]


def test_heads_that_share_keys_read_them_once():
    operation = attention(1, 100, heads=32, cached_heads=4, sequences=2)
    narrow = attention(1, 100, heads=32, cached_heads=4, sequences=2, cache_precision="fp8")
    # 2 sequences x 4 heads x 100 keys x (64 + 64 elements)
    assert sizes(operation, narrow).cached_bytes.tolist() == [102_400 * 2, 102_400]


def test_a_window_leaves_keys_unread():
    # The last 20 queries see the last 20 + 9 keys, each 10 of them.
    assert sizes(attention(20, 100, causal=True, window=10)).cached_bytes == [29 * 128 * 2]


def test_one_tile_takes_products_exponentials_and_its_start():
    # 1.5 x 2 x (64 + 64) FLOPs of 1024 a cycle and 0.55 of an exponential of 16 a cycle, for 128 x 128 pairs.
    cycles = 128 * 128 * (1.5 * 256 / 1024 + 0.55 / 16) + 5500
    # 128 queries, results, keys and values of 64 elements from the L2, at 6 bytes a cycle.
    cached = 4 * 128 * 64 * 2 / 6
    expected = 8e-6 + (cycles**3 + cached**3) ** (1 / 3) / 1e9
    found = context_s(sizes(attention(128, 128)), MACHINE, starts(CONTEXT_CONSTANTS))
    assert found == pytest.approx([expected])


def test_blackwell_ultra_has_twice_the_exponentials():
    b200, b300 = (Machine.of(find_gpu(name), "bf16") for name in ("B200", "B300"))
    assert (b200.exponentials, b300.exponentials) == (16, 32)
    # If products and bytes cost nothing, only 0.55 of an exponential for each pair takes time.
    constants = np.array([0.0, 0.0, 0.55, 0.0, 1e9, 1e9, 0.0, 1.0])
    times_s = [context_s(sizes(attention(8192, 8192, heads=148)), each, constants)[0] for each in (b200, b300)]
    assert times_s[0] == pytest.approx(8192**2 * 0.55 / 16 / b200.clock_hz, rel=0.01)
    assert times_s[0] / times_s[1] == pytest.approx(2 * b300.clock_hz / b200.clock_hz)


@pytest.mark.parametrize(
    ("by_triton", "size", "computed"), [(True, 72, 128), (True, 192, 192), (False, 72, 96), (False, 128, 128)]
)
def test_kernels_pad_the_heads(by_triton, size, computed):
    # Only products take time: 2 x 2 FLOPs for each pair and padded element. Triton's rate is half of this machine's.
    constants = np.array([0.0, 1.0, 0.0, 0.0, 1e9, 1e9, 0.0, 1.0])
    found = context_s(sizes(attention(128, 128, size=size)), MACHINE, constants, by_triton)
    cycles = 128 * 128 * 2 * 2 * computed / (512 if by_triton else 1024)
    assert found == pytest.approx([cycles / 1e9], rel=1e-3)


def test_half_of_the_tiles_of_a_long_causal_attention_is_skipped():
    constants = starts(CONTEXT_CONSTANTS)
    causal, full = context_s(sizes(attention(65536, 65536, causal=True), attention(65536, 65536)), MACHINE, constants)
    # 512 tiles see 1 to 512 blocks: 513 / 2 of 512 in the mean.
    assert causal / full == pytest.approx(513 / 1024, rel=0.01)


def test_keys_are_split_so_that_every_multiprocessor_has_work():
    # 128 blocks of 8 heads: 1.1 x 1024 / 132 = 8.5, so 9 blocks each, in 15 parts, of which 120 fit into one wave.
    split = split_keys(sizes(attention(1, 16384, heads=8, cached_heads=8)), 132)
    assert [each[0] for each in split] == [128, 8, 15, 9, 1]


def test_many_sequences_are_not_split():
    split = split_keys(sizes(attention(1, 4096, heads=8, cached_heads=8, sequences=64)), 132)
    assert [each[0] for each in split] == [32, 512, 1, 32, 4]


def test_decoding_reads_its_cache_at_the_bandwidth_of_the_memory():
    machine = Machine.of(find_gpu("H100 SXM"), "bf16")
    constants = np.array([0.0, 0.0, 0.0, 1e9, 0.5, 1e9])
    found = sizes(attention(1, 65536, heads=8, cached_heads=8, size=128, sequences=8))
    (time_s,) = decoding_s(found, found, machine, constants)
    assert time_s == pytest.approx(8 * 8 * 65536 * 256 * 2 / (3.352e12 * 0.5), rel=0.01)


def test_keys_that_each_head_reads_by_itself_pass_the_memory_once_and_the_cache_once_per_head():
    machine = Machine(sms=1, clock_hz=1e9, flops_per_cycle=1024.0, bandwidth=1e12, l2_bytes=1e3)
    operation = attention(1, 4096, heads=48, cached_heads=1, size=128, implementation="tensorrt_llm")
    shared, apart = sizes(operation), decoding_work(sizes(operation), OperationList([operation]), H100)
    assert (shared.cached_heads.tolist(), apart.cached_heads.tolist()) == ([1], [48])
    bytes_of_keys, bytes_of_queries = 4096 * 256 * 2, 48 * 256 * 2
    from_memory = np.array([0.0, 0.0, 0.0, 1e9, 1.0, 1e9])
    from_cache = np.array([0.0, 0.0, 0.0, 1e9, 1e9, 1.0])
    assert decoding_s(shared, apart, machine, from_memory) * 1e12 == pytest.approx(bytes_of_keys + bytes_of_queries)
    assert decoding_s(shared, apart, machine, from_cache) * 1e9 == pytest.approx(48 * bytes_of_keys + bytes_of_queries)


def by(implementation, queries=512, **attributes):
    return attention(queries, 512, implementation=implementation, **attributes)


@pytest.mark.parametrize(
    ("operation", "gpu", "library"),
    [
        (by("pytorch", causal=True), "H100 SXM", "flash"),
        (by("sglang", causal=True, size=512), "H100 SXM", "triton"),
        (by("sglang", causal=True, size=256), "H100 SXM", "flash"),
        (by("sglang", causal=True, size=256, window=128), "H100 SXM", "triton"),
        (by("vllm", causal=True, size=512), "H100 SXM", "flash"),
        (by("sglang", causal=True, size=128), "L40S", "flash"),
        (by("sglang", causal=True, size=64), "L40S", "triton"),
        (by("sglang", size=128), "L40S", "triton"),
        (by("sglang", size=64), "A100 SXM4 80GB", "flash"),
        (by("sglang", causal=True, size=192), "B200", "triton"),
        (by("sglang", causal=True, size=256, cache_precision="fp8"), "B300", "triton"),
        (by("sglang", causal=True, size=128, cache_precision="fp8"), "B200", "flash"),
        (by("tensorrt_llm", causal=True, size=192), "B200", "tensorrt_llm"),
        (by("tensorrt_llm", queries=1, heads=32), "H100 SXM", "tensorrt_llm"),
        (by("tensorrt_llm", queries=1, heads=33), "H100 SXM", "each head by itself"),
        (by("tensorrt_llm", queries=1), "L40S", "each head by itself"),
        (by("tensorrt_llm", queries=1), "B200", "flash"),
        (by("sglang", queries=1, heads=48), "L40S", "triton"),
    ],
    ids=str,
)
def test_the_library_that_computes_an_operation(operation, gpu, library):
    family = DECODING if operation.input_shapes[0][-2] == 1 else ATTENTION
    assert LIBRARIES[family.library(OperationList([operation]), find_gpu(gpu))[0]] == library


def test_kernels_that_cannot_skip_keys_outside_a_window_take_as_long_as_without_one():
    windows = [None, 128]
    operations = [
        attention(4096, 4096, size=size, causal=True, implementation=engine, **({"window": w} if w else {}))
        for engine, size in (("sglang", 64), ("sglang", 128), ("tensorrt_llm", 64))
        for w in windows
    ]
    times = ATTENTION.physics_s(OperationList(operations), find_gpu("L40S"), starts(CONTEXT_CONSTANTS))
    triton, flash, tensorrt_llm = times.reshape(3, 2)
    assert triton[0] == triton[1]
    assert flash[0] == flash[1]
    assert tensorrt_llm[1] < tensorrt_llm[0] / 3


def test_a_library_measured_on_one_of_two_generations_gets_the_constants_of_all():
    true = np.array([[constant.start for constant in CONTEXT_CONSTANTS]] * len(LIBRARIES))
    true[LIBRARIES.index("tensorrt_llm"), 0] = 1.4e-5
    queries = range(100, 164)
    flash = [attention(each, each, heads=8, cached_heads=8, causal=True) for each in queries]
    engine = [
        attention(each, each, heads=8, cached_heads=8, causal=True, implementation="tensorrt_llm") for each in queries
    ]
    tables = [
        _as_measured(operations, gpu, true) for gpu, operations in (("H100 SXM", flash + engine), ("B200", flash))
    ]
    alone, both = (fit_constants(ATTENTION, some, 0) for some in (tables[:1], tables))
    first, second = LIBRARIES.index("flash"), LIBRARIES.index("tensorrt_llm")
    # Times jump at whole waves, so the fit ends in one of several minima, depending on the last bits of the processor.
    assert alone[second, 0] == pytest.approx(1.4e-5, rel=0.2)
    assert both[first, 0] == pytest.approx(8e-6, rel=0.1)
    # It was measured on the H100 only, so it gets what fits both libraries on both GPUs best.
    assert both[second, 0] != pytest.approx(1.4e-5, rel=0.1)
    assert both[second].tolist() == both[LIBRARIES.index("triton")].tolist()


def _as_measured(operations, gpu, constants):
    some, gpu = OperationList(operations), find_gpu(gpu)
    return Measured(gpu, some, ATTENTION.by_library_s(some, gpu, constants))


@pytest.mark.parametrize(
    ("operation", "family", "variant"),
    [
        (attention(64, 64), "attention", "half"),
        (attention(64, 64, precision="fp16"), "attention", "half"),
        (attention(64, 64, cache_precision="fp8"), "attention", "half with fp8 cache"),
        (attention(64, 64, precision="fp8"), "attention", "fp8"),
        (attention(1, 64), "decoding", "half"),
        (attention(1, 1), "attention", "half"),
        (attention(64, 64, precision="fp32"), None, None),
        (attention(64, 64).replace(mode="training"), None, None),
        (Operation("relu", [(1, 64)], precision="bf16"), None, None),
    ],
    ids=str,
)
def test_each_operation_has_one_variant_of_one_family(operation, family, variant):
    assert ATTENTION.variant(operation) == (variant if family == "attention" else None)
    assert DECODING.variant(operation) == (variant if family == "decoding" else None)


@pytest.mark.parametrize("gpu", ["A100 SXM4 80GB", "L40S", "H100 SXM", "B200"])
@pytest.mark.parametrize("family", [ATTENTION, DECODING], ids=lambda family: family.name)
def test_more_sequences_keys_and_heads_never_take_less(family, gpu):
    queries = 300 if family is ATTENTION else 1
    steps = [
        attention(queries, keys, heads=heads, cached_heads=heads, sequences=sequences)
        for sequences, keys, heads in [(1, 300, 4), (4, 300, 4), (4, 3000, 4), (4, 3000, 16), (64, 3000, 16)]
    ]
    times = family.physics_s(OperationList(steps), find_gpu(gpu), starts(family.constants))
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("family", [ATTENTION, DECODING], ids=lambda family: family.name)
def test_features_are_finite_and_have_names(family):
    queries = 7 if family is ATTENTION else 1
    operations = OperationList([attention(queries, 9), attention(queries, 9, window=3, implementation="vllm")])
    gpu = find_gpu("L40S")
    physics_s = family.physics_s(operations, gpu, starts(family.constants))
    found = family.features(operations, gpu, physics_s)
    assert found.shape == (2, len(family.feature_names))
    assert np.isfinite(found).all()
    values = dict(zip(family.feature_names, found[1].tolist(), strict=True))
    assert values["has_window"] == values["by_vllm"] == 1
    assert values["log_window"] == pytest.approx(np.log2(3 / 9))
