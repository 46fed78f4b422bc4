"""Which operations a prediction asks for instead of those given or beside them, in other precisions and modes.

That training takes no less than its forward and that a mask costs nothing are laws of test_laws.py.
"""

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.fp32_kernels import device_ratio
from joulecast.predictors.physics.variants import (
    fp64_in_fp32,
    in_fp32,
    seen_as,
    tf32_in_fp32,
    with_limits,
    without_tf32,
)
from joulecast.zoo.catalogue import find_predictor

A100, P100 = map(find_gpu, ("A100 PCIe 40GB", "P100 PCIe"))
RELU = Operation("relu", [(32, 64, 56, 56)])
GELU = Operation("gelu", [(1024, 197, 768)], precision="fp16")
LINEAR = Operation("linear", [(8192, 8192)], {"out_features": 8192}, precision="fp16")


def convolution(precision, mode="inference", channels=64, **attributes):
    window = {"out_channels": channels, "kernel_size": 3, "padding": 1, **attributes}
    return Operation("conv2d", [(32, channels, 56, 56)], window, mode=mode, precision=precision)


def attention(causal, mode="inference"):
    return Operation("attention", [(1, 8, 256, 32)] * 3, {"causal": causal}, precision="fp16", mode=mode)


def forwards(*operations):
    return [each.replace(mode="inference") for each in operations]


# Limits.

ARGMAX = Operation("argmax", [(64, 1000)], mode="training")


def test_operations_in_training_are_compared_with_their_forwards_and_others_without_a_mask_with_nothing():
    listed = OperationList([convolution("fp32"), attention(causal=False)])
    alone, masked, trained, _ = with_limits(listed)
    assert (alone is listed, len(masked) + len(trained)) == (True, 0)
    cat = Operation("cat", [(32, 64, 56, 56)] * 2, {"dim": 1}, mode="training")
    known = [convolution("fp32", "training"), cat, ARGMAX, GELU.replace(mode="training")]
    operations, masked, trained, multiples = with_limits(OperationList(known))
    assert [*operations] == [*known, *forwards(*known)]
    assert (masked.tolist(), trained.tolist()) == ([], [0, 1, 2, 3])
    # Gradients of cat are views of the output's, and argmax has none. GELU reads two tensors and writes one.
    assert multiples.tolist() == [2.0, 1.0, 1.0, 2.0]


def test_attention_under_a_mask_is_compared_with_that_without_and_both_with_their_forwards():
    operations, masked, trained, _ = with_limits(OperationList([ARGMAX, attention(causal=True, mode="training")]))
    full = attention(causal=False, mode="training")
    assert [*operations][2:] == [full, *forwards(ARGMAX, attention(causal=True), full)]
    assert (masked.tolist(), trained.tolist()) == ([1], [0, 1, 2])


# Half precision is asked for in fp32, as far as trees were trained on that.


def test_what_moves_bytes_is_looked_up_in_fp32_and_products_as_they_are():
    listed = OperationList([GELU, LINEAR, convolution("fp16"), convolution("fp16", groups=64)])
    assert [o.precision for o in seen_as(listed, A100)] == ["fp32", "fp16", "fp16", "fp32"]
    alone = OperationList([convolution("fp32"), convolution("tf32")])
    assert seen_as(alone, A100) is alone
    # Without tensor cores, half precision is computed as fp32.
    for gpu in (find_gpu("P4"), P100):
        assert {o.precision for o in seen_as(listed, gpu)} == {"fp32"}


@pytest.mark.parametrize(
    ("operation", "gpu", "ratio"),
    [
        pytest.param(convolution("fp16", groups=64), A100, 1.0, id="depthwise"),
        pytest.param(convolution("fp16", "training", groups=64), A100, 3.0, id="depthwise in training"),
        pytest.param(convolution("fp16", channels=2, groups=2), A100, 1.0, id="two channels, each by itself"),
        pytest.param(convolution("fp16", channels=1), A100, 7.0, id="one channel in all is not depthwise"),
        pytest.param(convolution("fp16", groups=8), A100, 7.0, id="groups of channels"),
        pytest.param(convolution("fp32", groups=64), A100, 7.0, id="fp32"),
        pytest.param(convolution("fp16", groups=64), P100, 7.0, id="without tensor cores"),
        pytest.param(GELU, A100, 7.0, id="gelu"),
        pytest.param(LINEAR, A100, 7.0, id="linear"),
    ],
)
def test_depthwise_convolutions_are_bound_by_memory_in_half_precision(operation, gpu, ratio):
    """The learned ratio of 7 does not count for them."""
    assert device_ratio(OperationList([operation]), gpu, np.array([7.0]), True).tolist() == [ratio]


@pytest.mark.parametrize(
    ("kind", "inputs", "mode"),
    [
        pytest.param("relu", 1, "training", id="a backward of its own"),
        pytest.param("cat", 2, "inference", id="a backward that moves bytes, as the forward does"),
        pytest.param("gradient_accumulation", 1, "inference", id="no backward"),
    ],
)
def test_training_is_looked_up_as_inference_where_it_takes_as_long(kind, inputs, mode):
    training = Operation(kind, [(64, 64)] * inputs, mode="training")
    found = seen_as(OperationList([training, RELU, RELU.replace(mode="training")]), A100)
    assert [o.mode for o in found] == [mode, "inference", "training"]


# Where TF32 is allowed, the quicker of TF32 and fp32 counts.


def test_lists_in_fp32():
    tf32, fp32 = convolution("tf32"), convolution("fp32")
    listed = OperationList([RELU, tf32, LINEAR])
    assert in_fp32(listed) == (RELU, fp32, LINEAR.replace(precision="fp32"))
    assert without_tf32(listed) == (RELU, fp32, LINEAR)
    places, always, operations = tf32_in_fp32(OperationList([*listed, RELU.replace(precision="tf32")]))
    assert places.tolist() == [False, True, False, True]
    assert always.tolist() == [False, False, False, True]  # relu has no kernels for tensor cores
    assert operations == (fp32, RELU)
    # Of fp64 alone, fp32 is asked for as well.
    double = RELU.replace(precision="fp64")
    assert fp64_in_fp32(OperationList([double, GELU, RELU])) == (RELU, GELU, RELU)
    assert fp64_in_fp32(listed) is listed


@pytest.mark.parametrize("entry", ["any-gpu/forest", "any-gpu/transformer"])
@pytest.mark.parametrize("gpu", ["A30", "A100 PCIe 40GB", "RTX 4090", "L4", "H100 SXM", "A2"])
def test_a_permission_for_tf32_never_costs_time(gpu, entry):
    """Where both are allowed, cuDNN chooses; the list has convolutions for which either is quicker."""
    allowed = [
        Operation(
            "conv2d",
            [(8, channels, size, size)],
            {"out_channels": channels, "kernel_size": kernel, "padding": kernel // 2, "groups": groups},
            precision="tf32",
        )
        for channels in (16, 64, 256)
        for size in (7, 28, 112)
        for kernel in (1, 3, 5)
        for groups in (1, channels)
    ]
    predictor = find_predictor(gpu, "inference", entry).operations
    with_tf32 = predictor.predict(allowed).device_time_s
    in_fp32_only = predictor.predict([each.replace(precision="fp32") for each in allowed]).device_time_s
    assert (with_tf32 <= in_fp32_only * (1 + 1e-9)).all()
    if gpu == "RTX 4090":  # Its data sheet gives both the same rate.
        assert with_tf32 == pytest.approx(in_fp32_only)
    else:
        assert (with_tf32 < 0.9 * in_fp32_only).any()
