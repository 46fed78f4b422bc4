"""A model of calls on a CPU with a few constants, which were all measured: there is no data sheet to start from.

PyTorch runs an operation on a CPU before it returns, so that a loop over it takes

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

from ...arrays import FloatArray
from ...operations.operation import Operation
from ..formats.numbers import number, numbers
from ..physics.baseline import STAND_INS
from ..physics.operation_numbers import numbers_of

_REACHED = 0.95  # Quantile of rates and bandwidths; the very best one may be an outlier.
_LEAST_S = 1e-9


def as_run(operation: Operation) -> Operation:
    """The operation in the precision in which a CPU runs it: what a GPU runs in TF32, a CPU runs in fp32."""
    return operation.replace(precision="fp32") if operation.precision == "tf32" else operation


def group_of(operation: Operation) -> str:
    """The group of an operation: its kind in its precision."""
    return f"{operation.kind} {operation.precision}"


@dataclass(frozen=True)
class CallModel:
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
        """Derive the constants from measured operations.

        Args:
            operations: The operations, at least one.
            time_s: Their seconds per call, shape (operations,).
        """
        n = numbers_of(operations)
        call_s = float(time_s.min())
        rates = n.flops[n.is_product > 0] / time_s[n.is_product > 0]
        bandwidths = (n.bytes_read + n.bytes_written) / time_s
        known = cls(
            call_s=call_s,
            flops_per_s=float(np.quantile(rates if len(rates) else n.flops / time_s + 1, _REACHED)),
            bytes_per_s=float(np.quantile(bandwidths, _REACHED)),
            slowdowns={},
        )
        slower = np.maximum(time_s - call_s, _LEAST_S) / known.least_s(operations)
        groups = np.array([group_of(operation) for operation in operations])
        slowdowns = {str(group): float(np.median(slower[groups == group])) for group in np.unique(groups)}
        return cls(call_s, known.flops_per_s, known.bytes_per_s, slowdowns)

    def stand_in(self, operation: Operation) -> str | None:
        """The measured group whose slowdown is used for an operation: its own, a similar one, or None."""
        kinds = () if operation.row.measured_only else STAND_INS[operation.row.family]
        groups = (f"{kind} {operation.precision}" for kind in (operation.kind, *kinds))
        return next((group for group in groups if group in self.slowdowns), None)

    def least_s(self, operations: Sequence[Operation]) -> FloatArray:
        """Seconds that rate and bandwidth allow, shape (operations,)."""
        least_s: FloatArray = np.maximum(np.maximum(*self._parts_s(operations)), _LEAST_S)
        return least_s

    def memory_bound(self, operations: Sequence[Operation]) -> list[bool]:
        """Whether moving bytes takes longer than arithmetic, for each operation."""
        compute_s, memory_s = self._parts_s(operations)
        return [bool(longer) for longer in memory_s > compute_s]

    def _parts_s(self, operations: Sequence[Operation]) -> tuple[FloatArray, FloatArray]:
        n = numbers_of(operations)
        return n.flops / self.flops_per_s, (n.bytes_read + n.bytes_written) / self.bytes_per_s

    def time_s(self, operations: Sequence[Operation], groups: Sequence[str]) -> FloatArray:
        """Seconds per call by the constants alone, shape (operations,).

        Args:
            operations: The operations.
            groups: Group of each, which has a slowdown.
        """
        return self.call_s + np.array([self.slowdowns[group] for group in groups]) * self.least_s(operations)

    def to_dict(self) -> dict[str, Any]:
        """The constants as a dictionary."""
        return {
            "call_s": self.call_s,
            "flops_per_s": self.flops_per_s,
            "bytes_per_s": self.bytes_per_s,
            "slowdowns": dict(self.slowdowns),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            call_s=number(value["call_s"]),
            flops_per_s=number(value["flops_per_s"]),
            bytes_per_s=number(value["bytes_per_s"]),
            slowdowns=numbers(value["slowdowns"]),
        )
