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
from ...operations.rules import Product
from ...system.caches import OPERATION_BYTES, remembered
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
    other = (n.is_partial > 0) | ((n.kind == KIND_PLACES["matmul"]) & (n.batch == 1))
    if not other.any():
        return operations
    return OperationList(
        _measured(operation) if is_other else operation
        for operation, is_other in zip(operations, other.tolist(), strict=True)
    )


def _measured(operation: Operation) -> Operation:
    alone = not (operation.has_backward or operation.row.is_noise or operation.mode == "inference")
    whole = operation.replace(mode="inference") if alone else operation.replace(gradients="all")
    product = operation.product if operation.kind == "matmul" else None
    if product is None or product.batch > 1:
        return whole
    return _linear(product, whole.precision, whole.mode)


@remembered(lambda made: OPERATION_BYTES)
def _linear(product: Product, precision: str, mode: str) -> Operation:
    attributes = {"out_features": product.columns, "bias": False}
    return Operation("linear", [(product.rows, product.reduction)], attributes, precision=precision, mode=mode)


def work_shares(operations: OperationList, of: OperationList) -> FloatArray:
    """The work of operations over that of others: the FLOPs that run if they are products, otherwise their bytes.

    Returns:
        Shape (operations,); 1 for an operation that is in both lists.
    """
    if operations is of:
        return np.ones(len(operations))
    return np.array([1.0 if one is whole else _share(one, whole) for one, whole in zip(operations, of, strict=True)])


def _share(operation: Operation, whole: Operation) -> float:
    if operation.row.family in PRODUCTS:
        return operation.executed_flops / whole.executed_flops
    moved, all_moved = (each.bytes_read + each.bytes_written for each in (operation, whole))
    return moved / all_moved if all_moved else 1.0
