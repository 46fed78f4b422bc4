"""The kernels of operations, with sizes, FLOPs and bytes multiplied out by hand."""

import numpy as np
import pytest

from joulecast.operations.operation import Operation
from joulecast.predictors.model.work import ATTENTION, CONVOLUTION, DECODING, EXPERTS, PRODUCT, Work


def work_of(kind, shapes, attributes=None, **more):
    return Work.of([Operation(kind, shapes, attributes, **more)])


def test_a_linear_layer_is_one_product():
    work = work_of("linear", [(4, 8)], {"out_features": 16, "bias": False}, precision="bf16")
    assert work.group.tolist() == [PRODUCT]
    assert (work.rows, work.columns, work.reduction, work.flops) == (4, 16, 8, 2 * 4 * 16 * 8)
    # Input 4 x 8, weights 8 x 16 and output 4 x 16, each of two bytes; a loop holds several of the weights.
    assert work.moved_bytes == 2 * (32 + 128 + 64)
    assert work.held_bytes == 2 * 128
    assert work.passed_bytes == 0


def test_in_fp8_a_kernel_before_quantizes_the_input():
    work = work_of("linear", [(4, 8)], {"out_features": 16, "bias": False}, precision="fp8")
    assert work.passed_bytes == 32 * (2 + 1)
    assert work.moved_bytes == 32 + 128 + 2 * 64  # The output has 16 bits.


def test_a_convolution_is_the_product_that_it_implies():
    work = work_of("conv2d", [(2, 6, 5, 5)], {"out_channels": 4, "kernel_size": 3, "groups": 2, "bias": False})
    assert work.group.tolist() == [CONVOLUTION]
    # 2 images of 3 x 3 positions; in each of 2 groups 2 channels from 3 channels in a window of 9.
    assert (work.batch, work.rows, work.columns, work.reduction) == (2, 18, 2, 27)
    assert work.flops == 2 * 2 * 18 * 2 * 27
    assert work.moved_bytes == 4 * (2 * 6 * 25 + 2 * 4 * 9 + 4 * 27)


ATTENTION_SHAPES = [(2, 8, 6, 16), (2, 2, 6, 16), (2, 2, 6, 16)]


def test_attention_is_a_product_over_the_keys_that_a_query_sees():
    work = work_of("attention", ATTENTION_SHAPES, precision="bf16")
    assert work.group.tolist() == [ATTENTION]
    # Four heads of queries share one of keys, so a product has 4 x 6 rows; a key and a value have 32 elements.
    assert (work.batch, work.rows, work.columns, work.reduction, work.sharing) == (4, 24, 32, 6, 4)
    assert work.flops == 2 * (2 * 8 * 6 * 6) * 32


def test_a_causal_mask_is_work_that_is_not_done():
    masked = work_of("attention", ATTENTION_SHAPES, {"causal": True}, precision="bf16")
    assert masked.reduction == 3.5  # 1 to 6 keys
    assert masked.flops == 2 * 2 * 8 * 21 * 32
    assert masked.span == 6


@pytest.mark.parametrize("causal", [False, True])
def test_the_backward_of_attention_has_five_products_where_the_forward_has_two(causal):
    work = work_of("attention", ATTENTION_SHAPES, {"causal": causal}, precision="bf16", mode="training")
    forward, backward = work.flops
    assert backward == 2.5 * forward
    assert work.columns.tolist() == [32, 5 * 16]


def test_one_query_for_each_sequence_is_decoding():
    work = work_of("attention", [(2, 8, 1, 16), (2, 2, 100, 16), (2, 2, 100, 16)], precision="bf16")
    assert work.group.tolist() == [DECODING]
    assert (work.batch, work.rows, work.reduction) == (4, 4, 100)


def test_experts_multiply_the_rows_of_those_that_get_a_token():
    attributes = {"intermediate": 32, "top_k": 2, "experts": 2}
    work = work_of("experts", [(10, 16)], attributes, precision="bf16")
    assert work.group.tolist() == [EXPERTS] * 2
    # Both experts get all ten tokens. Gate and up projection are one product of 64 columns.
    assert work.batch.tolist() == [2, 2]
    assert work.rows.tolist() == [10, 10]
    assert np.column_stack([work.columns, work.reduction]).tolist() == [[64, 16], [16, 32]]
    assert work.held_bytes.tolist() == [2 * 2 * 64 * 16, 2 * 2 * 16 * 32]


def test_kernels_stand_in_the_order_of_their_operations():
    attention = Operation("attention", ATTENTION_SHAPES, precision="bf16", mode="training")
    relu = Operation("relu", [(4, 8)], mode="training")
    assert Work.of([relu, attention, relu]).place.tolist() == [0, 1, 1, 2]


def test_an_operation_that_does_nothing_has_no_kernels():
    assert len(work_of("dropout", [(4, 8)], {"p": 0.5}).place) == 0
