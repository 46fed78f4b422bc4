"""The bytes that each memory level serves, for operations so small that they can be counted by hand."""

import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.memory_traffic import traffic_bytes

FP32_BYTES = 4


def served(kind, shapes, attributes=None):
    """Bytes from shared memory, L1, L2 and DRAM."""
    operation = Operation(kind, shapes, attributes or {}, precision="fp32")
    return tuple(traffic_bytes([operation], ROUND)[0].tolist())


def test_a_window_reads_each_element_several_times_all_but_once_from_l1():
    """4 x 4 elements pooled by 2 x 2 without overlap: 4 outputs of 4 elements each. None is read twice."""
    image = (1, 1, 4, 4)
    assert served("max_pool2d", [image], {"kernel_size": 2}) == (0, 0, 0, (16 + 4) * FP32_BYTES)
    # In steps of 1 there are 3 x 3 outputs, which read 36 elements; the first readings of 16 come from DRAM.
    expected = (0, (36 - 16) * FP32_BYTES, 0, (16 + 9) * FP32_BYTES)
    assert served("max_pool2d", [image], {"kernel_size": 2, "stride": 1}) == expected


def convolution(channels, groups):
    attributes = {"out_channels": channels, "kernel_size": 3, "padding": 1, "groups": groups, "bias": False}
    return served("conv2d", [(1, channels, 8, 8)], attributes)


def test_only_convolutions_with_one_channel_in_each_group_slide():
    """Two channels of 8 x 8, each with a window of 3 x 3: 1152 multiplications, and 128 elements and 18 weights."""
    shared, l1, l2, _ = convolution(2, groups=2)
    assert (shared, l2) == (0, 0)
    assert l1 == (1152 - 128 - 18) * FP32_BYTES
    # With two channels in each of two groups, or a single group, it is a product.
    for channels, groups in ((4, 2), (1, 1), (2, 1)):
        assert convolution(channels, groups)[1] == 0


def test_a_batch_of_products_loads_for_each_of_them():
    """Two products of 8 x 16 by 16 x 8, one tile of 128 x 128 each: all 16 x (8 + 8) elements are loaded once."""
    shared, l1, l2, dram = served("matmul", [(2, 8, 16), (2, 16, 8)])
    loaded = 2 * 16 * (8 + 8) * FP32_BYTES
    assert (l1, l2, dram) == (0, 0, loaded + 2 * 8 * 8 * FP32_BYTES)
    # A thread reads 8 + 8 elements for 64 multiplications; there are 2 x 8 x 8 x 16 of them.
    assert shared == loaded + 2 * 8 * 8 * 16 * 16 / 64 * FP32_BYTES


def test_products_with_fewer_rows_than_a_thread_computes_do_not_use_shared_memory():
    assert served("matmul", [(7, 16), (16, 64)])[0] == 0
    assert served("matmul", [(64, 16), (16, 7)])[0] == 0
    assert served("matmul", [(8, 1), (1, 8)])[0] == pytest.approx((8 + 8 + 8 * 8 * 16 / 64) * FP32_BYTES)
