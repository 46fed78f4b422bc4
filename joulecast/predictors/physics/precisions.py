"""Operations in another precision than the one they ask for: where TF32 is allowed, fp32 is allowed, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...system.caches import OPERATION_BYTES, remembered

_INPUT_BYTES = 200  # of one more input of an operation, such as of a concatenation


class InFp32(NamedTuple):
    """The operations of a list that may run in TF32, converted to fp32.

    Args:
        places: True for each operation of the list that may run in TF32, shape (operations of the list,).
        always: True for those of them that always run in fp32, because their kind has no kernels for tensor
            cores, shape (operations of the list,).
        operations: The operations at `places`, in fp32.
    """

    places: NDArray[np.bool_]
    always: NDArray[np.bool_]
    operations: OperationList


class InHalf(NamedTuple):
    """The attention in fp32 of a list, converted to fp16.

    Args:
        places: Where it stands in the list, shape (operations in fp16,).
        operations: The same attention in fp16.
    """

    places: NDArray[np.intp]
    operations: OperationList


def attention_in_half(operations: OperationList) -> InHalf:
    """The attention in fp32 of a list, converted to fp16; use with `OperationList.derived`."""
    places = np.flatnonzero([each.kind == "attention" and each.precision == "fp32" for each in operations])
    return InHalf(places, OperationList(replace(operations[place], precision="fp16") for place in places.tolist()))


def in_fp32(operations: OperationList) -> OperationList:
    """All operations, converted to fp32; use with `OperationList.derived`, which calls it once for each list."""
    return OperationList(map(as_fp32, operations))


def fp64_in_fp32(operations: OperationList) -> OperationList:
    """The operations, with those in fp64 converted to fp32; the same list if there are none.

    Use with `OperationList.derived`, which calls it once for each list.
    """
    if not any(operation.precision == "fp64" for operation in operations):
        return operations
    return OperationList(as_fp32(each) if each.precision == "fp64" else each for each in operations)


def without_tf32(operations: OperationList) -> OperationList:
    """The operations, with those in TF32 converted to fp32; use with `OperationList.derived`."""
    if not any(each.precision == "tf32" for each in operations):
        return operations
    return OperationList(as_fp32(each) if each.precision == "tf32" else each for each in operations)


def as_run(operations: OperationList, gpu: GPU) -> OperationList:
    """The operations as a GPU runs them: TF32 is a permission, of no use where its rate is not above that of fp32."""
    is_quicker = gpu.peak_flops.get("tf32", 0.0) > gpu.peak_flops["fp32"]
    return operations if is_quicker else operations.derived(without_tf32)


def tf32_in_fp32(operations: OperationList) -> InFp32:
    """The operations in TF32, converted to fp32, and where they stand; use with `OperationList.derived`."""
    places = np.array([operation.precision == "tf32" for operation in operations], dtype=bool)
    always = np.array([not operation.row.tensor_cores for operation in operations], dtype=bool) & places
    return InFp32(places, always, OperationList(as_fp32(each) for each in operations if each.precision == "tf32"))


@remembered(lambda made: OPERATION_BYTES + len(made.input_shapes) * _INPUT_BYTES)
def as_fp32(operation: Operation) -> Operation:
    """An operation, converted to fp32."""
    return replace(operation, precision="fp32")


def refuse_precisions(gpu: GPU, operations: Iterable[Operation]) -> None:
    """Refuse operations in a precision that a GPU does not have.

    Raises:
        InputError: The GPU does not support the precision of an operation.
    """
    for precision in {operation.precision for operation in operations}:
        gpu.running_precision(precision)
