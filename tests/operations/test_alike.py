"""Many operations counted together get the very numbers that each gets alone."""

import hashlib
import json

import numpy as np
import pytest
from test_costs_by_hand import IDS, ROWS

import joulecast
from joulecast import Operation
from joulecast.operations.operation_list import AlikeOperations, Group, OperationList, alike_groups, digests_of

COMPARE_SIZES = {"grouped_linear", "experts", "lstm", "gru", "rnn", "cdist", "sort", "fft"}
"""Kinds whose rules choose by sizes what to compute. They have to be counted one by one."""


def together(operations):
    return AlikeOperations(Group.of(range(len(operations)), operations))


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("kind", "case"), ROWS, ids=IDS)
def test_costs_of_every_kind(kind, case, mode):
    """The arithmetic by hand holds for columns of sizes; a rule that cannot do columns says so."""
    operation = Operation(kind, case.shapes, case.attributes, mode=mode)
    alike = together([operation] * 3)
    if kind in COMPARE_SIZES:
        with pytest.raises((TypeError, ValueError)):
            _ = alike.flops, alike.bytes_read, alike.product, alike.steps
        return
    for counted, by_hand in zip((alike.flops, alike.bytes_read, alike.bytes_written), getattr(case, mode), strict=True):
        assert np.broadcast_to(counted, 3).tolist() == [by_hand] * 3


def test_groups_differ_in_sizes_alone():
    """Twenty sizes of each; two in TF32 are too few for a group."""
    conv = {"out_channels": 8, "kernel_size": 3, "padding": 1}
    of_size = [
        lambda side: Operation("relu", [(2, side)]),
        lambda side: Operation("relu", [(2, side)], precision="fp16"),
        lambda side: Operation("relu", [(2, side)], mode="training"),
        lambda side: Operation("relu", [(2, side, 4)]),
        lambda side: Operation("conv2d", [(1, 3, 8, side)], {**conv, "out_channels": side}),
        lambda side: Operation("conv2d", [(1, 3, 8, side)], {**conv, "stride": 2}),
        lambda side: Operation("conv2d", [(1, 3, 8, side)], {**conv, "bias": False}),
        lambda side: Operation("layer_norm", [(2, side)]),
        lambda side: Operation("layer_norm", [(2, side)], {"normalized_shape": (2, side)}),
    ]
    few = [Operation("conv2d", [(1, 3, 8, side)], conv, precision="tf32") for side in (8, 9)]
    operations = OperationList([make(side) for side in range(5, 25) for make in of_size] + few)
    places = [group.places for group in alike_groups(operations)]
    assert places == [[*range(first, 20 * len(of_size), len(of_size))] for first in range(len(of_size))]


def test_what_does_not_fit_into_64_bits_is_told():
    """2^31 x 2^31 elements of a product would overflow; 2^30 bytes do not."""
    large, small = (Operation("matmul", [(side, 64), (64, side)]) for side in (2**31 - 1, 2**14))
    assert together([large, small]).fits.tolist() == [False, True]


def network_operations():
    """Every operation of some networks. They are made anew, so that nothing is computed yet."""
    shapes = {"mobilenet_v3_small": (3, 3, 224, 224), "swin_t": (2, 3, 224, 224), "bert_base": (2, 77)}
    return OperationList(
        Operation.from_dict(operation.to_dict())
        for name, shape in shapes.items()
        for mode in ("inference", "training")
        for operation in joulecast.extract(name, shape, mode=mode).operations
    )


def test_networks_as_a_whole():
    """Every operation of some networks, one by one and together."""
    groups = alike_groups(network_operations())
    assert sum(len(group.places) for group in groups) > 100
    for group in groups:
        alike = AlikeOperations(group)
        for name in ("flops", "bytes_read", "bytes_written", "input_size", "steps"):
            expected = [getattr(operation, name) for operation in group.operations]
            assert np.broadcast_to(getattr(alike, name), len(expected)).tolist() == expected


def test_digests_are_those_of_each_alone():
    """A digest is of compact JSON with sorted keys, whether it is computed alone or together."""
    sides = range(5, 25)
    norms = [Operation("layer_norm", [(2, side, 4)], {"normalized_shape": (side, 4)}) for side in sides]
    operations = OperationList([*network_operations(), *norms, Operation("dropout", [(3, 4)], {"p": 0.25})])
    alone = [
        hashlib.sha256(json.dumps(each.to_dict(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
        for each in operations
    ]
    assert digests_of(operations) == alone
    assert digests_of(operations) == alone  # once they are known
    assert [operation.digest for operation in operations] == alone
