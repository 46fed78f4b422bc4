"""Least device times, what they are made of, and bounds that no operation can beat, against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import PRIOR_ENERGY
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.roofline import Bounds, reached_bandwidth
from joulecast.predictors.physics.tiling import loaded_tile

WAY = 36 * 10 * 2e9  # Bytes per second between caches and 10 SMs: 36 bytes per cycle of each, at 2 GHz.
LANES = 128 * 10 * 2e9  # Threads per second of 10 SMs at 2 GHz.
REACHED = 0.91e11
RELU = Operation("relu", [(1000, 1000)])


def least(operation, clock_mhz=2000.0):
    found = LeastTimes.of([operation], ROUND, clock_mhz)
    return found.compute_s[0], found.memory_s[0], found.cache_s[0]


def linear(columns, **more):
    return Operation("linear", [(512, 512)], {"out_features": columns, "bias": False}, **more)


@pytest.mark.parametrize(
    ("gpu", "loaded"), [("A100 PCIe 40GB", [128, 64, 64]), ("H100 SXM", [171, 171, 171]), ("RTX 5090", [128, 64, 64])]
)
def test_what_tensor_cores_load(gpu, loaded):
    """A warp holds 64 x 64 sums; fewer rows than that read the weights once. Groups of warps on Hopper load for 171."""
    assert loaded_tile(np.array([16.0, 64.0, 4096.0]), find_gpu(gpu)).tolist() == loaded


@pytest.mark.parametrize(
    ("gpu", "gigabytes_per_s"),
    [
        *[("P100 PCIe", 556), ("T4", 243), ("RTX 4090", 907), ("RTX A6000", 691)],
        *[("RTX PRO 6000 Server", 1437), ("H100 SXM", 3049), ("MI300X", 4505)],
    ],
)
def test_copies_on_boards_of_the_catalogue(gpu, gigabytes_per_s):
    assert reached_bandwidth(find_gpu(gpu)) == pytest.approx(1e9 * gigabytes_per_s, rel=0.005)


CUBE, WIDER = 2 * 512**3, 2 * 512 * 512 * 640
MOVED, MOVED_WIDER = 4 * 3 * 512**2, 2 * (512 * 512 + 2 * 512 * 640)


@pytest.mark.parametrize(
    ("operation", "clock_mhz", "parts_s"),
    [
        # A million elements of 4 bytes, read and written: at 0.91 of 100 GB/s, and through the SMs. An instruction
        # moves an element however narrow. Half the clock doubles computing and the way, and not the memory.
        (RELU, 2000.0, (1e6 / 1e12, 8e6 / REACHED, 8e6 / WAY)),
        (RELU.replace(precision="fp16"), 2000.0, (1e6 / 8e12, 4e6 / REACHED, 8e6 / WAY)),
        (RELU, 1000.0, (2e6 / 1e12, 8e6 / REACHED, 16e6 / WAY)),
        # Tiles of 128 x 128 read 4 bytes for 128 FLOPs in fp32.
        (linear(512), 2000.0, (CUBE / 1e12, MOVED / REACHED, (MOVED + CUBE * 4 / 128) / WAY)),
        # On tensor cores warps read 2 bytes for 64 FLOPs. They lose what they would at the full rate: these have 400
        # FLOPs per cycle, of the 2049 of an A100 (312 TFLOP/s, 108 SMs, 1.41 GHz).
        (
            *(linear(640, precision="bf16"), 2000.0),
            (
                WIDER / 8e12 * (0.6 + 0.4 * 400 / (312e12 / 108 / 1.41e9)),
                *(MOVED_WIDER / REACHED, (MOVED_WIDER + WIDER * 2 / 64) / WAY),
            ),
        ),
    ],
    ids=str,
)
def test_parts_of_the_least_time_by_hand(operation, clock_mhz, parts_s):
    assert least(operation, clock_mhz) == pytest.approx(parts_s)


def test_times_overlap_as_a_norm_of_cubes():
    found = LeastTimes(np.array([3e-3]), np.array([4e-3]), np.array([5e-3]))
    assert found.time_s == found.overlapped_s == pytest.approx([6e-3])
    # Slower by two: 6, 4 and 10 ms.
    slowed = found.slowed(2.0)
    assert slowed.overlapped_s == pytest.approx([1e-3 * (216 + 64 + 1000) ** (1 / 3)])
    assert (slowed.compute_s[0], slowed.memory_s[0], slowed.cache_s[0]) == pytest.approx((6e-3, 4e-3, 10e-3))


def test_what_does_nothing_takes_a_nanosecond():
    nothing = LeastTimes.of([Operation("dropout", [(8, 8)], {"p": 0.5})], ROUND, 2000.0)
    assert (nothing.time_s.tolist(), nothing.overlapped_s.tolist()) == ([1e-9], [0.0])


# PyTorch's own kernels, by the cycles of their threads.

IMAGE, PIXELS = (8, 64, 32, 32), 8 * 64 * 32 * 32


def depthwise(kernel, **changes):
    settings = {"out_channels": 64, "groups": 64, "kernel_size": kernel, "padding": kernel // 2, "bias": False}
    return Operation("conv2d", [IMAGE], settings).replace(**changes)


def cycles(operation, clock_mhz=2000.0):
    """Cycles of a lane for the compute of an operation."""
    return least(operation, clock_mhz)[0] * LANES * clock_mhz / 2000.0


def more_cycles(operation):
    return cycles(operation.replace(mode="training")) - cycles(operation)


POOL = Operation("max_pool2d", [IMAGE], {"kernel_size": 3, "stride": 2, "padding": 1})


def adaptive(side):
    return Operation("adaptive_avg_pool2d", [(8, 64, 8, 8)], {"output_size": side})


def batch_norm(channels):
    return Operation("batch_norm", [(8, channels, 32, 32)], mode="training")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param(depthwise(3), PIXELS * (176 + 13.2 * 9), id="a window that is unrolled"),
        pytest.param(depthwise(5), PIXELS * (176 + 13.2 * 25), id="the largest that is unrolled"),
        pytest.param(depthwise(7), PIXELS * 21.6 * 49, id="a window that is not"),
        pytest.param(POOL, PIXELS / 4 * 54.6 * 9, id="a window for each output"),
        pytest.param(adaptive(1), 8 * 64 * 60 * 128, id="channels of images"),
        pytest.param(adaptive(6), 8 * 64 * 650 * 128, id="channels of images by blocks"),
        # Each channel is reduced on one multiprocessor: 4 on 10 keep one busy once, 40 four times.
        pytest.param(batch_norm(4), 8 * 32 * 32 * 1 * 4.4 * 1280, id="channels on one multiprocessor"),
        pytest.param(batch_norm(40), 8 * 32 * 32 * 4 * 4.4 * 1280, id="four channels on one multiprocessor"),
    ],
)
def test_cycles_of_a_forward(operation, expected):
    assert cycles(operation) == pytest.approx(expected)
    assert cycles(operation, 1000.0) == pytest.approx(expected)


def test_cycles_of_a_backward():
    """The gradient of a depthwise weight has a block for each position; that of a pooling reads a window per input."""
    assert more_cycles(depthwise(3)) == pytest.approx(PIXELS * (290 + 41 * 9 + 39 * 9) + 64 * 9 * 1150 * 128)
    assert more_cycles(POOL) == pytest.approx(PIXELS * (604 + 17 * 9 / 4))
    # A pooling reads its image once and writes a number and its place for each output.
    assert least(POOL)[1] == pytest.approx((4 * PIXELS + (4 + 8) * PIXELS / 4) / REACHED)


def test_other_libraries_compute_depthwise_convolutions_in_half_precision_and_on_other_boards():
    """cuDNN in fp16, where memory decides, and MIOpen on AMD's boards."""
    assert cycles(depthwise(7, precision="fp16")) < cycles(depthwise(7)) / 20
    on_amd = LeastTimes.of([depthwise(7)], find_gpu("MI210"), 1700.0)
    assert on_amd.compute_s < on_amd.memory_s


@pytest.mark.parametrize(
    ("gpu", "shape", "measured_us"),
    [
        ("A30", (32, 56, 56, 96), 1348),
        ("A30", (32, 56, 56, 128), 1330),
        ("A30", (32, 28, 28, 512), 561),  # a quarter of the rows
        ("RTX 2080 Ti", (32, 56, 56, 96), 1264),
    ],
)
def test_the_gradients_of_a_layer_norm_wait_for_all_rows_in_turn(gpu, shape, measured_us):
    """Device times of the loops of nicolai2025; memory alone takes 363 to 556 us."""
    board = find_gpu(gpu)
    norm = Operation("layer_norm", [shape], {"normalized_shape": shape[-1:]}, mode="training")
    found = LeastTimes.of([norm, norm.replace(mode="inference")], board, float(board.boost_clock_mhz))
    assert found.time_s[0] == pytest.approx(measured_us * 1e-6, rel=0.1)
    assert found.memory_s[0] < found.time_s[0] > 3 * found.time_s[1]
    # Rows that are wide hide behind the memory.
    wide = Operation("layer_norm", [(8, 2048, 4096)], {"normalized_shape": (4096,)}, mode="training")
    least_s = LeastTimes.of([wide], board, float(board.boost_clock_mhz))
    assert least_s.time_s == pytest.approx(least_s.memory_s, rel=0.05)


# Bounds: launches of kernels, and the rates of data sheets.


A30 = find_gpu("A30")  # It has 10.3 TFLOP/s in fp32 and 933 GB/s at 1440 MHz.
TINY = Operation("add", [(8,)])
LINEAR, LINEAR_S = Operation("linear", [(4096, 4096)], {"out_features": 4096}), 2 * 4096**3 / 10.3e12


def work(operation, ratio=0.5):
    """Half of the time that the data sheet allows, at any clock, unless another ratio is given."""
    return Work.of([operation], A30, 1440.0, np.array([ratio]), PRIOR_ENERGY)


def conv(kernel, stride=1):
    window = {"kernel_size": kernel, "stride": stride, "padding": kernel // 2}
    return Operation("conv2d", [(32, 64, 56, 56)], {"out_channels": 64, "bias": False, **window})


def attention(causal):
    return Operation("attention", [(1, 16, 4096, 128)] * 3, {"causal": causal}, precision="bf16")


def relu(mebibytes):
    """It reads and writes half of these each."""
    return Operation("relu", [(mebibytes * 2**18,)], precision="fp16")


CONV_S = 2 * 32 * 56**2 * 64 * 64 / 10.3e12  # with a window of one pixel
# 16 heads, 4096 x 4096 pairs, four FLOPs for each of 128 elements, at 989.4 TFLOP/s.
ATTENTION_S = 16 * 4096**2 * 4 * 128 / 989.4e12


@pytest.mark.parametrize(
    ("operation", "gpu", "compute_s", "fixed_s"),
    [
        # The shortest layers that were published of an A100 (vidur2024) and of others (aiconfigurator2026, miopen2024).
        *((TINY, name, None, 2.0e-6) for name in ("A100 PCIe 40GB", "MI210", "P4")),
        *((TINY, name, None, s) for name, s in (("L40S", 1.7e-6), ("H100 SXM", 1.5e-6), ("B200", 1.6e-6))),
        # A launch for each kernel. A step of the optimizer has no backward, and dropout does nothing in inference.
        (TINY.replace(mode="training"), "A30", None, 4e-6),
        (Operation("sgd_step", [(8,)], mode="training"), "A30", None, 2e-6),
        (Operation("dropout", [(8,)], {"p": 0.5}), "A30", 0.0, 0.0),
        # 2 x 4096^3 FLOPs; and 4 bytes each of 4096 x 4096 inputs, weights, outputs, and 4096 of the bias.
        (LINEAR, "A30", LINEAR_S, 4 * (3 * 4096**2 + 4096) / 933e9),
        # Transforms save multiplications: 28 x 28 outputs of 5 x 5 products each, for 32 x 17 complex ones of four.
        (conv(1), "A30", CONV_S, None),
        (conv(3), "A30", 9 * CONV_S / 4, None),
        (conv(5), "A30", 25 * CONV_S / (28**2 * 5**2 / (4 * 32 * 17)), None),
        (conv(3, stride=2), "A30", 9 * CONV_S / 4, None),  # a quarter of the outputs, and no transform
        # Of the pairs, a mask leaves 4097 / 2 keys in the mean.
        (attention(causal=False), "H100 SXM", ATTENTION_S, None),
        (attention(causal=True), "H100 SXM", ATTENTION_S * 4097 / 8192, None),
        # 32, 144 and 400 MiB beside 96 MiB of L2 of an L40S: it serves all of them, some (up to three times
        # its size), and none. Of a chip whose cache was not measured, memory is as quick as its data sheet.
        (relu(32), "L40S", None, 32 * 2**20 / 864e9 / 6.6),
        (relu(144), "L40S", None, 144 * 2**20 / 864e9 * (144 / 288) ** 0.9),
        (relu(400), "L40S", None, 400 * 2**20 / 864e9),
        (relu(1), "P4", None, 2**20 / 192e9),
    ],
    ids=str,
)
def test_bounds_by_hand(operation, gpu, compute_s, fixed_s):
    found = Bounds.of([operation], find_gpu(gpu))
    for least_s, expected_s in ((found.compute_s, compute_s), (found.fixed_s, fixed_s)):
        assert expected_s is None or least_s == pytest.approx([expected_s], rel=1e-3)


def test_an_impossible_time_is_raised_to_its_bound_at_any_clock_and_a_possible_one_is_left():
    """A launch takes as long at any clock, and draws nothing more."""
    free, slow, tiny = work(LINEAR), work(LINEAR, ratio=2.0), work(TINY)
    assert free.device_s < LINEAR_S
    for clock in (1440.0, 720.0, 360.0):
        bounded, launched = free.bounded([LINEAR]).at(clock), tiny.bounded([TINY]).at(clock)
        assert bounded[0] == pytest.approx(np.maximum(free.at(clock)[0], LINEAR_S * 1440 / clock))
        assert slow.bounded([LINEAR]).at(clock)[0].tolist() == slow.at(clock)[0].tolist()
        assert launched == (pytest.approx([2e-6]), pytest.approx(tiny.at(clock)[1]))


def test_bounds_are_shared_and_moved_with_their_operations():
    """The first layer pays two thirds of its work. A factor above one does not raise the bound."""
    bounded, second = work(LINEAR).bounded([LINEAR]), np.array([False, True])
    assert bounded.scaled_by(2 / 3, 1.0).device_s == pytest.approx([2 / 3 * LINEAR_S])
    assert bounded.scaled_by(4.0, 1.0).bounds.compute_s == pytest.approx(bounded.bounds.compute_s)
    spread = bounded.scatter(second)
    assert np.isnan(spread.device_s[0])
    tiny = work(TINY).bounded([TINY]).scatter(~second)
    assert tiny.merge(spread).device_s == pytest.approx([2e-6, LINEAR_S])
    without = replace(bounded, least_compute_s=0.0, least_fixed_s=0.0)
    assert without.scatter(second).device_s[1] == work(LINEAR).device_s[0]
