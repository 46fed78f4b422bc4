"""The range and the typical value of the log ratio of measured to expected device time, for each kind and family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np

from ...arrays import FloatArray
from ...operations.operation import Operation
from ..measured.rows import DeviceRow
from .boosted_residual import Range

_QUANTILES = (0.005, 0.995)


def ratio_ranges(operations: Sequence[Operation], log_ratio: FloatArray) -> dict[str, Range]:
    """Family or kind -> lowest and highest log ratio, without the most extreme hundredth of the measurements.

    Args:
        operations: The measured operations.
        log_ratio: Log ratio of each operation's device time to what is expected, shape (operations,).
    """
    ranges = {}
    for names in ([operation.row.family for operation in operations], [operation.kind for operation in operations]):
        array = np.array(names)
        for name in sorted(set(names)):
            low, high = np.quantile(log_ratio[array == name], _QUANTILES)
            ranges[name] = (float(low), float(high))
    return ranges


def typical_ratios(rows: Sequence[DeviceRow], log_ratio: FloatArray) -> dict[str, float]:
    """Family or kind -> mean over GPUs of the median log ratio of measurements on fp32 pipes.

    Args:
        rows: The measurements.
        log_ratio: Log ratio of each operation's device time to what is expected, shape (operations,).
    """
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, value in zip(rows, log_ratio.tolist(), strict=True):
        if not row.gpu.on_tensor_cores(row.operation.precision):
            for name in (row.operation.row.family, row.operation.kind):
                groups[name][row.gpu.name].append(value)
    return {name: fmean(map(median, by_gpu.values())) for name, by_gpu in sorted(groups.items())}
