"""Training takes no less than inference: forward and backward cost at least what the forward does.

Training and inference are learned from different measurements, so each errs in its own way. Where a kernel of its own
runs backward and both move many bytes, training takes several times as long, and no error is that large. Of the other
operations the forward is predicted as well, and the larger of both counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...operations.kind import Traffic
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.precisions import ELEMENT_BYTES

_SMALL_BYTES = 32e6  # At 1 to 8 TB/s these take 4 to 32 us: as long as launching a few kernels.
_TINY_BYTES = 1e5  # What its launch decides, in any precision.
_SEVERAL = 2.5  # Backward moves more than one and a half times as many bytes as forward.


class WithForward(NamedTuple):
    """Operations with what their training is compared with.

    Args:
        operations: The operations, followed by the forward of some of them as operations in inference. The same list
            where nothing is compared.
        places: Place of the operation that each forward at the end belongs to, shape (forwards,).
    """

    operations: OperationList
    places: NDArray[np.int64]


def with_forward(operations: OperationList) -> WithForward:
    """Operations followed by the forward of those in training that might be predicted to cost less than it.

    To be derived from a list once.
    """
    places = [place for place, operation in enumerate(operations) if _is_doubtful(operation)]
    if not places:
        return WithForward(operations, np.zeros(0, dtype=np.int64))
    forwards = [operations[place].replace(mode="inference") for place in places]
    return WithForward(OperationList([*operations, *forwards]), np.array(places, dtype=np.int64))


def _is_doubtful(operation: Operation) -> bool:
    row = operation.row
    if operation.mode == "inference" or operation.is_identity:
        return False
    passes = _passes(row.training_reads, row.training_writes)
    if row.family == "attention" or passes < _SEVERAL * _passes(row.reads, row.writes):
        return True
    moved = operation.bytes_read + operation.bytes_written
    # Kernels in half precision were measured in inference only, reductions not at all.
    apart = row.family == "pooling" or ELEMENT_BYTES[operation.precision] == ELEMENT_BYTES["fp16"]
    return moved < (_SMALL_BYTES if apart else _TINY_BYTES)


def _passes(reads: Traffic, writes: Traffic) -> float:
    return reads.inputs + reads.output + writes.inputs + writes.output
