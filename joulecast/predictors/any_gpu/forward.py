"""Training an operation takes at least as long as inference, because it includes the forward pass.

Training and inference are learned from different measurements with different errors, so a prediction for training could
be below that for inference. If the backward pass has a kernel of its own and both passes move many bytes, training
takes several times as long, and no error is that large. For all other operations in training, the forward pass is
predicted as well. The longer of both predictions counts, and twice the forward if the backward does as much again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES
from ...operations.kind import Traffic
from ...operations.operation import Operation
from ...operations.operation_list import OperationList

_SMALL_BYTES = 32e6  # At 1 to 8 TB/s these take 4 to 32 us: as long as launching a few kernels.
_TINY_BYTES = 1e5  # The launch decides the time of an operation that moves fewer bytes, in any precision.
# Kinds whose waiting for memory is counted in inference only (physics/row_kernels.py). It decides the time of few rows.
_COUNTED_IN_INFERENCE = ("layer_norm", "softmax")
_SEVERAL = 2.5  # Training moves this multiple of the forward's bytes, so the backward moves 1.5 times as many.


class WithForward(NamedTuple):
    """Operations, and the forward passes that some of them are compared with.

    Args:
        operations: The operations, followed by the forward passes of some of them, as operations in inference. The same
            list if there are none.
        places: Index of the operation that each forward pass at the end belongs to, shape (forward passes,).
        multiples: The least time of the operation over that of the forward pass, shape (forward passes,): 2 if the
            backward computes and moves at least as much as the forward. Otherwise 1.
    """

    operations: OperationList
    places: NDArray[np.int64]
    multiples: FloatArray


def with_forward(operations: OperationList) -> WithForward:
    """Operations followed by the forward of those in training that might be predicted to cost less than it.

    Use with `OperationList.derived`, which calls it once for each list.
    """
    places = [place for place, operation in enumerate(operations) if _is_doubtful(operation)]
    if not places:
        return WithForward(operations, np.zeros(0, dtype=np.int64), np.ones(0))
    forwards = [operations[place].replace(mode="inference") for place in places]
    multiples = [1.0 + _doubles(operations[place], forward) for place, forward in zip(places, forwards, strict=True)]
    return WithForward(OperationList([*operations, *forwards]), np.array(places, dtype=np.int64), np.array(multiples))


def _doubles(operation: Operation, forward: Operation) -> bool:
    """Whether an operation in training computes and moves at least twice as much as its forward.

    Of 323 such operations that were measured in both modes (nicolai2025), 4 took less than twice as long in training.
    """
    moved, once = (each.bytes_read + each.bytes_written for each in (operation, forward))
    return moved >= 2 * once and operation.flops >= 2 * forward.flops


def _is_doubtful(operation: Operation) -> bool:
    row = operation.row
    if operation.mode == "inference" or operation.is_identity:
        return False
    passes = _passes(row.training_reads, row.training_writes)
    # Nothing was measured in fp64, nor how long these kinds wait for memory in training.
    unlike = operation.kind in _COUNTED_IN_INFERENCE or operation.precision == "fp64"
    if unlike or row.family == "attention" or passes < _SEVERAL * _passes(row.reads, row.writes):
        return True
    moved = operation.bytes_read + operation.bytes_written
    # Kernels in half precision were measured in inference only, and reductions were not measured at all.
    apart = row.family == "pooling" or ELEMENT_BYTES[operation.precision] == ELEMENT_BYTES["fp16"]
    return moved < (_SMALL_BYTES if apart else _TINY_BYTES)


def _passes(reads: Traffic, writes: Traffic) -> float:
    return reads.inputs + reads.output + writes.inputs + writes.output
