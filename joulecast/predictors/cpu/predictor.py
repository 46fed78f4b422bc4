"""CpuPredictor: operations on one model of CPU, from constants of calls corrected by regressors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import CPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import Regressor, require_mode
from ..operation_predictions import Source
from ..physics.features import size_features
from ..physics.partial import whole_operations, work_shares
from ..predictor import INPUT_NAMES, regressor_inputs
from .calls import CallModel, as_run, group_of


@dataclass(frozen=True)
class PredictedCalls:
    """Costs of operations that run one after the other, one value per operation; NaN where missing.

    Args:
        operations: The operations.
        time_s: Seconds per call, shape (operations,).
        power_w: Mean power during a call, shape (operations,); NaN where no power was measured.
        source: measured (the predictor was trained on this very operation), modelled, or missing.
    """

    operations: OperationList
    time_s: FloatArray
    power_w: FloatArray
    source: tuple[Source, ...]

    @property
    def energy_j(self) -> FloatArray:
        """Joules per call, shape (operations,); NaN where no power was measured."""
        return self.time_s * self.power_w

    @property
    def device_time_s(self) -> FloatArray:
        """Seconds that the CPU works on a call: all of them."""
        return self.time_s

    @property
    def dynamic_energy_j(self) -> FloatArray:
        """Joules that a call causes: all of them, because the idle power of a CPU is not known by itself."""
        return self.energy_j


@dataclass(frozen=True, eq=False)
class CpuPredictor:
    """Predicts single operations on a CPU.

    Args:
        cpu: The CPU that it was trained on.
        mode: inference or training.
        threads: Threads that PyTorch used.
        calls: Constants of calls.
        time: Predicts the logarithm of the time over that by the constants.
        power: Predicts power over `typical_power_w`; None where no power was measured.
        typical_power_w: Median power of the measured operations; 0 where no power was measured.
        measured: Digests of the operations that it was trained on.
    """

    cpu: CPU
    mode: str
    threads: int
    calls: CallModel
    time: Regressor
    power: Regressor | None = None
    typical_power_w: float = 0.0
    measured: frozenset[str] = frozenset()

    @property
    def coverage(self) -> tuple[str, ...]:
        """The groups that were measured."""
        return tuple(self.calls.slowdowns)

    def predict(self, operations: Sequence[Operation], clock_mhz: float | None = None) -> PredictedCalls:
        """Predict operations.

        Args:
            operations: Operations of this predictor's mode.
            clock_mhz: None, because a CPU chooses its clock.

        Raises:
            InputError: An operation of another mode, or a clock.
        """
        self.cpu.checked_clock_mhz(clock_mhz)
        asked = OperationList(map(as_run, operations))
        require_mode(asked, self.mode)
        listed = whole_operations(asked)
        groups = [self.calls.stand_in(operation) for operation in listed]
        covered = np.array([group is not None for group in groups], dtype=bool)
        values = np.full((2, len(listed)), np.nan)
        some = OperationList(compress(listed, covered))
        if some:
            own = np.array([group_of(operation) for operation in some]) == np.array(list(filter(None, groups)))
            inputs, by_constants_s = call_inputs(some, self.calls, [group for group in groups if group is not None])
            # What was learned of one kind does not hold for another, for which it only stands in.
            values[0, covered] = by_constants_s * np.where(own, np.exp(self.time(inputs)), 1.0)
            if self.power is not None:
                values[1, covered] = self.typical_power_w * np.where(own, self.power(inputs), 1.0)
        sources: list[Source] = [
            "missing" if group is None else "measured" if operation.digest in self.measured else "modelled"
            for operation, group in zip(asked, groups, strict=True)
        ]
        return PredictedCalls(asked, values[0] * work_shares(asked, listed), values[1], tuple(sources))

    def facts(self) -> dict[str, Any]:
        """What is stored of the predictor beside its regressors."""
        return {
            "gpu": self.cpu.name,
            "mode": self.mode,
            "threads": self.threads,
            "inputs": list(INPUT_NAMES),
            "calls": self.calls.to_dict(),
            "typical_power_w": self.typical_power_w,
            "measured": sorted(self.measured),
        }


def call_inputs(
    operations: Sequence[Operation], calls: CallModel, groups: Sequence[str]
) -> tuple[NDArray[np.float32], FloatArray]:
    """What regressors see of operations, shape (operations, len(INPUT_NAMES)), and their seconds by the constants.

    The columns are those of GPUs' own predictors; those that say something about a GPU are 0.

    Args:
        operations: The operations, at least one.
        calls: Constants of calls.
        groups: Group of each operation.
    """
    time_s = calls.time_s(operations, groups)
    matrix = OperationList.of(operations).derived(size_features)
    return regressor_inputs(matrix, time_s, np.full(len(time_s), calls.call_s)), time_s
