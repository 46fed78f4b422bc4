"""Least times of kernels against arithmetic written out by hand, on a GPU with round figures; and who computes them."""

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.attributes import PRECISIONS
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model.features import NAMES as FEATURES
from joulecast.predictors.model.features import features
from joulecast.predictors.model.machine import TENSOR_CORES, WAYS, Machine, way
from joulecast.predictors.model.physics import CONSTANTS, STARTS, costs
from joulecast.predictors.model.work import Work

NAMES = [constant.name for constant in CONSTANTS]


def machine(**changes):
    """Ten multiprocessors at 1 GHz, each with 1024 FLOPs per cycle; 100 GB/s, and hardly any cache."""
    figures = {
        "sms": 10.0,
        "clock_hz": 1e9,
        "flops_per_cycle": np.full(len(PRECISIONS), 1024.0),
        "full_flops_per_cycle": np.full(len(PRECISIONS), 1024.0),
        "unit": np.full(len(PRECISIONS), TENSOR_CORES),
        "generation": "8.0",
        "bandwidth": 1e11,
        "copied": 0.8e11,
        "l2_bytes": 1.0,
        "exponentials": 16.0,
        "logic_power_w": 1e9,
    }
    return Machine(**(figures | changes))


def constants(**changes):
    """Overheads that are next to nothing, and shares of one, except for the changes."""
    ideal = dict.fromkeys(NAMES, 1e-12) | {"share_of_peak": 1.0, "share_of_bandwidth": 1.0, "working_sets": 1.0}
    ideal |= {"l2_bytes_per_sm_cycle": 1e9, "split_cycles": 1e12} | changes
    return np.broadcast_to([ideal[name] for name in NAMES], STARTS.shape)


def of(operation, **changes):
    """Costs with changes of the constants, and of the figures of the GPU."""
    given = {name: changes.pop(name) for name in NAMES if name in changes}
    return costs(Work.of([operation]), machine(**changes), constants(**given))


def linear(rows, columns, reduction, **attributes):
    return Operation("linear", [(rows, reduction)], {"out_features": columns, **attributes}, precision="bf16")


def matmul(*shapes):
    return Operation("matmul", shapes, precision="bf16")


def attention(tokens=128, by="pytorch", *, size=64, heads=1, shared=1, queries=None, mode="inference", **attributes):
    """As many sequences as heads of keys; so many heads of queries share each of them."""
    shapes = [(heads, heads * shared, queries or tokens, size), *[(heads, heads, tokens, size)] * 2]
    attributes = {"implementation": by, **attributes}
    return Operation("attention", shapes, attributes, precision="bf16", mode=mode)


ADD = Operation("add", [(1000, 1000), (1000, 1000)])
LARGE = linear(12800, 1280, 4096)
FULL = {name: np.full(len(PRECISIONS), 1024.0) for name in ("flops_per_cycle", "full_flops_per_cycle")}
LOADS = {"flops_per_loaded_byte": 64.0}
ALONE, ADA, HOPPER = {"sms": 1.0}, {"sms": 1.0, "generation": "8.9"}, {"sms": 1.0, "generation": "9.0"}
PAIRS = 128 * 128
WAVE_S = 2 * PAIRS * 512 / 1024e9
# FLOPs of the attention of 128 queries to 128 keys, with heads of 64 elements; one multiprocessor takes so many cycles.
FLOPS, CYCLES = PAIRS * 4 * 64, PAIRS * 4 * 64 / 1024


def at_rate(rate):
    return ALONE | {"flops_per_cycle": np.full(len(PRECISIONS), float(rate))}


@pytest.mark.parametrize(
    ("operation", "changes", "expected"),
    [
        # 1280 x 128 outputs are ten tiles of 128 x 128: one wave on ten multiprocessors, at 1024 FLOPs per cycle. One
        # row more starts another wave: with tiles of an eighth of the size, which cost nothing to start here, a ninth.
        (linear(1280, 128, 512), {}, {"compute_s": WAVE_S, "fill": 1.0}),
        (linear(1281, 128, 512), {}, {"compute_s": WAVE_S * 9 / 8, "fill": 1281 / 1280 * 8 / 9}),
        # Bytes pass the memory or the cache; products read at the bandwidth of the data sheet.
        (ADD, {}, {"memory_s": 3 * 4e6 / 0.8e11}),
        (ADD, {"l2_bytes_per_sm_cycle": 50.0, "l2_bytes": 1e12}, {"memory_s": 3 * 4e6 / (50 * 10 * 1e9)}),
        (linear(1, 4096, 4096, bias=False), {}, {"memory_s": 2 * (4096 + 4096**2 + 4096) / 1e11}),
        # Products with a vector have no tiles to fill. Each of ten multiprocessors loads two with (1 + 8) x 4096
        # elements of 2 bytes, at 64 FLOPs or a 16th of a cycle for each byte, and computes in less.
        (matmul((20, 1, 4096), (20, 4096, 8)), LOADS, {"compute_s": 2 * 9 * 4096 * 2 * 64 / 1024e9}),
        (matmul((20, 8, 4096), (20, 4096, 1)), LOADS, {"compute_s": 2 * 9 * 4096 * 2 * 64 / 1024e9}),
        # One tile keeps one of ten multiprocessors busy.
        (linear(16, 128, 65536), {}, {"splits": 1, "compute_s": 2 * 16 * 128 * 65536 / 1024e9}),
        # Half of a cycle for each of 4 x 64 FLOPs of 1024, half of an exponential of 16 a cycle, and the start.
        (
            attention(by="sglang"),
            HOPPER | {"share_of_peak": 0.5, "exposed_exponentials": 0.5, "tile_cycles": 5000.0},
            {"compute_s": (PAIRS * (256 / 512 + 0.5 / 16) + 5000) / 1e9},
        ),
        # Kernels pad heads: Triton to powers of two, or in two parts, with rates half way to 1024 FLOPs per cycle.
        *(
            (attention(by="sglang", size=size), changes, {"compute_s": CYCLES / 64 * padded / 1e9})
            for changes, sizes in ((ADA, {72: 128, 192: 192}), (HOPPER, {72: 96, 128: 128}))
            for size, padded in sizes.items()
        ),
        # Half of the tiles of a long causal attention is skipped: 512 tiles see 1 to 512 blocks, 513 / 2 in the mean.
        (attention(65536, "sglang", causal=True), HOPPER, {"compute_s": CYCLES * 512 * 513 / 2 / 1e9}),
        # Four queries that share keys lie in one tile, of 16 rows at least; 4 tiles would take four times as long. 16
        # queries of five heads would fill 80 of 128 rows: each head has a tile. More than 32 heads that share keys read
        # them by themselves in TensorRT-LLM before Blackwell.
        (attention(4096, "sglang", queries=1, shared=4), HOPPER, {"compute_s": 16 * 4096 * 256 / 1024e9}),
        (attention(4096, "sglang", queries=16, shared=5), HOPPER, {"compute_s": 5 * 16 * 4096 * 256 / 1024e9}),
        (attention(4096, "tensorrt_llm", queries=1, shared=64), ADA, {"compute_s": 64 * 16 * 4096 * 256 / 1024e9}),
        # Decoding reads its cache at the bandwidth of the memory.
        (
            attention(65536, "sglang", queries=1, heads=8, size=128),
            HOPPER | {"share_of_bandwidth": 0.5},
            {"memory_s": 8 * 8 * 65536 * 256 * 2 / (1e11 * 0.5)},
        ),
        # The backward has five products for two, and a lower rate.
        (attention(mode="training"), HOPPER, {"compute_s": [CYCLES / 1e9, CYCLES * 2.5 / 0.88 / 1e9]}),
        # FlashAttention 2 loses as many cycles per FLOP on every GPU: half of one of 2048 FLOPs, and is no quicker.
        *(
            (attention(), at_rate(rate) | {"share_of_peak": 1 / 1.5}, {"compute_s": FLOPS * cycles / 1e9})
            for rate, cycles in ((1024, 1 / 1024 + 0.5 / 2048), (2048, 1.5 / 2048), (8192, 1.5 / 2048))
        ),
        # Kernels before it, and Triton's, take longer.
        (attention(), HOPPER, {"compute_s": CYCLES / 1e9}),
        (attention(), ALONE | {"generation": "gfx942"}, {"compute_s": CYCLES / 1e9}),
        (attention(), ALONE | {"generation": "7.5"}, {"compute_s": CYCLES * 1.5 / 1e9}),
        (attention(by="triton"), ALONE, {"compute_s": CYCLES * 1.8 / 1e9}),
    ],
    ids=str,
)
def test_least_times_by_hand(operation, changes, expected):
    found = of(operation, **changes)
    for name, values in expected.items():
        assert getattr(found, name).tolist() == pytest.approx(
            values if isinstance(values, list) else [values], rel=3e-3
        )


def test_the_power_cap_slows_long_products_down():
    # 1e-12 joules for each of 10 x 1024 x 1e9 FLOPs per second are 10.24 W; half of that is allowed.
    free, capped = (of(LARGE, picojoules_per_flop=1.0, logic_power_w=watts) for watts in (1e9, 5.12))
    assert capped.compute_s == pytest.approx(2 * free.compute_s, rel=0.02)


def test_boards_sold_with_slower_tensor_cores_have_the_losses_and_the_energy_of_their_multiprocessors():
    """The same multiprocessors at half of the rate they are built for, with which kernels reach 0.8 of the peak."""
    half = {"flops_per_cycle": np.full(len(PRECISIONS), 512.0)}
    full, slow = (of(LARGE, share_of_peak=0.8, **more) for more in ({}, half))
    # A FLOP takes 1 / (0.8 x 1024) = 1.25 / 1024 cycles at the full rate, and 2.25 / 1024 at half of it.
    assert slow.compute_s / full.compute_s == pytest.approx(2.25 / 1.25, rel=1e-6)
    # The cap allows what 1e-12 joules for a FLOP draw at 512 FLOPs per cycle, and no more.
    tight = of(LARGE, picojoules_per_flop=1.0, **half, logic_power_w=5.12)
    assert tight.compute_s == pytest.approx(tight.burst_s, rel=1e-6)


def test_splitting_a_reduction_uses_multiprocessors_that_would_wait():
    """In 32 parts, the only tile takes four waves of a 32nd each, and 1000 cycles."""
    whole, split = (of(linear(16, 128, 65536), split_cycles=cycles) for cycles in (1e12, 1000.0))
    assert split.compute_s <= whole.compute_s * 4 / 32 + 1000 / 1e9


def test_blackwell_ultra_has_twice_the_exponentials():
    b200, b300 = (Machine.of(find_gpu(name)) for name in ("B200", "B300"))
    assert (b200.exponentials, b300.exponentials) == (16, 32)


def test_what_trees_see_of_a_product():
    """96 x 80 outputs from 100 on ten multiprocessors with a megabyte of L2; sizes in powers of two."""
    moved, board = 2 * (96 * 100 + 100 * 80 + 96 * 80), machine(l2_bytes=1e6, logic_power_w=200.0)
    sizes = {"rows": 96, "columns": 80, "reduction": 100, "outputs": 96 * 80, "rows_reduction_over_columns": 120}
    sizes |= {
        "moved_over_l2": moved / 1e6,
        "held_over_l2": 2 * 100 * 80 / 1e6,
        "flops_cycles": 2 * 96 * 80 * 100 / 10240,
    }
    sizes |= {"memory_cycles": moved / 100, "intensity": 2 * 96 * 80 * 100 / moved, "sms": 10, "rate": 1024}
    sizes |= {"ridge": 10240 / 100, "l2_per_sm": 1e5, "watts_per_rate": 200 / 10.24, "row_padding_64": 128 / 96}
    sizes |= {"waves_64x64": 0.4, "whole_waves_64x64": 2.5, "waves_128x128": 0.1, "whole_waves_128x128": 10}
    expected = {f"log_{name}": np.log2(value) for name, value in sizes.items()}
    expected |= {"row_alignment": 4, "column_alignment": 4, "reduction_alignment": 2, "training": 0}
    operations = OperationList([linear(96, 80, 100, bias=False), attention(), EXPERTS, Operation("softmax", [(8, 8)])])
    work = Work.of(operations)
    matrix = features(operations, work, costs(work, board, constants()), board)
    assert np.isfinite(matrix).all()
    found = dict(zip(FEATURES, matrix[0].tolist(), strict=True))
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    of_attention = dict(zip(FEATURES, matrix[1].tolist(), strict=True))  # one tile, which computes
    assert of_attention["log_least_cycles"] == pytest.approx(np.log2(CYCLES), abs=0.1)
    assert of_attention["compute_share"] == pytest.approx(1, abs=0.05)


EXPERTS = Operation("experts", [(10, 16)], {"intermediate": 32, "top_k": 2, "experts": 4}, precision="bf16")


def causal(implementation, size, **attributes):
    return attention(512, implementation, size=size, causal=True, **attributes)


@pytest.mark.parametrize(
    ("operation", "gpu", "library"),
    [
        (linear(8, 8, 8), "A30", "tensor cores"),
        (linear(8, 8, 8).replace(precision="fp16"), "P4", "lanes"),
        (EXPERTS, "H100 SXM", "triton"),
        (EXPERTS.with_attributes(implementation="flashinfer"), "H100 SXM", "cutlass"),
        (causal("pytorch", 64), "H100 SXM", "flash attention 2"),
        (causal("sglang", 512), "H100 SXM", "triton"),
        (causal("sglang", 256), "H100 SXM", "tensor cores"),
        (causal("sglang", 256, window=128), "H100 SXM", "triton"),
        (causal("vllm", 512), "H100 SXM", "tensor cores"),
        (causal("sglang", 128), "L40S", "tensor cores"),
        (causal("sglang", 64), "L40S", "triton"),
        (attention(512, "sglang", size=128), "L40S", "triton"),
        (attention(512, "sglang"), "A100 SXM4 80GB", "flash attention 2"),
        (causal("sglang", 192), "B200", "triton"),
        (causal("sglang", 256, cache_precision="fp8"), "B300", "triton"),
        (causal("sglang", 128, cache_precision="fp8"), "B200", "tensor cores"),
        (causal("tensorrt_llm", 192), "B200", "tensorrt_llm"),
        (attention(512, "tensorrt_llm", queries=1, shared=32), "H100 SXM", "tensorrt_llm"),
        (attention(512, "tensorrt_llm", queries=1, shared=33), "H100 SXM", "each head by itself"),
        (attention(512, "tensorrt_llm", queries=1), "L40S", "each head by itself"),
        (attention(512, "tensorrt_llm", queries=1), "B200", "tensorrt_llm"),
        (attention(512, "sglang", queries=1, shared=48), "L40S", "triton"),
    ],
    ids=str,
)
def test_the_library_that_computes_an_operation(operation, gpu, library):
    assert {WAYS[place] for place in way(Work.of([operation]), Machine.of(find_gpu(gpu)))} == {library}
