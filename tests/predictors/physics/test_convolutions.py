"""FLOPs and bytes of convolutions by the algorithms of cuDNN, against arithmetic by hand."""

import math

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.convolutions import CONVOLUTION_NAMES, dense_convolutions
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features

A30, V100 = find_gpu("A30"), find_gpu("V100-PCIE-32GB")  # 56 and 80 multiprocessors; ROUND has 10.
OVER_IMPLICIT = [name for name in CONVOLUTION_NAMES if name.endswith("over_implicit")]
# FLOPs of a step of blocks of 128 x 64 and 128 x 32 outputs.
WIDE, NARROW = 2 * 128 * 64, 2 * 128 * 32


def conv(shape, channels, precision="fp32", mode="inference", **attributes):
    settings = {"out_channels": channels, "kernel_size": 3, "padding": 1, "bias": False, **attributes}
    return Operation("conv2d", [shape], settings, precision=precision, mode=mode)


def point(shape, channels, precision="fp32", **attributes):
    return conv(shape, channels, precision, kernel_size=1, padding=0, **attributes)


def least(operation, gpu=A30):
    return OperationList([operation]).derived(dense_convolutions).least(gpu)


def seen(operation, gpu=A30):
    return dict(zip(CONVOLUTION_NAMES, features([operation], gpu)[:, 0].tolist(), strict=True))


def features(operations, gpu=A30):
    """Shape (names, operations)."""
    return relative_features(operations, gpu)[:, [RELATIVE_NAMES.index(name) for name in CONVOLUTION_NAMES]].T


def cube_root(*values):
    return sum(value**3 for value in values) ** (1 / 3)


# Operation, GPU, FLOPs of the forward and of the gradient of the input, elements of four bytes, kernels in turn.
WORK = {
    # 256 positions, 32 to 64 channels: blocks of 128 x 32, which compute at 0.525 of the peak, for two waves.
    "implicit": (
        *(point((1, 32, 16, 16), 64), ROUND, 20 * NARROW * (32 + 8) / 0.525, 20 * NARROW * (64 + 8) / 0.525),
        *(32 * 256 + 64 * 256 + 32 * 64, False),
    ),
    # 196 x 2 blocks of 128 x 64 in 7 waves. The gradient has four times the positions, each meeting a quarter of the
    # window.
    "a stride": (
        *(conv((32, 128, 56, 56), 128, stride=2), A30),
        *(7 * 56 * WIDE * (9 * 128 + 8) / 0.75, 28 * 56 * WIDE * (9 * 128 / 4 + 8) / 0.75),
        *(32 * 128 * (56**2 + 28**2) + 9 * 128**2, False),
    ),
    # Winograd in one kernel. NeuSight recorded a grid of 39 x 2 x 1 for 3 images of 12 x 12 and 400 channels: 13 x 3
    # blocks of 32 channels. 78 blocks, of which 80 multiprocessors compute one each in the time of two.
    "fused": (
        *(conv((3, 659, 12, 12), 400), V100, 160 * 2 * 16 * 32 * 32 * (659 + 8) / 0.5, None),
        *(3 * 659 * 144 + 3 * 400 * 144 + 659 * 400 * 9, False),
    ),
    # Winograd in separate kernels: 36 products of 48 x 16 squares and 256 channels, in 44 waves.
    "separate": (
        *(conv((46, 256, 16, 16), 256), ROUND, *[440 * 2 * 128**2 * (256 + 8) / 0.85] * 2),
        *(2 * 46 * 256 * 256 + 9 * 256 * 256 + 2 * 36 * (48 * 16 * 512 + 256 * 256), True),
    ),
    # Tensor cores: 256 positions in two blocks of 128 x 64, one wave, at 0.6 of the peak.
    "tensor cores, one pixel": (
        *(point((1, 32, 16, 16), 64, "tf32"), ROUND, 10 * WIDE * (32 + 64) / 0.6, 10 * WIDE * (64 + 64) / 0.6),
        *(256 * (32 + 64) + 32 * 64, False),
    ),
    # Images of 16 x 16 and results of 16 x 15 pixels pass four times: they are transposed, too.
    "tensor cores, two pixels": (
        *(conv((1, 32, 16, 16), 64, "tf32", kernel_size=(1, 2), padding=0), ROUND),
        *(10 * WIDE * (64 + 64) / 0.75, 10 * WIDE * (128 + 64) / 0.75, 4 * (256 * 32 + 240 * 64) + 64 * 64, False),
    ),
    # Those that a stride thins out pass twice.
    "tensor cores, a stride": (
        *(point((32, 64, 56, 56), 128, "tf32", stride=2), A30, 7 * 56 * WIDE * (64 + 64) / 0.6, None),
        *(2 * 32 * (64 * 56**2 + 128 * 28**2) + 64 * 128, False),
    ),
    # 32 x 49 positions and 512 channels: 13 x 8 blocks of 128 x 64 in two waves, each of 64 steps more.
    "tensor cores, whole waves": (
        *(conv((32, 256, 7, 7), 512, "tf32"), A30, 2 * 56 * WIDE * (9 * 256 + 64) / 0.75, None),
        *(4 * 32 * 49 * (256 + 512) + 9 * 256 * 512, False),
    ),
    # A window of one pixel loses 1.6 where loads of 49 positions are not aligned.
    "tensor cores, odd positions": (
        *(point((32, 256, 7, 7), 512, "tf32"), A30, 2 * 56 * WIDE * (256 + 64) / 0.6 * 1.6, None),
        *(32 * 49 * (256 + 512) + 256 * 512, False),
    ),
    "tensor cores, even positions": (
        *(point((32, 256, 6, 7), 512, "tf32"), A30, 2 * 56 * WIDE * (256 + 64) / 0.6, None),
        *(32 * 42 * (256 + 512) + 256 * 512, False),
    ),
}


@pytest.mark.parametrize(("operation", "gpu", "flops", "back_flops", "elements", "in_turn"), WORK.values(), ids=WORK)
def test_work_by_the_quickest_algorithm(operation, gpu, flops, back_flops, elements, in_turn):
    work = least(operation, gpu)
    assert (work.flops, work.bytes, work.in_turn) == (pytest.approx(flops), 4 * elements, in_turn)
    peak, clock_mhz = gpu.peak_flops[operation.precision], float(gpu.boost_clock_mhz)
    # Blocks read 4 bytes for 128 FLOPs through caches, at 36 bytes per cycle of each multiprocessor.
    memory_s, way = 4 * elements / (0.91 * gpu.memory_bandwidth), 36e6 * gpu.sms * clock_mhz
    parts_s = np.array([flops / peak, memory_s, (4 * elements + flops * 4 / 128) / way])
    # Kernels that run in turn do not overlap.
    times_s = [
        each / peak + memory_s if in_turn else cube_root(each / peak, memory_s) for each in (flops, back_flops or 0)
    ]
    parts_s *= times_s[0] / cube_root(*parts_s[:2])
    for mode, passes in (("inference", 1), ("training", 3)):  # Both gradients are convolutions of the same size.
        found = LeastTimes.of([operation.replace(mode=mode)], gpu, clock_mhz)
        assert [found.compute_s[0], found.memory_s[0], found.cache_s[0]] == pytest.approx((passes * parts_s).tolist())
    for name, seconds in zip(("log_least_way", "log_least_way_back"), times_s[: 1 + bool(back_flops)], strict=False):
        assert seen(operation, gpu)[name] == pytest.approx(math.log(seconds / (operation.flops / peak)))


WINOGRAD, BEYOND = conv((46, 256, 16, 16), 256), conv((64, 64, 12, 12), 32)
FOURIER = [conv((n, c, side, side), c, kernel_size=5, padding=2) for n, c, side in ((64, 64, 12), (16, 32, 28))]
# Operation, algorithm, its FLOPs and those of the implicit one; bytes beside the tensors, None where nothing is written
# in between.
RATIOS = [
    # 92 x 4 blocks of 128 x 64, 46 x 2 x 8 of 32 squares, and 36 x 6 x 2 of 128 x 128.
    (WINOGRAD, "fused", 740 * 2 * 16 * 32 * 32 * (256 + 8) / 0.5, 370 * WIDE * (9 * 256 + 8) / 0.75, None),
    (
        *(WINOGRAD, "separate", 440 * 2 * 128**2 * (256 + 8) / 0.85, 370 * WIDE * (9 * 256 + 8) / 0.75),
        2 * 4 * 36 * (48 * 16 * 512 + 256 * 256),
    ),
    # Images of 12 x 12 take two blocks of 4 x 8 squares each: 128 in 13 waves; 72 blocks of 128 x 32 in eight.
    (BEYOND, "fused", 130 * 2 * 16 * 32 * 32 * (64 + 8) / 0.5, 80 * NARROW * (9 * 64 + 8) / 0.525, None),
    # Images of 12 x 12 and a window of 5 x 5 just fit into 16 x 16: a block of 64 x 64 complex numbers for each of
    # 16 x 9 frequencies, with four times the FLOPs and twice the bytes. 72 blocks of 128 x 64 in eight waves.
    (
        *(FOURIER[0], "fourier", 150 * 4 * 2 * 64 * 64 * (64 + 8) / 0.85, 80 * WIDE * (64 * 25 + 8) / 0.75),
        2 * 2 * 4 * 16 * 9 * (2 * 64 * 64 + 64**2),
    ),
    # Images of 28 x 28 just fit into 32 x 32; 98 blocks of 128 x 32 outputs in ten waves.
    (
        *(FOURIER[1], "fourier", 550 * 4 * 2 * 64 * 64 * (32 + 8) / 0.85, 100 * NARROW * (32 * 25 + 8) / 0.525),
        2 * 2 * 4 * 32 * 17 * (2 * 16 * 32 + 32**2),
    ),
]


@pytest.mark.parametrize(("operation", "name", "flops", "implicit", "more"), RATIOS, ids=lambda each: str(each)[:9])
def test_algorithms_over_the_implicit_one(operation, name, flops, implicit, more):
    """Whole waves of 10 blocks, at 1 TFLOP/s and 91 GB/s."""
    moved = operation.bytes_read + operation.bytes_written
    compute_s, memory_s = flops / 1e12, (moved + (more or 0)) / 0.91e11
    other_s = cube_root(compute_s, memory_s) if more is None else compute_s + memory_s
    expected = math.log(other_s / cube_root(implicit / 1e12, moved / 0.91e11))
    assert seen(operation, ROUND)[f"log_{name}_over_implicit"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "operation",
    [
        conv((32, 64, 56, 56), 64, stride=2),
        conv((32, 64, 56, 56), 64, dilation=2, padding=2),
        point((32, 64, 56, 56), 64),
        conv((32, 64, 56, 56), 64, kernel_size=(1, 3)),
        conv((32, 64, 56, 56), 64, "tf32"),
        # Image and window no longer fit into 32 pixels.
        conv((32, 64, 29, 29), 192, kernel_size=5, padding=2),
    ],
)
def test_what_is_not_transformed(operation):
    found = seen(operation)
    assert [found[name] for name in OVER_IMPLICIT] == [2.0] * 3


@pytest.mark.parametrize(("channels", "outputs", "measured_us"), [(3072, 128, 205), (1824, 76, 124), (1152, 48, 81)])
def test_few_rows_of_one_pixel_take_smaller_blocks(channels, outputs, measured_us):
    """The convolutions of squeeze and excitation, as nicolai2025 measured them in fp32; whole blocks take 2.5 times."""
    operation = point((32, channels, 1, 1), outputs)
    assert least(operation).compute_s[0] * 1e6 == pytest.approx(measured_us, rel=0.4)
    # The times of these loops in TF32 are those of the host: 53 us.
    assert least(operation.replace(precision="tf32")).compute_s[0] < 53e-6
    # A window of more than one pixel computes whole blocks: one image of one pixel as one of four.
    window = [least(conv((32, 512, side, side), 512, "tf32")).compute_s[0] for side in (1, 2)]
    assert window[0] == pytest.approx(window[1])


@pytest.mark.parametrize(("precision", "more"), [("fp16", 3 * 3), ("fp32", 0)])
def test_the_gradients_of_grouped_convolutions_read_transposed_images_on_tensor_cores(precision, more):
    groups = conv((32, 128, 28, 28), 128, precision, groups=4)
    images = {"fp16": 2, "fp32": 4}[precision] * 2 * 32 * 128 * 28 * 28
    before, after = (LeastTimes.of([groups.replace(mode=mode)], A30, 1440.0) for mode in ("inference", "training"))
    added = (after.memory_s[0] - 3 * before.memory_s[0]) * 0.91 * 933e9
    assert added == pytest.approx(more * images, rel=0.1, abs=0.6 * images)


def test_images_of_three_channels_run_on_fp32_pipes_or_are_padded():
    """On tensor cores half precision computes eight channels instead of three; TF32 leaves the image to other pipes."""
    image = conv((32, 3, 224, 224), 64, kernel_size=7, stride=2, padding=3)
    tf32, fp32, half = (least(image.replace(precision=precision)) for precision in ("tf32", "fp32", "fp16"))
    assert tf32 == fp32
    assert half.flops == pytest.approx(56 * 56 * WIDE * (49 * 8 + 64) / 0.75)  # 3,136 blocks


def test_alignment_counts_positions_not_sides():
    assert [seen(conv((8, 64, n, n), 64))["position_alignment"] for n in (7, 14, 28)] == [0, 2, 3]


def test_other_operations_are_unchanged_wherever_they_stand():
    grouped = conv((32, 64, 56, 56), 64, groups=64)
    others = [Operation("relu", [(32, 64, 56, 56)]), grouped, Operation("linear", [(64, 64)], {"out_features": 64})]
    dense = conv((32, 64, 56, 56), 64)
    columns = features([others[0], dense, *others[1:]])
    assert not columns[:, [0, 2, 3]].any()
    assert columns[:, 1].tolist() == pytest.approx(list(seen(dense).values()))
    assert not features(others).any()
