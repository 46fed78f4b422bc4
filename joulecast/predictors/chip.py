"""ChipPart: what measurements of a chip add to physics, for the kinds and precisions that were measured on it.

Single operations were timed in loops, which may wait for the host. Two regressors learn these loops relative to
physics: their time, and the board's power. The power says for which part of a loop the device was busy
(physics/baseline.py), so that device times and dynamic energies follow. These are the same in a loop and in a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.operation import Operation
from ..operations.operation_list import OperationList, digests_of
from .contract import INPUT_NAMES, Regressor, regressor_inputs
from .intervals.calibration import Calibration
from .physics.baseline import Baseline, DeviceCosts, Loops, group_of, stand_ins
from .physics.cached import OperationRows
from .physics.clock import COLUMNS, Work
from .physics.energy import PRIOR_ENERGY, static_power_w
from .physics.fp32_kernels import counted_s
from .physics.norms import smooth_max
from .physics.operation_numbers import by_kind, numbers_of
from .physics.power_cap import measured_work
from .physics.relative import relative_features

_LEAST = 1e-15  # Instead of a division by zero.


class Known(NamedTuple):
    """What a chip's measurements say of operations, at the default clock and cap; arrays of shape (operations,).

    Args:
        covered: Whether the kind, or another that stands in for it, was measured in this precision.
        measured: Whether this very operation was measured.
        longer: Time of the loop over the smooth maximum of its device and host times.
        more: Dynamic energy of the loop over that of the operation: a loop may also accumulate gradients.
        work: Work, with NaN for operations that are not covered.
    """

    covered: NDArray[np.bool_]
    measured: NDArray[np.bool_]
    longer: FloatArray
    more: FloatArray
    work: Work

    def joined(self, other: Known) -> Known:
        """What the loops of two modes say together."""
        columns = (np.where(other.covered, its, own) for own, its in zip(self[:-1], other[:-1], strict=True))
        covered, measured, longer, more = columns
        return Known(covered, measured, longer, more, self.work.merge(other.work))


@dataclass(frozen=True, eq=False)
class ChipPart:
    """What loops of one mode that were measured on a GPU add to physics.

    Args:
        gpu: The GPU that was measured.
        mode: inference or training.
        baseline: The constants of its loops, group by group.
        time: Predicts the logarithm of loop time over the baseline's.
        power: Predicts loop power over the board's cap.
        measured: Digests of the operations that were measured.
        transferred: Kinds whose large operations were measured in the other mode only, and transferred to this one.
        calibration: Errors on operations that were held out; None where they are not known.
        network_static_w: Watts that the board draws inside networks in addition to the static power of its loops; 0
            where no network was measured.
        network_tf32_factor: Cost of operations in TF32 inside networks over that in their loops; 1 where no network was
            measured.
    """

    gpu: GPU
    mode: str
    baseline: Baseline
    time: Regressor
    power: Regressor
    measured: frozenset[str] = frozenset()
    transferred: tuple[str, ...] = ()
    calibration: Calibration | None = None
    network_static_w: float = 0.0
    network_tf32_factor: float = 1.0

    def group(self, operation: Operation) -> str | None:
        """The measured group by which an operation is predicted: its own, or that of a similar kind; None if none."""
        if operation.precision != "tf32" and operation.precision not in self.gpu.peak_flops:
            return None
        return self.baseline.stand_in(operation, self.gpu)

    def covered(self, operations: Sequence[Operation]) -> NDArray[np.bool_]:
        """Whether each operation, or another kind that stands in for it, was measured in this mode and precision."""
        n = numbers_of(operations)
        covered = by_kind(operations, lambda operation: self.group(operation) is not None).astype(bool)
        of_mode: NDArray[np.bool_] = (n.is_training > 0) == (self.mode == "training")
        return covered & of_mode

    def static_power_w(self, clock_mhz: Any) -> Any:
        """Board power in watts while the device waits; at the clocks that were not measured by the law for any GPU."""
        at_default_w = static_power_w(self.gpu, float(self.gpu.boost_clock_mhz))
        return self.baseline.static_power_w * static_power_w(self.gpu, clock_mhz) / at_default_w

    def host_s(self, operations: Sequence[Operation]) -> FloatArray:
        """Seconds of launching each operation in a loop, shape (operations,); NaN for kinds that were not measured.

        A launch takes as long in any precision, so the time is known where a kind was measured in any.
        """
        method = self.baseline.method
        of_group = {group: row.host_s[method] for group, row in self.baseline.groups.items()}
        of_kind = {group.split()[0]: seconds for group, seconds in of_group.items()}

        def known_s(operation: Operation) -> float:
            kinds = (of_kind[kind] for kind in stand_ins(operation) if kind in of_kind)
            return of_group.get(self.group(operation) or "", next(kinds, np.nan))

        return by_kind(operations, known_s)

    def known(self, operations: OperationList) -> Known:
        """What the measurements say of operations, which are whole ones (physics/variants.py)."""
        covered, measured, longer, more, *columns = self._rows.of(operations, self._made).T
        work = Work(self.gpu, *columns, cap_w=self.gpu.power_limit_w)
        return Known(covered > 0, measured > 0, longer, more, work)

    @cached_property
    def _rows(self) -> OperationRows:
        return OperationRows(4 + len(COLUMNS))

    def _made(self, operations: OperationList) -> FloatArray:
        covered = self.covered(operations)
        rows = np.full((len(operations), 4 + len(COLUMNS)), np.nan)
        rows[:, :4] = 0.0, 0.0, 1.0, 1.0
        if covered.any():
            rows[covered] = self._covered_rows(operations.some(covered))
        return rows

    def _covered_rows(self, operations: OperationList) -> FloatArray:
        groups = by_kind(operations, lambda operation: self.group(operation) or "").tolist()
        counted, host_s = counted_s(operations, self.gpu), self.baseline.host_s(groups)
        static_w, cap_w = self.baseline.static_power_w, self.gpu.power_limit_w
        # Loops and costs by the baseline alone.
        device_s, loop_s = self.baseline.device_s(groups, counted), self.baseline.loop_s(groups, counted)
        dynamic_j = device_s * np.maximum(self.baseline.active_power_w(groups) - static_w, 0.0)
        loops, costs = Loops(loop_s, static_w + dynamic_j / loop_s), DeviceCosts(device_s, dynamic_j)
        own = by_kind(operations, lambda operation: group_of(operation, self.gpu) == self.group(operation))
        if own.any():
            learned = self._learned_loops(operations, loops.time_s, host_s)
            learned_costs = self.baseline.device_costs(operations, groups, learned, self.gpu)
            loops, costs = Loops(*np.where(own, learned, loops)), DeviceCosts(*np.where(own, learned_costs, costs))
        # No board draws more than its cap, or less than it draws without work.
        power_w = np.clip(loops.power_w, static_w, cap_w)
        active_w = static_w + costs.dynamic_energy_j / np.maximum(costs.time_s, _LEAST)
        work = measured_work(operations, self.gpu, costs.time_s, costs.dynamic_energy_j, active_w, PRIOR_ENERGY)
        time_s = np.maximum(loops.time_s, work.device_s)
        longer = time_s / smooth_max(work.device_s, host_s)
        static_w = self.static_power_w(work.clock_mhz)
        dynamic_j = np.minimum(work.dynamic_j, (cap_w - static_w) * work.device_s)
        more = (power_w - static_w) * time_s / np.maximum(dynamic_j, _LEAST)
        measured = [digest in self.measured for digest in digests_of(operations)]
        return np.column_stack([np.ones(len(operations)), measured, longer, more, work.columns.T])

    def _learned_loops(self, operations: OperationList, loop_s: FloatArray, host_s: FloatArray) -> Loops:
        # Trees walk thousands of rows in half the time if those that take the same branches follow one another.
        order = np.lexsort([loop_s, numbers_of(operations).kind])
        inputs = regressor_inputs(relative_features(operations, self.gpu), loop_s, host_s)[order]
        log_ratio, share = np.empty((2, len(order)))
        log_ratio[order], share[order] = self.time(inputs), self.power(inputs)
        return Loops(loop_s * np.exp(log_ratio), share * self.gpu.power_limit_w)

    def inputs(self, operation: Operation) -> NDArray[np.float32] | None:
        """What the regressors see of an operation, shape (1, inputs); None for one that is not covered."""
        operation = operation.replace(gradients="all")
        group = self.group(operation)
        if group is None:
            return None
        loop_s = self.baseline.loop_s([group], counted_s([operation], self.gpu))
        return regressor_inputs(relative_features([operation], self.gpu), loop_s, self.baseline.host_s([group]))

    def facts(self) -> dict[str, Any]:
        """What is stored beside the regressors."""
        return {
            "gpu": self.gpu.name,
            "mode": self.mode,
            "inputs": list(INPUT_NAMES),
            "baseline": self.baseline.to_dict(),
            "measured": sorted(self.measured),
            "transferred": list(self.transferred),
            "network_static_w": self.network_static_w,
            "network_tf32_factor": self.network_tf32_factor,
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }
