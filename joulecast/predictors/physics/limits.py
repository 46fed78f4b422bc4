"""Operations that limit others: training takes at least its forward, and attention at most what it takes without mask.

Each is learned from other measurements with other errors, so a prediction for training could be below that for
inference, and one with a mask above that without. What limits an operation is therefore predicted as well. In training
the longer of both predictions counts, and twice the forward if the backward does as much again. Limits hold at the
default clock. At others, the clock law may part an operation and its limit by half a percent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .operation_numbers import numbers_of


class WithLimits(NamedTuple):
    """Operations, followed by those that limit some of them.

    Args:
        operations: The operations, followed by attention without the mask of some of them, and by the forward passes of
            all these in training, as operations in inference. The same list if there are none.
        masked: Index of the operation that each attention without a mask belongs to, shape (without a mask,).
        trained: Index of the operation that each forward pass belongs to, shape (forward passes,).
        multiples: The least time of the operation over that of the forward pass, shape (forward passes,): 2 if the
            backward computes and moves at least as much as the forward. Otherwise 1.
    """

    operations: OperationList
    masked: NDArray[np.int64]
    trained: NDArray[np.int64]
    multiples: FloatArray


def with_limits(operations: OperationList) -> WithLimits:
    """Operations followed by those that limit some of them.

    Use with `OperationList.derived`, which calls it once for each list.
    """
    n = numbers_of(operations)
    masked = np.flatnonzero(n.is_masked)
    limited = _and(operations, [operations[place].with_attributes(causal=False) for place in masked.tolist()])
    n = numbers_of(limited)
    trained = np.flatnonzero((n.is_training > 0) & (n.is_identity == 0))
    forwards = [limited[place].replace(mode="inference") for place in trained.tolist()]
    multiples = [1.0 + _doubles(limited[place], forward) for place, forward in zip(trained, forwards, strict=True)]
    return WithLimits(_and(limited, forwards), masked, trained, np.array(multiples))


def _and(operations: OperationList, more: list[Operation]) -> OperationList:
    return OperationList([*operations, *more]) if more else operations


def _doubles(operation: Operation, forward: Operation) -> bool:
    """Whether an operation in training computes and moves at least twice as much as its forward.

    Of 323 such operations that were measured in both modes (nicolai2025), 4 took less than twice as long in training.
    """
    moved, once = (each.bytes_read + each.bytes_written for each in (operation, forward))
    return moved >= 2 * once and operation.flops >= 2 * forward.flops
