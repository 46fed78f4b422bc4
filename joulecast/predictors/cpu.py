"""CpuPredictor: operations on one model of CPU, from constants of calls corrected by regressors.

The constants were all measured, because there is no data sheet to start from. PyTorch runs an operation on a CPU before
it returns, so that a loop over it takes

    t = call + slowdown x max(FLOPs / rate, bytes / bandwidth)

The call is what Python and PyTorch's dispatcher need for an operation without work. Rate and bandwidth are close to the
best that any measured operation reached. The slowdown is one number per group, a kind in a precision. Regressors learn
what these constants do not explain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import CPU
from ..operations.operation import Operation
from ..operations.operation_list import OperationList
from ..rendering.answers import Plain
from .contract import Regressor, regressor_inputs, require_mode
from .formats.numbers import number, numbers
from .operation_predictions import Source
from .physics.baseline import stand_ins
from .physics.operation_numbers import numbers_of
from .physics.relative import same_everywhere
from .physics.variants import whole_operations, work_shares

_REACHED = 0.95  # Quantile of rates and bandwidths; the very best one may be an outlier.
_LEAST_S = 1e-9


def as_run(operation: Operation) -> Operation:
    """The operation in the precision in which a CPU runs it: what a GPU runs in TF32, a CPU runs in fp32."""
    return operation.replace(precision="fp32") if operation.precision == "tf32" else operation


def group_of(operation: Operation) -> str:
    """The group of an operation: its kind in its precision."""
    return f"{operation.kind} {operation.precision}"


@dataclass(frozen=True)
class CallModel(Plain):
    """Constants of calls on one CPU in one mode.

    Args:
        call_s: Seconds that a call takes without any work.
        flops_per_s: Rate of arithmetic that the best operations reach.
        bytes_per_s: Bandwidth that the best operations reach.
        slowdowns: Group -> median of time beyond the call over the time that rate and bandwidth allow.
    """

    call_s: float
    flops_per_s: float
    bytes_per_s: float
    slowdowns: Mapping[str, float]

    @classmethod
    def fit(cls, operations: Sequence[Operation], time_s: FloatArray) -> Self:
        """Derive the constants from measured operations."""
        n, call_s = numbers_of(operations), float(time_s.min())
        product = n.is_product > 0
        rates = n.flops[product] / time_s[product] if product.any() else n.flops / time_s + 1
        bandwidths = (n.bytes_read + n.bytes_written) / time_s
        flops_per_s, bytes_per_s = (float(np.quantile(each, _REACHED)) for each in (rates, bandwidths))
        slower = np.maximum(time_s - call_s, _LEAST_S) / cls(call_s, flops_per_s, bytes_per_s, {}).least_s(operations)
        groups = np.array([group_of(operation) for operation in operations])
        slowdowns = {str(group): float(np.median(slower[groups == group])) for group in np.unique(groups)}
        return cls(call_s, flops_per_s, bytes_per_s, slowdowns)

    def stand_in(self, operation: Operation) -> str | None:
        """The measured group whose slowdown is used for an operation: its own, a similar one, or None."""
        groups = (f"{kind} {operation.precision}" for kind in stand_ins(operation))
        return next((group for group in groups if group in self.slowdowns), None)

    def least_s(self, operations: Sequence[Operation]) -> FloatArray:
        """Seconds that rate and bandwidth allow, shape (operations,)."""
        least_s: FloatArray = np.maximum(np.maximum(*self.parts_s(operations)), _LEAST_S)
        return least_s

    def parts_s(self, operations: Sequence[Operation]) -> tuple[FloatArray, FloatArray]:
        """Seconds of arithmetic and of memory by rate and bandwidth, shape (operations,) each."""
        n = numbers_of(operations)
        return n.flops / self.flops_per_s, (n.bytes_read + n.bytes_written) / self.bytes_per_s

    def time_s(self, operations: Sequence[Operation], groups: Sequence[str]) -> FloatArray:
        """Seconds per call by the constants alone, shape (operations,)."""
        return self.call_s + np.array([self.slowdowns[group] for group in groups]) * self.least_s(operations)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        call_s, flops_per_s, bytes_per_s = (number(value[name]) for name in ("call_s", "flops_per_s", "bytes_per_s"))
        return cls(call_s, flops_per_s, bytes_per_s, numbers(value["slowdowns"]))


@dataclass(frozen=True)
class PredictedCalls:
    """Costs of operations that run one after the other, one value per operation; NaN where missing.

    Args:
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
        """Predict operations. Raises InputError: an operation of another mode, or a clock."""
        self.cpu.checked_clock_mhz(clock_mhz)
        asked = OperationList(map(as_run, operations))
        require_mode(asked, self.mode)
        listed = whole_operations(asked)
        groups = [self.calls.stand_in(operation) for operation in listed]
        covered = np.array([group is not None for group in groups], dtype=bool)
        values = np.full((2, len(listed)), np.nan)
        some = listed.some(covered)
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


def call_inputs(
    operations: Sequence[Operation], calls: CallModel, groups: Sequence[str]
) -> tuple[NDArray[np.float32], FloatArray]:
    """What regressors see of operations, shape (operations, len(INPUT_NAMES)), and their seconds by the constants.

    The columns are those of GPUs' own predictors; those that say something about a GPU are 0.
    """
    time_s = calls.time_s(operations, groups)
    matrix = OperationList.of(operations).derived(same_everywhere)
    return regressor_inputs(matrix, time_s, np.full(len(time_s), calls.call_s)), time_s
