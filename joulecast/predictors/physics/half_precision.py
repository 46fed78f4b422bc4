"""Half precision where only whole networks were measured in it: a factor for each of three sorts of operations.

Trees that have seen fp32 say nothing about products on tensor cores. Physics knows the tiles that they are computed in
(least_times.py). By how much products are slower than that, and other operations than in fp32, sums over networks tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from ...operation_list import OperationList
from ...operations import Operation
from ..formats.numbers import numbers
from .features import FAMILIES, FloatArray, numbers_of


@dataclass(frozen=True)
class HalfPrecision:
    """Logarithms of factors on device times in fp16 and bf16.

    Args:
        product: Matrix products, over the least time of physics. The prior is what fp32 products take: 1.35 times that.
        convolution: Over what convolutions on tensor cores would take by what the trees have seen.
        other: The same for what moves more than it computes.
    """

    product: float = 0.3
    convolution: float = 0.0
    other: float = 0.0

    def applied(self, operations: Sequence[Operation], ratio: FloatArray) -> FloatArray:
        """Device time over least time, with half precision put right.

        Args:
            operations: Which.
            ratio: What was learned from operations.
        """
        of_product, of_convolution, of_other = half_groups(operations)
        factor = np.exp(self.convolution * of_convolution + self.other * of_other)
        corrected: FloatArray = np.where(of_product > 0, np.exp(self.product), ratio * factor)
        return corrected

    def to_json(self) -> dict[str, float]:
        """The logarithms as a dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**numbers(value))


def half_groups(operations: Sequence[Operation]) -> FloatArray:
    """Which are products, convolutions and others in half precision: zeros and ones, shape (3, operations)."""
    return OperationList.of(operations).derived(_half_groups)


def _half_groups(operations: OperationList) -> FloatArray:
    n = numbers_of(operations)
    half, convolution = n.element_bytes == 2, n.family == FAMILIES.index("convolution")
    product = (n.is_product > 0) & ~convolution
    groups = np.array([half & product, half & convolution, half & ~product & ~convolution], dtype=float)
    groups.flags.writeable = False
    return groups
