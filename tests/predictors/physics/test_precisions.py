"""Where TF32 is allowed, the quicker of TF32 and fp32 counts; Pascal computes half precision on its fp32 units."""

from dataclasses import replace

import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.precisions import fp64_in_fp32, in_fp32, tf32_in_fp32, without_tf32
from joulecast.zoo.catalogue import find_predictor

CONV = Operation("conv2d", [(32, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3, "padding": 1}, precision="tf32")
RELU = Operation("relu", [(32, 64, 56, 56)])
LINEAR = Operation("linear", [(8192, 8192)], {"out_features": 8192}, precision="fp16")
ENTRIES = ("any-gpu/boosting", "any-gpu/transformer")


def test_lists_in_fp32():
    listed = OperationList.of([RELU, CONV, LINEAR])
    assert in_fp32(listed) == (RELU, replace(CONV, precision="fp32"), replace(LINEAR, precision="fp32"))
    assert without_tf32(listed) == (RELU, replace(CONV, precision="fp32"), LINEAR)
    allowed = replace(RELU, precision="tf32")
    places, always, operations = tf32_in_fp32(OperationList([*listed, allowed]))
    assert places.tolist() == [False, True, False, True]
    assert always.tolist() == [False, False, False, True]  # relu has no kernels for tensor cores
    assert operations == (replace(CONV, precision="fp32"), RELU)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("gpu", ["A30", "A100 PCIe 40GB", "RTX 4090", "L4", "H100 SXM", "A2"])
def test_a_permission_for_tf32_never_costs_time(gpu, entry):
    """Where both are allowed, cuDNN chooses; the list has convolutions for which either is quicker."""
    channels, sizes = (16, 64, 256), (7, 28, 112)
    allowed = [
        Operation(
            "conv2d",
            [(8, c, size, size)],
            {"out_channels": c, "kernel_size": kernel, "padding": kernel // 2, "groups": groups},
            precision="tf32",
        )
        for c in channels
        for size in sizes
        for kernel in (1, 3, 5)
        for groups in (1, c)
    ]
    operations = find_predictor(gpu, "inference", entry).operations
    with_tf32 = operations.predict(allowed).device_time_s
    in_fp32_only = operations.predict([replace(each, precision="fp32") for each in allowed]).device_time_s
    assert (with_tf32 <= in_fp32_only * (1 + 1e-9)).all()
    if gpu == "RTX 4090":  # Its data sheet gives both the same rate.
        assert with_tf32 == pytest.approx(in_fp32_only)
    else:
        assert (with_tf32 < 0.9 * in_fp32_only).any()


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("gpu", ["P4", "P100 PCIe", "P100 SXM2"])
def test_half_precision_without_tensor_cores_is_fp32_with_half_the_bytes(gpu, entry):
    """The rates of the data sheet are equal (cuBLAS accumulates in fp32), so a large product takes as long."""
    found = find_gpu(gpu)
    assert found.peak_flops["fp16"] == found.peak_flops["fp32"]
    operations = find_predictor(gpu, "inference", entry).operations
    pair = operations.predict([LINEAR, replace(LINEAR, precision="fp32")])
    half_s, full_s = pair.device_time_s
    assert half_s == pytest.approx(full_s, rel=0.1 if entry == "any-gpu/boosting" else 0.6)


def test_only_fp64_is_taken_for_fp32():
    operations = [Operation("relu", [(8, 8)], precision=precision) for precision in ("fp64", "bf16", "fp32")]
    found = fp64_in_fp32(OperationList(operations))
    assert [operation.precision for operation in found] == ["fp32", "bf16", "fp32"]
    without = OperationList(operations[1:])
    assert fp64_in_fp32(without) is without
