"""The kernels of operations, with sizes, FLOPs and bytes multiplied out by hand."""

import pytest

from joulecast.operations.operation import Operation
from joulecast.predictors.model.work import ATTENTION, CONVOLUTION, DECODING, EXPERTS, PRODUCT, Work

LINEAR = Operation("linear", [(4, 8)], {"out_features": 16, "bias": False}, precision="bf16")
CONV = Operation("conv2d", [(2, 6, 5, 5)], {"out_channels": 4, "kernel_size": 3, "groups": 2, "bias": False})
# Four heads of queries share one of keys.
SHARED = Operation("attention", [(2, 8, 6, 16), *[(2, 2, 6, 16)] * 2], precision="bf16")
CAUSAL = SHARED.with_attributes(causal=True)


def strided(kernel, direction):
    window = {"kernel_size": kernel, "padding": kernel // 2, "stride": 2, "bias": False, "direction": direction}
    return Operation("conv2d", [(2, 4, 8, 8)], {"out_channels": 6, **window}, precision="fp16")


def attention(
    queries, keys, *, heads=1, cached_heads=1, sequences=1, implementation="sglang", mode="inference", **more
):
    shapes = [(sequences, heads, queries, 64), *[(sequences, cached_heads, keys, 64)] * 2]
    return Operation("attention", shapes, {"implementation": implementation, **more}, precision="bf16", mode=mode)


def experts(tokens, size=7168, **attributes):
    attributes = {"intermediate": 2048, "top_k": 8, "experts": 256, **attributes}
    return Operation("experts", [(tokens, size)], attributes, precision="bf16")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (LINEAR, {"group": PRODUCT, "rows": 4, "columns": 16, "reduction": 8, "flops": 2 * 4 * 16 * 8}),
        # Input 4 x 8, weights 8 x 16 and output 4 x 16, each of two bytes; a loop holds several of the weights.
        (LINEAR, {"moved_bytes": 2 * (32 + 128 + 64), "held_bytes": 2 * 128, "passed_bytes": 0}),
        # In fp8 a kernel before quantizes the input. The output has 16 bits.
        (LINEAR.replace(precision="fp8"), {"passed_bytes": 32 * (2 + 1), "moved_bytes": 32 + 128 + 2 * 64}),
        # 2 images of 3 x 3 positions; in each of 2 groups 2 channels from 3 channels in a window of 9.
        (CONV, {"group": CONVOLUTION, "batch": 2, "rows": 18, "columns": 2, "reduction": 27}),
        (CONV, {"flops": 2 * 2 * 18 * 2 * 27, "moved_bytes": 4 * (2 * 6 * 25 + 2 * 4 * 9 + 4 * 27)}),
        # 2 x 8 x 8 positions of four channels meet a quarter of a window of 9 pixels, or one pixel, of six channels;
        # the gradient of 6 x 36 weights, over 2 x 4 x 4 positions.
        (strided(3, "input_gradient"), {"rows": 128, "columns": 4, "reduction": 13.5, "flops": 2 * 32 * 6 * 36}),
        (strided(1, "input_gradient"), {"rows": 128, "columns": 4, "reduction": 6}),
        (strided(3, "weight_gradient"), {"rows": 6, "columns": 36, "reduction": 32, "flops": 2 * 32 * 6 * 36}),
        # A product has 4 x 6 rows over 6 keys; a key and a value have 32 elements.
        (SHARED, {"group": ATTENTION, "batch": 4, "rows": 24, "columns": 32, "reduction": 6, "sharing": 4}),
        (SHARED, {"flops": 2 * (2 * 8 * 6 * 6) * 32, "span": 6}),
        # Of 1 to 6 keys, 3.5 in the mean.
        (CAUSAL, {"reduction": 3.5, "flops": 2 * 2 * 8 * 21 * 32, "span": 6}),
        # The backward of attention has five products where the forward has two.
        (SHARED.replace(mode="training"), {"flops": [2 * 576 * 32, 5 * 576 * 32], "columns": [32, 5 * 16]}),
        (CAUSAL.replace(mode="training"), {"flops": [2 * 336 * 32, 5 * 336 * 32], "columns": [32, 5 * 16]}),
        # Kernels of their own sum gradients in fp32: 16-bit results and their gradients are read; sums are set to zero,
        # read and written in 16 bits.
        (
            attention(128, 128, implementation="pytorch", mode="training"),
            {"passed_bytes": [0, 128 * 64 * (2 + 2 + 4 + 4 + 2)]},
        ),
        # One query for each sequence is decoding. Heads that share keys read them once.
        (attention(1, 100, heads=8, cached_heads=2, sequences=2), {"group": DECODING, "batch": 4, "rows": 4}),
        (attention(1, 100, heads=32, cached_heads=4, sequences=2), {"held_bytes": 2 * 4 * 100 * 128 * 2}),
        (
            attention(1, 100, heads=32, cached_heads=4, sequences=2, cache_precision="fp8"),
            {"held_bytes": 2 * 4 * 100 * 128},
        ),
        # The last 20 queries see the last 20 + 9 keys, each 10 of them.
        (attention(20, 100, causal=True, window=10), {"held_bytes": 29 * 128 * 2, "reduction": 10}),
        (attention(3, 5), {"reduction": 5}),
        (attention(4, 4, causal=True), {"reduction": (1 + 2 + 3 + 4) / 4}),
        (attention(2, 5, causal=True), {"reduction": (4 + 5) / 2}),
        (attention(4, 4, causal=True, window=2), {"reduction": (1 + 2 + 2 + 2) / 4}),
        (attention(2, 6, causal=True, window=3), {"reduction": 3}),
        (attention(1, 9), {"reduction": 9}),
        (attention(1, 9, window=4), {"reduction": 4}),
        # Both experts get all ten tokens. Gate and up projection are one product of 64 columns.
        (
            experts(10, 16, intermediate=32, top_k=2, experts=2),
            {
                "group": [EXPERTS] * 2,
                "batch": [2, 2],
                "rows": [10, 10],
                "columns": [64, 16],
                "reduction": [16, 32],
                "flops": [2 * 20 * 64 * 16, 2 * 20 * 16 * 32],
                "held_bytes": [2 * 2 * 64 * 16, 2 * 2 * 16 * 32],
            },
        ),
        # Few tokens keep few experts busy.
        (experts(1), {"batch": [8, 8], "rows": [1, 1]}),
        (experts(65_536), {"batch": [256, 256], "rows": [2048, 2048]}),
        (Operation("dropout", [(4, 8)], {"p": 0.5}), {"place": []}),
    ],
    ids=str,
)
def test_kernels_of_an_operation(operation, expected):
    work = Work.of([operation])
    for name, values in expected.items():
        assert getattr(work, name).tolist() == pytest.approx(values if isinstance(values, list) else [values], rel=1e-3)


def test_kernels_stand_in_the_order_of_their_operations():
    relu = Operation("relu", [(4, 8)], mode="training")
    assert Work.of([relu, SHARED.replace(mode="training"), relu]).place.tolist() == [0, 1, 1, 2]


def test_triton_passes_over_rows_of_experts_on_other_gpus():
    # A row is written as zeros by both products, and read by the activation and the sum: of two bytes, 2 x 2048 and
    # 7168 elements each time, and 2048 results of the activation.
    size = {"tokens": 65_536, "expert_parallel": 64}
    triton, flashinfer = (Work.of([experts(**size, **more)]) for more in ({}, {"implementation": "flashinfer"}))
    elsewhere = 65_536 * 8 * (1 - 1 / 64)
    moved = elsewhere * 2 * (2 * 2 * 2048 + 2048 + 2 * 7168)
    assert triton.passed_bytes.sum() - flashinfer.passed_bytes.sum() == pytest.approx(moved, rel=0.01)
