"""Least times of kernels against arithmetic written out by hand, on a GPU with round figures."""

import numpy as np
import pytest

from joulecast.hardware import find_gpu, gpus
from joulecast.operations.attributes import PRECISIONS
from joulecast.operations.operation import Operation
from joulecast.predictors.model.machine import LANES, TENSOR_CORES, TRITON, Machine, way
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


def of(kind, shapes, attributes=None, at=None, given=None, **more):
    work = Work.of([Operation(kind, shapes, attributes, **more)])
    return costs(work, at or machine(), constants() if given is None else given)


def test_a_product_takes_whole_waves_of_tiles():
    # 1280 x 128 outputs are ten tiles of 128 x 128: one wave on ten multiprocessors, at 1024 FLOPs per cycle.
    found = of("linear", [(1280, 512)], {"out_features": 128}, precision="bf16")
    assert found.compute_s == pytest.approx(2 * 128 * 128 * 512 / 1024 / 1e9)
    assert found.fill == pytest.approx(1.0)
    # One row more starts another wave. With tiles of an eighth of the size, which cost nothing to start here, it is the
    # ninth of what were eight waves.
    more = of("linear", [(1281, 512)], {"out_features": 128}, precision="bf16")
    assert more.compute_s == pytest.approx(found.compute_s * 9 / 8)
    assert more.fill == pytest.approx(1281 / 1280 * 8 / 9)


def test_bytes_pass_the_memory_or_the_cache():
    found = of("add", [(1000, 1000), (1000, 1000)])
    assert found.memory_s == pytest.approx(3 * 4e6 / 0.8e11)
    cached = of(
        "add", [(1000, 1000), (1000, 1000)], at=machine(l2_bytes=1e12), given=constants(l2_bytes_per_sm_cycle=50.0)
    )
    assert cached.memory_s == pytest.approx(3 * 4e6 / (50 * 10 * 1e9))


def test_products_read_at_the_bandwidth_of_the_data_sheet():
    found = of("linear", [(1, 4096)], {"out_features": 4096, "bias": False}, precision="bf16")
    assert found.memory_s == pytest.approx(2 * (4096 + 4096**2 + 4096) / 1e11)


@pytest.mark.parametrize("shapes", [[(20, 1, 4096), (20, 4096, 8)], [(20, 8, 4096), (20, 4096, 1)]])
def test_products_with_a_vector_have_no_tiles_to_fill(shapes):
    found = of("matmul", shapes, precision="bf16", given=constants(flops_per_loaded_byte=64.0))
    # Two products for each multiprocessor. Each loads (1 + 8) x 4096 elements of 2 bytes, at 64 FLOPs or a 16th of a
    # cycle for each byte, and computes in less.
    assert found.compute_s == pytest.approx(2 * 9 * 4096 * 2 * 64 / 1024 / 1e9)


def test_the_power_cap_slows_long_products_down():
    given = constants(picojoules_per_flop=1.0)
    free = of("linear", [(12800, 4096)], {"out_features": 1280}, precision="bf16", given=given)
    # 1e-12 joules for each of 10 x 1024 x 1e9 FLOPs per second are 10.24 W; half of that is allowed.
    capped = of(
        "linear", [(12800, 4096)], {"out_features": 1280}, precision="bf16", given=given, at=machine(logic_power_w=5.12)
    )
    assert capped.compute_s == pytest.approx(2 * free.compute_s, rel=0.02)


def test_boards_sold_with_slower_tensor_cores_have_the_losses_and_the_energy_of_their_multiprocessors():
    """The same multiprocessors at half of the rate they are built for, with which kernels reach 0.8 of the peak."""
    sizes, layer = [(12800, 4096)], {"out_features": 1280}
    half = {"flops_per_cycle": np.full(len(PRECISIONS), 512.0)}
    given = constants(share_of_peak=0.8)
    full, slow = (of("linear", sizes, layer, at=machine(**more), given=given, precision="bf16") for more in ({}, half))
    # A FLOP takes 1 / (0.8 x 1024) = 1.25 / 1024 cycles at the full rate, and 2.25 / 1024 at half of it.
    assert slow.compute_s / full.compute_s == pytest.approx(2.25 / 1.25, rel=1e-6)
    # The cap allows what 1e-12 joules for a FLOP draw at 512 FLOPs per cycle, and no more.
    capped = machine(**half, logic_power_w=5.12)
    tight = of("linear", sizes, layer, at=capped, given=constants(picojoules_per_flop=1.0), precision="bf16")
    assert tight.compute_s == pytest.approx(tight.burst_s, rel=1e-6)


def test_attention_counts_its_exponentials():
    shapes = [(1, 10, 128, 64)] * 3
    given = constants(exposed_exponentials=1.0)
    plain, found = (of("attention", shapes, precision="bf16", given=g) for g in (constants(), given))
    # Each of ten multiprocessors computes 128 x 128 exponentials, 16 in a cycle.
    assert found.compute_s - plain.compute_s == pytest.approx(128 * 128 / 16 / 1e9, rel=1e-6)


def test_splitting_a_reduction_uses_multiprocessors_that_would_wait():
    product = "linear", [(16, 65536)], {"out_features": 128}
    whole = of(*product, precision="bf16")
    split = of(*product, precision="bf16", given=constants(split_cycles=1000.0))
    assert whole.splits == 1
    # One tile keeps one of ten multiprocessors busy. In 32 parts it takes four waves of a 32nd each, and 1000 cycles.
    assert whole.compute_s == pytest.approx(2 * 16 * 128 * 65536 / 1024 / 1e9)
    assert split.compute_s <= whole.compute_s * 4 / 32 + 1000 / 1e9


def test_a_call_of_pytorch_runs_on_tensor_cores_where_there_are_any():
    linear = Work.of([Operation("linear", [(8, 8)], {"out_features": 8}, precision="fp16")])
    assert way(linear, Machine.of(find_gpu("A30"))).tolist() == [TENSOR_CORES]
    assert way(linear, Machine.of(find_gpu("P4"))).tolist() == [LANES]


def test_experts_are_computed_by_triton_unless_flashinfer_was_asked_for():
    attributes = {"intermediate": 32, "top_k": 2, "experts": 4}
    work = Work.of([Operation("experts", [(10, 16)], attributes, precision="bf16")])
    assert set(way(work, Machine.of(find_gpu("H100 SXM"))).tolist()) == {TRITON}


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("group", ["product", "convolution", "stream"])
def test_on_every_gpu_more_work_takes_longer_and_no_rate_is_above_the_peak(gpu, group):
    kind, attributes = {
        "product": ("linear", {"out_features": 1024}),
        "convolution": ("conv2d", {"out_channels": 64, "kernel_size": 1}),
        "stream": ("gelu", None),
    }[group]
    shapes = [(2**n, 64, 16, 16) if group == "convolution" else (2**n * 256, 1024) for n in range(6)]
    operations = [Operation(kind, [shape], attributes) for shape in shapes]
    found = costs(Work.of(operations), Machine.of(gpu), STARTS)
    assert np.all(np.diff(found.time_s) > 0)
    flops = np.array([operation.flops for operation in operations])
    assert np.all(flops / found.time_s <= gpu.peak_flops["fp32"] * (1 + 1e-9))
