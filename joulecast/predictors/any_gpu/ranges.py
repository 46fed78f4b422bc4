"""How far corrections may be from physics: no farther than what was seen of a kind, or of its family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ...operations import Operation
from .predictor import Range

_QUANTILES = (0.005, 0.995)


def ratio_ranges(operations: Sequence[Operation], log_ratio: FloatArray) -> dict[str, Range]:
    """Family and kind -> lowest and highest logarithm of a ratio, without the most extreme hundredth.

    Args:
        operations: What was measured.
        log_ratio: Of each.
    """
    ranges = {}
    for names in ([operation.row.family for operation in operations], [operation.kind for operation in operations]):
        array = np.array(names)
        for name in sorted(set(names)):
            low, high = np.quantile(log_ratio[array == name], _QUANTILES)
            ranges[name] = (float(low), float(high))
    return ranges
