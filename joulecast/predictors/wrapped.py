"""WrappedPredictor: what predictors have in common that correct or complete another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.operation import Operation
from .contract import PredictsOperations, SharedModel
from .operation_predictions import OperationPredictions


@dataclass(frozen=True, eq=False)
class WrappedPredictor:
    """Answers as another predictor does. Subclasses have `predict`, and override what they answer differently.

    Args:
        own: The predictor that is corrected or completed.
    """

    own: PredictsOperations

    @property
    def gpu(self) -> GPU:
        """See `PredictsOperations.gpu`."""
        return self.own.gpu

    @property
    def mode(self) -> str:
        """See `PredictsOperations.mode`."""
        return self.own.mode

    @property
    def coverage(self) -> tuple[str, ...]:
        """See `PredictsOperations.coverage`."""
        return self.own.coverage

    def in_network(self, predictions: OperationPredictions, counts: FloatArray) -> OperationPredictions:
        """See `PredictsOperations.in_network`."""
        return self.own.in_network(predictions, counts)

    @property
    def same_in_all_networks(self) -> bool:
        """See `PredictsOperations.same_in_all_networks`."""
        return self.own.same_in_all_networks

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.remarks`."""
        return self.own.remarks(operations)

    def by_fallback(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.by_fallback`."""
        return self.own.by_fallback(operations)

    def regressor_inputs(self, operation: Operation) -> NDArray[np.float32] | None:
        """See `PredictsOperations.regressor_inputs`."""
        return self.own.regressor_inputs(operation)

    def covers(self, operation: Operation) -> bool:
        """See `PredictsOperations.covers`."""
        return self.own.covers(operation)

    @property
    def measured_launch_s(self) -> Mapping[str, float]:
        """See `PredictsOperations.measured_launch_s`."""
        return self.own.measured_launch_s

    @property
    def shared_models(self) -> tuple[SharedModel, ...]:
        """See `PredictsOperations.shared_models`."""
        return self.own.shared_models
