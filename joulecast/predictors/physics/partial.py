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
from .operation_numbers import KIND_PLACES, PRODUCTS, numbers_of


def whole_operations(operations: OperationList) -> OperationList:
    """Each operation with all of its gradients; the same list if all of them have."""
    if not numbers_of(operations).is_partial.any():
        return operations
    return OperationList(operation.replace(gradients="all") for operation in operations)


def measured_operations(operations: OperationList) -> OperationList:
    """Like `whole_operations`, with operations in inference for forwards alone, where both do the same.

    A product of two tensors that is none of a batch is the linear layer of its sizes: PyTorch calls gemm for both.
    """
    n = numbers_of(operations)
    if not (n.is_partial.any() or ((n.kind == KIND_PLACES["matmul"]) & (n.batch == 1)).any()):
        return operations
    return OperationList(map(_measured, operations))


def _measured(operation: Operation) -> Operation:
    alone = not (operation.has_backward or operation.row.is_noise or operation.mode == "inference")
    whole = operation.replace(mode="inference") if alone else operation.replace(gradients="all")
    product = operation.product if operation.kind == "matmul" else None
    if product is None or product.batch > 1:
        return whole
    attributes = {"out_features": product.columns, "bias": False}
    shapes = [(product.rows, product.reduction)]
    return Operation("linear", shapes, attributes, precision=whole.precision, mode=whole.mode)


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
