"""OperationList: results that depend on the operations alone are computed once, without any other difference."""

import copy

import pytest

from joulecast import Operation
from joulecast.errors import InputError
from joulecast.operations.operation_list import OperationList, checked_operations, operation_text
from joulecast.predictors.physics.operation_numbers import numbers_of

OPERATIONS = [
    Operation("conv2d", [(8, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3, "padding": 1}, precision="tf32"),
    Operation("linear", [(128, 768)], {"out_features": 3072}, precision="fp16"),
    Operation("matmul", [(64, 49, 32), (64, 32, 49)]),
    Operation("relu", [(32, 64, 56, 56)]),
]


def test_it_is_the_tuple_of_its_operations():
    listed = OperationList(OPERATIONS)
    assert listed == tuple(OPERATIONS)
    assert tuple(OPERATIONS) == listed
    assert hash(listed) == hash(tuple(OPERATIONS))
    assert listed != tuple(OPERATIONS[1:])
    assert OperationList.of(listed) is listed
    assert OperationList.of(OPERATIONS) == listed


def test_derived_results_are_cached_and_not_pickled():
    calls = []

    def count(operations):
        calls.append(operations)
        return len(operations)

    listed = OperationList(OPERATIONS)
    assert [listed.derived(count), listed.derived(count)] == [4, 4]
    assert calls == [listed]
    again = copy.copy(listed)
    assert type(again) is OperationList
    assert again == listed
    assert again.derived(count) == 4
    assert len(calls) == 2


def test_cached_values_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        numbers_of(OperationList(OPERATIONS)).flops[0] = 1.0


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (OPERATIONS[0], "conv2d 8x64x56x56 k3 tf32"),
        (
            Operation("conv2d", [(1, 4, 9, 9)], {"out_channels": 8, "kernel_size": (3, 1), "stride": 2, "groups": 4}),
            "conv2d 1x4x9x9 -> 1x8x4x5 k(3, 1) s2 g4 fp32",
        ),
        (Operation("max_pool2d", [(1, 4, 8, 8)], {"kernel_size": 2}), "max_pool2d 1x4x8x8 -> 1x4x4x4 k2 fp32"),
        (OPERATIONS[2], "matmul 64x49x32, 64x32x49 -> 64x49x49 fp32"),
        (Operation("cat", [(1, 2)] * 3), "cat 1x2, 1x2, 1x2 -> 3x2 fp32"),
        (Operation("cat", [(1, 2)] * 4), "cat 4 inputs -> 4x2 fp32"),
        (
            Operation("linear", [(2, 8)], {"out_features": 4, "gradients": "inputs"}, mode="training"),
            "linear 2x8 -> 2x4 fp32 gradients: inputs",
        ),
    ],
)
def test_a_short_text_tells_operations_apart(operation, text):
    assert operation_text(operation) == text


def test_only_lists_of_operations_are_taken():
    assert checked_operations(iter(OPERATIONS)) == OPERATIONS
    assert checked_operations([]) == []
    given = {"conv": "'conv'", 3: "3", OPERATIONS[3]: repr(OPERATIONS[3]), (OPERATIONS[3], "x" * 300): "'" + "x" * 199}
    for wrong, said in given.items():
        with pytest.raises(InputError, match=r"operations are a list of joulecast\.Operation") as caught:
            checked_operations(wrong)
        assert caught.value.given == said
        assert caught.value.allowed == 'such as [Operation("relu", [(32, 64, 56, 56)])]'
        assert caught.value.hint == "Operation.from_dict(...) makes one of a dictionary"
