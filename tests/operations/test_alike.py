"""Many operations counted together get the very numbers that each gets alone."""

from __future__ import annotations

import numpy as np
import pytest
from test_costs_by_hand import IDS, ROWS

import joulecast
from joulecast import Operation
from joulecast.operations.alike import AlikeOperations, alike_groups

COMPARE_SIZES = {"grouped_linear", "experts", "lstm", "gru", "rnn", "cdist", "sort", "fft"}
"""Kinds whose rules choose by sizes what to compute. They have to be counted one by one."""


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("kind", "case"), ROWS, ids=IDS)
def test_costs_of_every_kind(kind, case, mode):
    """The arithmetic by hand holds for columns of sizes; a rule that cannot do columns says so."""
    operation = Operation(kind, case.shapes, case.attributes, mode=mode)
    alike = AlikeOperations([operation] * 3)
    if kind in COMPARE_SIZES:
        with pytest.raises((TypeError, ValueError)):
            _ = alike.flops, alike.bytes_read, alike.product, alike.steps
        return
    for together, by_hand in zip(
        (alike.flops, alike.bytes_read, alike.bytes_written), getattr(case, mode), strict=True
    ):
        assert np.broadcast_to(together, 3).tolist() == [by_hand] * 3


def test_each_keeps_its_own_sizes():
    """Two linear layers of different sizes, each by its own arithmetic, in the order of the operations."""
    linear = [Operation("linear", [(2, 3)], {"out_features": 4}), Operation("linear", [(6, 5)], {"out_features": 7})]
    alike = AlikeOperations(linear)
    assert alike.flops.tolist() == [2 * 2 * 3 * 4, 2 * 6 * 5 * 7]
    assert alike.bytes_read.tolist() == [4 * (6 + 12 + 4), 4 * (30 + 35 + 7)]
    assert alike.bytes_written.tolist() == [4 * 8, 4 * 42]


def test_a_broadcast_input_concerns_its_own_operation_only():
    one, other = (
        Operation("mul", [(2, 3), (2, 3)], mode="training"),
        Operation("mul", [(2, 3), (1, 3)], mode="training"),
    )
    # Gradients of both inputs and the output; where an input is broadcast, its gradient is first written in full.
    assert AlikeOperations([one, other]).bytes_written.tolist() == [4 * (12 + 6), 4 * (9 + 6 + 6)]


def test_groups_differ_in_sizes_alone():
    relu, wide = Operation("relu", [(2, 3)]), Operation("relu", [(7, 9)])
    conv = {"out_channels": 8, "kernel_size": 3, "padding": 1}
    others = [
        Operation("relu", [(2, 3)], precision="fp16"),
        Operation("relu", [(2, 3)], mode="training"),
        Operation("relu", [(2, 3, 4)]),
        Operation("conv2d", [(1, 3, 8, 8)], conv),
        Operation("conv2d", [(1, 3, 8, 8)], {**conv, "stride": 2}),
        Operation("conv2d", [(1, 3, 8, 8)], {**conv, "bias": False}),
    ]
    more = Operation("conv2d", [(2, 5, 9, 8)], {**conv, "out_channels": 16})
    assert alike_groups([relu, *others, wide, more]) == [[0, 7], [1], [2], [3], [4, 8], [5], [6]]


def test_what_does_not_fit_into_64_bits_is_told():
    """2^31 x 2^31 elements of a product would overflow; 2^30 bytes do not."""
    large, small = (Operation("matmul", [(side, 64), (64, side)]) for side in (2**31 - 1, 2**14))
    assert AlikeOperations([large, small]).fits.tolist() == [False, True]


def test_networks_as_a_whole():
    """Every operation of some networks, one by one and together."""
    operations = [
        operation
        for name, shape in [
            ("mobilenet_v3_small", (3, 3, 224, 224)),
            ("swin_t", (2, 3, 224, 224)),
            ("bert_base", (2, 77)),
        ]
        for mode in ("inference", "training")
        for operation in joulecast.extract(name, shape, mode=mode).operations
    ]
    for places in alike_groups(operations):
        some = [operations[place] for place in places]
        alike = AlikeOperations(some)
        for name in ("flops", "bytes_read", "bytes_written", "input_size", "steps"):
            expected = [getattr(operation, name) for operation in some]
            assert np.broadcast_to(getattr(alike, name), len(some)).tolist() == expected
