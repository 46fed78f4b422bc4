"""Operations in another precision than they ask for: what may run in TF32 may run in fp32, too."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .cached import cached_by_operation


class InFp32(NamedTuple):
    """The operations of a list that may run in TF32, as they are in fp32.

    Args:
        places: Whether each operation of the list is one of them.
        always: Whether each runs in fp32 in any case, because its kind has no kernels for tensor cores.
        operations: These operations in fp32.
    """

    places: NDArray[np.bool_]
    always: NDArray[np.bool_]
    operations: OperationList


def in_fp32(operations: OperationList) -> OperationList:
    """All operations in fp32; to be derived from a list once."""
    return OperationList(map(_in_fp32, operations))


def fp64_in_fp32(operations: OperationList) -> OperationList:
    """The operations with those in fp64 in fp32; to be derived from a list once. The same list where there are none."""
    if not any(operation.precision == "fp64" for operation in operations):
        return operations
    return OperationList(_in_fp32(each) if each.precision == "fp64" else each for each in operations)


def without_tf32(operations: OperationList) -> OperationList:
    """The operations with those in TF32 in fp32; to be derived from a list once."""
    return OperationList(_in_fp32(each) if each.precision == "tf32" else each for each in operations)


def tf32_in_fp32(operations: OperationList) -> InFp32:
    """Those in TF32, in fp32; to be derived from a list once."""
    places = np.array([operation.precision == "tf32" for operation in operations], dtype=bool)
    always = np.array([not operation.row.tensor_cores for operation in operations], dtype=bool) & places
    return InFp32(places, always, OperationList(_in_fp32(each) for each in operations if each.precision == "tf32"))


@cached_by_operation(most_bytes=75_000_000)
def _in_fp32(operation: Operation) -> Operation:
    return replace(operation, precision="fp32")
