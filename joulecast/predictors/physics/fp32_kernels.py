"""Device times that follow from what NVIDIA's kernels in fp32 do.

Where the kernels are known, their tiles, steps and blocks are counted: those of matrix products (fp32_products.py),
softmax and layer norm (row_kernels.py). What is learned is the ratio to these times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES, PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .cached import cached
from .fp32_products import product_times_s
from .least_times import LeastTimes
from .operation_numbers import KIND_PLACES, numbers_of
from .precisions import as_run
from .row_kernels import layer_norm_times_s, softmax_times_s

_ROW_KERNELS = {"softmax": softmax_times_s, "layer_norm": layer_norm_times_s}


def counted_s(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Device seconds that the work of kernels takes at the default clock, shape (operations,)."""
    return LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s * counted_ratio(operations, gpu)


def counted_ratio(operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
    """Device time that the work of kernels takes at the default clock, relative to the least time of physics.

    Returns:
        A read-only array of shape (operations,); 1 for operations whose kernels are not counted: other kinds than
        matmul, linear, softmax and layer_norm, other precisions than fp32, softmax and layer norm in training and on
        AMD's GPUs.
    """
    return _counted_ratio(as_run(OperationList.of(operations), gpu), gpu, capped)


@cached
def _counted_ratio(operations: OperationList, gpu: GPU, capped: bool) -> FloatArray:
    n, ratio = numbers_of(operations), np.ones(len(operations))
    plain, training = n.precision == PRECISIONS.index("fp32"), n.is_training > 0
    product = plain & np.isin(n.kind, [KIND_PLACES[kind] for kind in ("linear", "matmul")])
    # Softmax and layer norm take as many steps for a row in half precision.
    in_rows = (plain | (n.element_bytes == HALF_BYTES)) & ~training & gpu.is_nvidia
    if (product | in_rows).any():
        least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
        for places in (np.flatnonzero(product & ~training), np.flatnonzero(product & training)):
            if len(places):
                passes, parts = _passes(_some(n, places)), least.some(places)
                of_each = parts.times(np.full(len(places), 1 / len(passes)))
                seconds = sum(product_times_s(one, of_each, gpu, capped) for one in passes)
                ratio[places] = seconds / least.time_s[places]
        for kind, times_s in _ROW_KERNELS.items():
            places = np.flatnonzero(in_rows & (n.kind == KIND_PLACES[kind]))
            if len(places):
                ratio[places] = times_s(_some(n, places), least.memory_s[places], gpu) / least.time_s[places]
    ratio.flags.writeable = False
    return ratio


def _passes(n: Any) -> list[Any]:
    """The numbers of each product: the forward, and in training the gradients of both factors, of as many FLOPs."""
    if not n.is_training.any():
        return [n]
    sizes = ((n.rows, n.columns, n.reduction), (n.rows, n.reduction, n.columns), (n.columns, n.reduction, n.rows))
    third = {name: getattr(n, name) / len(sizes) for name in ("flops", "bytes_read", "bytes_written")}
    return [n._replace(rows=m, columns=c, reduction=k, **third) for m, c, k in sizes]


def _some(n: Any, places: NDArray[np.int64]) -> Any:
    """The numbers of some operations of a list."""
    return n._make(column[places] for column in n)
