"""Training without some of the gradients, as with frozen layers: what is measured of a whole operation, in its work.

Loops were measured of whole operations: a forward, or a forward with all gradients of its backward. What a part of them
costs follows from its work, which is counted (`kind.Training`). A linear layer has three products of the same size, so
without the gradient of its weights it costs two thirds. A forward alone costs what it does in inference.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .operation_numbers import PRODUCTS, numbers_of


def whole_operations(operations: OperationList) -> OperationList:
    """Each operation with all of its gradients; the same list if all of them have."""
    if not numbers_of(operations).is_partial.any():
        return operations
    return OperationList(operation.replace(gradients="all") for operation in operations)


def measured_operations(operations: OperationList) -> OperationList:
    """Like `whole_operations`, with operations in inference for forwards alone, where both do the same."""
    if not numbers_of(operations).is_partial.any():
        return operations
    return OperationList(map(_measured, operations))


def _measured(operation: Operation) -> Operation:
    if operation.has_backward or operation.row.is_noise or operation.mode == "inference":
        return operation.replace(gradients="all")
    return operation.replace(mode="inference")


def work_shares(operations: OperationList, of: OperationList) -> FloatArray:
    """The work of operations over that of others: the FLOPs that run if they are products, otherwise their bytes.

    Returns:
        Shape (operations,); 1 for an operation that is in both lists.
    """
    if operations is of:
        return np.ones(len(operations))
    return np.array([_share(*pair) for pair in zip(operations, of, strict=True)])


def _share(operation: Operation, whole: Operation) -> float:
    if operation.row.family in PRODUCTS:
        return operation.executed_flops / whole.executed_flops
    moved, all_moved = (each.bytes_read + each.bytes_written for each in (operation, whole))
    return moved / all_moved if all_moved else 1.0
