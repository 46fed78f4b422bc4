"""Device times that follow from what NVIDIA's kernels in fp32 do, for chips that were never measured.

What trees learn on some chips does not hold in full on others. Where the kernels are known, their tiles, steps and
blocks can be counted instead: those of matrix products (fp32_products.py), softmax and layer norm (row_kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .cached import cached
from .fp32_products import Products, product_times_s
from .least_times import LeastTimes
from .operation_numbers import KIND_PLACES, numbers_of
from .row_kernels import Rows, layer_norm_rows, layer_norm_times_s, softmax_rows, softmax_times_s


def counted_ratio(operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
    """Device time that the work of kernels takes at the default clock, relative to the least time of physics.

    Args:
        operations: The operations.
        gpu: The GPU that they run on.
        capped: Whether the board's power cap slows products down.

    Returns:
        A read-only array of shape (operations,); NaN for operations whose kernels are not counted: other kinds than
        matmul, linear, softmax and layer_norm, other precisions than fp32, training, and all operations on AMD's GPUs.
    """
    return _counted_ratio(OperationList.of(operations), gpu, capped)


@cached
def _counted_ratio(operations: OperationList, gpu: GPU, capped: bool) -> FloatArray:
    ratio = np.full(len(operations), np.nan)
    known = operations.derived(_known)
    if gpu.is_nvidia and known:
        least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
        for places, work in known:
            memory_s, least_s = least.memory_s[places], least.time_s[places]
            if isinstance(work, Products):
                times = LeastTimes(least.compute_s[places], memory_s, least.cache_s[places])
                ratio[places] = product_times_s(work, times, gpu, capped) / least_s
            else:
                rows, times_s = work
                ratio[places] = times_s(rows, memory_s, gpu) / least_s
    ratio.flags.writeable = False
    return ratio


RowTimes = Callable[[Rows, FloatArray, GPU], FloatArray]


def _known(operations: OperationList) -> list[tuple[NDArray[np.int64], Products | tuple[Rows, RowTimes]]]:
    """Places of the operations whose kernels are counted, and what is counted for them."""
    n = numbers_of(operations)
    plain = (n.precision == PRECISIONS.index("fp32")) & (n.is_training == 0)
    linear = n.kind == KIND_PLACES["linear"]
    found: list[tuple[NDArray[np.int64], Products | tuple[Rows, RowTimes]]] = []
    places = np.flatnonzero(plain & (linear | (n.kind == KIND_PLACES["matmul"])))
    if len(places):
        found.append((places, Products.of(_some(n, places), linear[places])))
    for kind, rows_of, times_s in _ROW_KERNELS:
        places = np.flatnonzero(plain & (n.kind == KIND_PLACES[kind]))
        if len(places):
            found.append((places, (rows_of(_some(n, places)), times_s)))
    return found


def _some(n: Any, places: NDArray[np.int64]) -> Any:
    """The numbers of some operations of a list."""
    return n._make(column[places] for column in n)


_ROW_KERNELS: tuple[tuple[str, Callable[[Any], Rows], RowTimes], ...] = (
    ("softmax", softmax_rows, softmax_times_s),
    ("layer_norm", layer_norm_rows, layer_norm_times_s),
)
