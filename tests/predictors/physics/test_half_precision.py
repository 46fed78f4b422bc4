"""How trees that were trained on fp32 are asked about half precision, and what physics corrects afterwards."""

import numpy as np
import pytest

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.half_precision import device_ratio, seen_as
from joulecast.predictors.physics.least_times import LeastTimes

A100 = find_gpu("A100 PCIe 40GB")
GELU = Operation("gelu", [(1024, 197, 768)], precision="fp16")
LINEAR = Operation("linear", [(1024, 768)], {"out_features": 768}, precision="fp16")
WINDOW = {"out_channels": 64, "kernel_size": 3, "padding": 1}


def convolution(precision: str, mode: str = "inference", **attributes: int) -> Operation:
    return Operation("conv2d", [(32, 64, 56, 56)], {**WINDOW, **attributes}, mode=mode, precision=precision)


def test_what_moves_bytes_is_looked_up_in_fp32_and_products_as_they_are():
    listed = OperationList.of([GELU, LINEAR, convolution("fp16")])
    assert [o.precision for o in seen_as(listed, find_gpu("A100 PCIe 40GB"))] == ["fp32", "fp16", "fp16"]
    alone = OperationList.of([convolution("fp32"), convolution("tf32")])
    assert seen_as(alone, find_gpu("A100 PCIe 40GB")) is alone


@pytest.mark.parametrize("gpu", ["P4", "P100 PCIe"])
def test_without_tensor_cores_half_precision_is_looked_up_in_fp32(gpu):
    listed = OperationList.of([GELU, LINEAR, convolution("fp16"), convolution("fp16", groups=64)])
    assert {o.precision for o in seen_as(listed, find_gpu(gpu))} == {"fp32"}


def corrected(operation: Operation, gpu=A100) -> float:
    return float(device_ratio(OperationList([operation]), gpu, np.array([7.0]), True)[0])


def test_depthwise_convolutions_are_bound_by_memory_in_half_precision():
    one_each = [convolution("fp16", mode, groups=64) for mode in ("inference", "training")]
    assert [corrected(operation) for operation in one_each] == [1.0, 3.0]
    assert corrected(convolution("fp16", groups=8)) == corrected(convolution("fp32", groups=64)) == 7.0
    assert corrected(GELU) == corrected(LINEAR) == 7.0
    assert corrected(one_each[0], find_gpu("P100 PCIe")) == 7.0  # Without tensor cores, it is computed as in fp32.
    assert {o.precision for o in seen_as(OperationList(one_each), A100)} == {"fp32"}


@pytest.mark.parametrize("gpu", ["A100 PCIe 40GB", "RTX 4090", "H100 SXM"])
def test_a_step_of_decoding_is_bound_by_its_cache(gpu):
    keys = (1, 32, 4096, 128)
    step = Operation("attention", [(1, 32, 1, 128), keys, keys], precision="bf16")
    found = find_gpu(gpu)
    least = LeastTimes.of([step], found, found.boost_clock_mhz)
    assert least.memory_s[0] > least.compute_s[0]
    assert least.time_s[0] < 1.5 * least.memory_s[0]


def test_an_a100_feeds_its_tensor_cores_worse_than_geforce():
    """2048 FLOPs per cycle and multiprocessor against 512, with the same loads. An H100 loads for groups of warps."""
    shares = []
    for name in ("A100 PCIe 40GB", "H100 SXM", "A10", "RTX 3090"):
        gpu = find_gpu(name)
        large = Operation("linear", [(128 * gpu.sms * 8, 4096)], {"out_features": 4096}, precision="bf16")
        least = LeastTimes.of([large], gpu, gpu.boost_clock_mhz)
        shares.append(large.flops / gpu.peak_flops["bf16"] / least.time_s[0])
    assert shares[0] < 0.6 < shares[1] < 0.8 < shares[2] < shares[3]


def test_a_convolution_of_one_channel_in_all_is_not_depthwise():
    one = Operation("conv2d", [(32, 1, 56, 56)], {**WINDOW, "groups": 1}, precision="fp16")
    assert corrected(one) == 7.0
    two = Operation("conv2d", [(32, 2, 56, 56)], {**WINDOW, "out_channels": 2, "groups": 2}, precision="fp16")
    assert corrected(two) == 1.0


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
    forward = Operation("relu", [(64, 64)])
    both = forward.replace(mode="training")
    found = seen_as(OperationList.of([training, forward, both]), A100)
    assert [o.mode for o in found] == [mode, "inference", "training"]
