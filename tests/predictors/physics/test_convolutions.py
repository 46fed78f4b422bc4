"""FLOPs and bytes of convolutions by the algorithms of cuDNN, against arithmetic by hand."""

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.convolutions import CONVOLUTION_NAMES
from joulecast.predictors.physics.features import convolution_features, dense_convolutions
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.roofline import on_tensor_cores, peak_flops

A30, V100, P4 = find_gpu("A30"), find_gpu("V100-PCIE-32GB"), find_gpu("Tesla P4")
SMS, PEAK = 56, 10.3e12


def conv(shape, channels, precision="fp32", mode="inference", **attributes):
    settings = {"out_channels": channels, "kernel_size": 3, "padding": 1, "bias": False, **attributes}
    return Operation("conv2d", [shape], settings, precision=precision, mode=mode)


def least(operation, gpu=A30):
    dense = dense_convolutions(OperationList([operation]))
    return dense.least(gpu, peak_flops(dense.precision, gpu), on_tensor_cores(dense, gpu))


def moved(operation):
    """Bytes of the forward on tensor cores, which is the last algorithm in the list."""
    return dense_convolutions(OperationList([operation])).forward.bytes[-1]


def seen(operation, gpu=A30):
    return {name: float(column[0]) for name, column in convolution_features(OperationList([operation]), gpu).items()}


def test_winograd_in_one_kernel_computes_blocks_beyond_the_edge():
    # NeuSight recorded a grid of 39 x 2 x 1 for 3 images of 12 x 12 and 400 channels: 13 x 3 blocks of 32 channels.
    # 78 blocks, of which 80 multiprocessors compute one each in the time of two.
    work = least(conv((3, 659, 12, 12), 400), V100)
    assert work.flops == pytest.approx(2 * 80 * 2 * 16 * 32 * 32 * (659 + 8) / 0.5)
    assert not work.in_turn
    assert work.bytes == 4 * (3 * 659 * 144 + 3 * 400 * 144 + 659 * 400 * 9)


def test_fourier_is_for_large_windows():
    # AlexNet's second convolution takes 0.29 of the time of its FLOPs on the A30: 407 us.
    alexnet = conv((32, 64, 27, 27), 192, kernel_size=5, padding=2)
    found = seen(alexnet)
    assert found["log_fourier_over_implicit"] < -0.5
    assert found["log_fused_over_implicit"] == found["log_separate_over_implicit"] == 2.0
    assert 300e-6 < LeastTimes.of([alexnet], A30, 1440).time_s[0] < 800e-6
    # Image and window no longer fit into 32 pixels.
    assert seen(conv((32, 64, 29, 29), 192, kernel_size=5, padding=2))["log_fourier_over_implicit"] == 2.0


@pytest.mark.parametrize(
    "operation",
    [
        conv((32, 64, 56, 56), 64, stride=2),
        conv((32, 64, 56, 56), 64, dilation=2, padding=2),
        conv((32, 64, 56, 56), 64, kernel_size=1, padding=0),
        conv((32, 64, 56, 56), 64, kernel_size=(1, 3)),
        conv((32, 64, 56, 56), 64, precision="tf32"),
    ],
)
def test_only_steps_of_one_are_transformed(operation):
    found = seen(operation)
    assert {found[name] for name in CONVOLUTION_NAMES if name.endswith("over_implicit")} == {2.0}


def test_tensor_cores_read_transposed_images():
    wide = conv((32, 64, 56, 56), 128, precision="tf32")
    images, weights = 4 * 32 * 56 * 56 * (64 + 128), 4 * 9 * 64 * 128
    assert moved(wide) == 4 * images + weights
    point = conv((32, 64, 56, 56), 128, precision="tf32", kernel_size=1, padding=0)
    assert moved(point) == images + weights / 9
    thinned = conv((32, 64, 56, 56), 128, precision="tf32", kernel_size=1, padding=0, stride=2)
    assert moved(thinned) == 2 * 4 * 32 * (64 * 56 * 56 + 128 * 28 * 28) + weights / 9


def test_tensor_cores_compute_whole_waves():
    """32 x 49 positions and 512 channels: 13 x 8 blocks of 128 x 64 in two waves, each of 64 steps more."""
    work = least(conv((32, 256, 7, 7), 512, precision="tf32"))
    assert work.flops == pytest.approx(2 * SMS * 2 * 128 * 64 * (9 * 256 + 64) / 0.75)
    assert work.compute_s == pytest.approx(work.flops / A30.peak_flops["tf32"])
    # A window of one pixel reaches 0.6 of the peak, and less by 1.6 where loads of 49 positions are not aligned.
    point, even = (conv((32, 256, n, 7), 512, precision="tf32", kernel_size=1, padding=0) for n in (7, 6))
    assert least(point).flops == pytest.approx(2 * SMS * 2 * 128 * 64 * (256 + 64) / 0.6 * 1.6)
    assert least(even).flops == pytest.approx(2 * SMS * 2 * 128 * 64 * (256 + 64) / 0.6)


@pytest.mark.parametrize(("channels", "outputs", "measured_us"), [(3072, 128, 205), (1824, 76, 124), (1152, 48, 81)])
def test_few_rows_of_one_pixel_take_smaller_blocks(channels, outputs, measured_us):
    """The convolutions of squeeze and excitation, as nicolai2025 measured them in fp32; whole blocks take 2.5 times."""
    operation = conv((32, channels, 1, 1), outputs, kernel_size=1, padding=0)
    assert least(operation).compute_s[0] * 1e6 == pytest.approx(measured_us, rel=0.4)
    # The times of these loops in TF32 are those of the host: 53 us.
    assert least(operation.replace(precision="tf32")).compute_s[0] < 53e-6
    # A window of more than one pixel computes whole blocks: one image of one pixel as one of four.
    window = [least(conv((32, 512, side, side), 512, precision="tf32")).compute_s[0] for side in (1, 2)]
    assert window[0] == pytest.approx(window[1])


def test_the_gradients_of_grouped_convolutions_read_transposed_images():
    groups = conv((32, 128, 28, 28), 128, "fp16", groups=4)
    images = 2 * 2 * 32 * 128 * 28 * 28
    before, after = (LeastTimes.of([groups.replace(mode=mode)], A30, 1440.0) for mode in ("inference", "training"))
    more = (after.memory_s[0] - 3 * before.memory_s[0]) * 0.91 * 933e9
    assert more == pytest.approx(3 * 3 * images, rel=0.1)
    alone = conv((32, 128, 28, 28), 128, "fp32", groups=4)
    before, after = (LeastTimes.of([alone.replace(mode=mode)], A30, 1440.0) for mode in ("inference", "training"))
    assert after.memory_s[0] < 3.2 * before.memory_s[0]


def test_images_of_three_channels_run_on_fp32_pipes_or_are_padded():
    """On tensor cores half precision computes eight channels instead of three; TF32 leaves the image to other pipes."""
    image = conv((32, 3, 224, 224), 64, kernel_size=7, stride=2, padding=3)
    tf32, fp32, half = (least(image.replace(precision=precision)) for precision in ("tf32", "fp32", "fp16"))
    assert tf32 == fp32
    assert half.flops == pytest.approx(56 * SMS * 2 * 128 * 64 * (49 * 8 + 64) / 0.75)  # 3,136 blocks


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_waves_never_make_more_work_cheaper(precision):
    operations = [conv((batch, 64, 14, 14), 128, precision, stride=2) for batch in range(1, 257)]
    assert (np.diff(LeastTimes.of(operations, A30, 1440).time_s) >= -1e-12).all()


def test_gradients_are_products_of_the_same_size():
    operation = conv((32, 64, 56, 56), 128, stride=2)
    once, thrice = least(operation), least(operation.replace(mode="training"))
    assert thrice.flops == pytest.approx(3 * once.flops)
    # The gradient of the input has four times the positions, each meeting a quarter of the window.
    found = seen(conv((32, 128, 56, 56), 128, stride=2))
    assert found["log_least_way_back"] == pytest.approx(found["log_least_way"], abs=0.1)


def test_alignment_counts_positions_not_sides():
    assert [seen(conv((8, 64, n, n), 64))["position_alignment"] for n in (7, 14, 28)] == [0, 2, 3]


def test_other_operations_are_unchanged_wherever_they_stand():
    grouped = conv((32, 64, 56, 56), 64, groups=64)
    others = [Operation("relu", [(32, 64, 56, 56)]), grouped, Operation("linear", [(64, 64)], {"out_features": 64})]
    dense = conv((32, 64, 56, 56), 64)
    columns = np.array(list(convolution_features(OperationList([others[0], dense, *others[1:]]), A30).values()))
    assert not columns[:, [0, 2, 3]].any()
    assert columns[:, 1].tolist() == pytest.approx(list(seen(dense).values()))
    assert not np.array(list(convolution_features(OperationList(others), A30).values())).any()


def test_image_sizes_that_fill_blocks_cost_less_per_output():
    # 8 x 16 outputs are one block of fused Winograd; 9 x 17 need four.
    per_output = [
        float(LeastTimes.of([conv((64, 64, side, 2 * side), 64)], P4, P4.boost_clock_mhz).time_s[0]) / (2 * side**2)
        for side in (8, 9)
    ]
    assert per_output[1] > 1.5 * per_output[0]
