"""Intervals of calibrated predictions: the errors of the profile on operations that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..intervals.calibration import ONE_SIGMA
from ..intervals.conformal import conformal_rank
from ..intervals.operation_spread import OperationSpread, PredictedOperations
from ..intervals.widening import clock_error
from ..physics.operation_numbers import FAMILIES, numbers_of
from .profile import ALL, BoardProfile


@dataclass(frozen=True)
class CalibratedSpread(OperationSpread):
    """Errors of operations on a board that was calibrated.

    A family with enough errors has the interval of its own ones. Another one keeps the interval that it has without
    the profile, unless the errors of all families together are larger.

    Args:
        profile: The profile, with its errors on operations that were left out.
        octaves_away: Distance of the clock that is asked for from the one that was measured, in octaves.
    """

    profile: BoardProfile | None = None
    octaves_away: float = 0.0

    def log_errors(self, predictions: PredictedOperations, level: float) -> dict[str, FloatArray]:
        """See `OperationSpread.log_errors`."""
        found = super().log_errors(predictions, level)
        return {name: self._replaced(name, half, level, predictions.operations) for name, half in found.items()}

    def sigmas(self, operations: tuple[Operation, ...]) -> dict[str, FloatArray]:
        """See `OperationSpread.sigmas`."""
        known = super().sigmas(operations)
        return {name: self._replaced(name, sigma, ONE_SIGMA, operations) for name, sigma in known.items()}

    def _replaced(self, quantity: str, half: FloatArray, level: float, operations: Sequence[Operation]) -> FloatArray:
        errors = {} if self.profile is None else self.profile.errors.get(quantity, {})
        everywhere = _quantile(errors.get(ALL), level)
        if everywhere is None:
            return half
        own = np.array([_quantile(errors.get(name), level) or np.nan for name in FAMILIES])
        own = own[OperationList.of(operations).derived(_families)]
        if self.octaves_away:
            added = clock_error(quantity, level, np.array(self.octaves_away))
            own, everywhere = np.hypot(own, added), float(np.hypot(everywhere, added))
        return np.where(np.isnan(own), np.maximum(half, everywhere), own)


def _families(operations: OperationList) -> NDArray[np.int64]:
    return np.asarray(numbers_of(operations).family, dtype=np.int64)


def _quantile(errors: FloatArray | None, level: float) -> float | None:
    """The error that covers a share of new operations; None where there are too few."""
    rank = 0 if errors is None else conformal_rank(level, len(errors))
    return None if errors is None or rank > len(errors) else float(errors[rank - 1])
