"""OperationPredictor: a fitted predictor of one GPU and mode, from operations to time and power."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.attributes import PRECISIONS
from ..operations.operation import Operation
from ..operations.operation_list import OperationList, digests_of
from .at_default import COLUMNS, MISSING, AtDefault, rows_of
from .batches import in_batches
from .contract import Regressor, require_mode
from .intervals.calibration import Calibration
from .intervals.conformal import power_range_w
from .intervals.operation_spread import OperationSpread
from .operation_predictions import OperationPredictions
from .physics.baseline import Baseline, DeviceCosts, Loops, group_of
from .physics.energy import PRIOR_ENERGY, static_power_w
from .physics.fp32_kernels import counted_s
from .physics.measured_work import measured_work
from .physics.norms import smooth_max
from .physics.operation_numbers import numbers_of
from .physics.operation_rows import OperationRows
from .physics.partial import whole_operations, work_shares
from .physics.power_cap import loop_clocks_mhz
from .physics.relative import RELATIVE_NAMES, relative_features

INPUT_NAMES: tuple[str, ...] = (*RELATIVE_NAMES, "log_baseline", "log_baseline_over_host")
"""Inputs of a regressor: the features, the log of the baseline's loop time, and the log of that over its host time."""


_LEAST_S = 1e-15
Found = TypeVar("Found")


def _by_kind(operations: Sequence[Operation], value: Callable[[Operation], Found]) -> list[Found]:
    """A value for each operation that depends on its kind and precision alone, computed once for each pair."""
    n = numbers_of(operations)
    _, firsts, places = np.unique(n.kind * len(PRECISIONS) + n.precision, return_index=True, return_inverse=True)
    known = [value(operations[first]) for first in firsts.tolist()]
    return [known[place] for place in places.tolist()]


def regressor_inputs(matrix: FloatArray, loop_s: FloatArray, host_s: FloatArray) -> NDArray[np.float32]:
    """Put features and baseline together as the inputs of a regressor, shape (operations, len(INPUT_NAMES))."""
    inputs = np.empty((len(matrix), matrix.shape[1] + 2), np.float32)
    inputs[:, :-2], inputs[:, -2], inputs[:, -1] = matrix, np.log(loop_s), np.log(loop_s / host_s)
    return inputs


@dataclass(frozen=True, eq=False)
class OperationPredictor:
    """Physics with constants per group, corrected by two regressors.

    Args:
        gpu: The GPU that it was trained for.
        mode: inference or training.
        baseline: Physics with constants that were fitted to this GPU's loops.
        time: Predicts the logarithm of loop time over the baseline's.
        power: Predicts loop power over the board's cap.
        measured: Digests of the operations that it was trained on.
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

    @property
    def spread(self) -> OperationSpread | None:
        """Errors on held-out operations, as predictions look them up; None where they are not known."""
        if self.calibration is None:
            return None
        return OperationSpread(self.calibration, self.measured, float(self.gpu.boost_clock_mhz))

    @property
    def coverage(self) -> tuple[str, ...]:
        """The groups that were measured."""
        return tuple(self.baseline.groups)

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """See `PredictsOperations.predict`; everything was measured at the default clock and cap."""
        operations = OperationList.of(operations)
        clock, cap_w = self.gpu.checked_clock_mhz(clock_mhz), self.gpu.checked_power_limit_w(power_limit_w)
        at_default = AtDefault(self._rows.of(operations, self._at_default), self.gpu)
        covered = at_default.covered
        values = np.full((6, len(operations)), np.nan)
        work = None
        if covered.any():
            some = at_default if covered.all() else AtDefault(at_default.rows[covered], self.gpu)
            values[:, covered] = self._at(some, clock, cap_w)
            work = some.work.scatter(covered)
        time_s, power_w, device_s, dynamic_j, host_s, held_mhz = values
        as_measured = clock == self.gpu.boost_clock_mhz and cap_w == self.gpu.power_limit_w
        return OperationPredictions(
            operations=operations,
            time_s=time_s,
            power_w=power_w,
            energy_j=time_s * power_w,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            host_time_s=host_s,
            source=at_default.sources(as_measured),
            static_power_w=self._static_power_w(clock),
            held_clock_mhz=held_mhz,
            work=work,
            spread=self.spread,
            power_range_w=power_range_w(self.gpu, cap_w),
        )

    def covers(self, operation: Operation) -> bool:
        """Whether the kind, or another that stands in for it, was measured in this precision."""
        return self._group(operation) is not None

    def _static_power_w(self, clock_mhz: Any) -> Any:
        default_w = static_power_w(self.gpu, float(self.gpu.boost_clock_mhz))
        return self.baseline.static_power_w * static_power_w(self.gpu, clock_mhz) / default_w

    def _group(self, operation: Operation) -> str | None:
        if operation.precision != "tf32" and operation.precision not in self.gpu.peak_flops:
            return None
        return self.baseline.stand_in(operation, self.gpu)

    @cached_property
    def _rows(self) -> OperationRows:
        """Costs of operations at the default clock and cap, where the measurements are."""
        return OperationRows(len(COLUMNS))

    def _at_default(self, operations: OperationList) -> FloatArray:
        """Rows of `AtDefault` for operations of this mode."""
        require_mode(operations, self.mode)
        whole = operations.derived(whole_operations)
        rows = self._whole_at_default(whole)
        return rows if whole is operations else AtDefault(rows, self.gpu).parts(work_shares(operations, whole)).rows

    def _whole_at_default(self, operations: OperationList) -> FloatArray:
        groups = _by_kind(operations, self._group)
        covered = np.array([group is not None for group in groups], dtype=bool)
        rows = np.full((len(operations), len(COLUMNS)), np.nan)
        rows[:, 0] = MISSING
        if covered.any():
            some = operations if covered.all() else OperationList(compress(operations, covered))
            rows[covered] = self._covered_at_default(some, [group for group in groups if group is not None])
        return rows

    def _covered_at_default(self, operations: OperationList, groups: Sequence[str]) -> FloatArray:
        counted = counted_s(operations, self.gpu)
        matrix = relative_features(operations, self.gpu)
        host_s = self.baseline.host_s(groups)
        without_stand_in = _by_kind(operations, lambda operation: group_of(operation, self.gpu))
        own = np.array([a == b for a, b in zip(without_stand_in, groups, strict=True)], dtype=bool)
        loops, costs = self._by_constants(groups, counted)
        if own.any():
            learned = self._learned_loops(matrix[own], loops.time_s[own], host_s[own], numbers_of(operations).kind[own])
            mine, mine_in = [*compress(operations, own)], [*compress(groups, own)]
            learned_costs = self.baseline.device_costs(mine, mine_in, learned, self.gpu)
            for whole, part in (
                (loops.time_s, learned.time_s),
                (loops.power_w, learned.power_w),
                (costs.time_s, learned_costs.time_s),
                (costs.dynamic_energy_j, learned_costs.dynamic_energy_j),
            ):
                whole[own] = part
        # No board draws more than its cap, or less than it draws without work.
        static_w, cap_w = self.baseline.static_power_w, self.gpu.power_limit_w
        power_w = np.clip(loops.power_w, static_w, cap_w)
        active_w = static_w + costs.dynamic_energy_j / np.maximum(costs.time_s, _LEAST_S)
        work = measured_work(operations, self.gpu, costs.time_s, costs.dynamic_energy_j, active_w, PRIOR_ENERGY)
        device_s = work.device_s
        dynamic_j = np.minimum(costs.dynamic_energy_j, (cap_w - static_w) * device_s)
        is_measured = [digest in self.measured for digest in digests_of(operations)]
        return rows_of(is_measured, np.maximum(loops.time_s, device_s), power_w, device_s, dynamic_j, host_s, work)

    def _at(self, known: AtDefault, clock: float, cap_w: float) -> FloatArray:
        """Time, power, device time, dynamic energy, host time and held clock of covered operations."""
        of, host_s = known.of, known.of["host_s"]
        loops, costs = Loops(of["time_s"], of["power_w"]), DeviceCosts(of["device_s"], of["dynamic_j"])
        held_mhz = loop_clocks_mhz(known.work, clock, cap_w, host_s)
        if clock != self.gpu.boost_clock_mhz or cap_w != self.gpu.power_limit_w:
            costs, before = DeviceCosts(*known.work.at(held_mhz)), costs
            loops = self._loops_at_clock(loops, before, costs, host_s, held_mhz, cap_w)
        return np.array([loops.time_s, loops.power_w, costs.time_s, costs.dynamic_energy_j, host_s, held_mhz])

    def _by_constants(self, groups: Sequence[str], counted: FloatArray) -> tuple[Loops, DeviceCosts]:
        """Loops and device costs by the baseline alone."""
        static_w = self.baseline.static_power_w
        device_s = self.baseline.device_s(groups, counted)
        dynamic_j = device_s * np.maximum(self.baseline.active_power_w(groups) - static_w, 0.0)
        loop_s = self.baseline.loop_s(groups, counted)
        return Loops(loop_s, static_w + dynamic_j / loop_s), DeviceCosts(device_s, dynamic_j)

    def _learned_loops(self, matrix: FloatArray, loop_s: FloatArray, host_s: FloatArray, kinds: FloatArray) -> Loops:
        inputs = regressor_inputs(matrix, loop_s, host_s)
        log_ratio, share = in_batches(lambda rows: (self.time(rows), self.power(rows)), inputs, [kinds, loop_s])
        return Loops(loop_s * np.exp(log_ratio), share * self.gpu.power_limit_w)

    def _loops_at_clock(
        self,
        loops: Loops,
        before: DeviceCosts,
        after: DeviceCosts,
        host_s: FloatArray,
        held_mhz: FloatArray,
        cap_w: float,
    ) -> Loops:
        # The host needs as long as before; where it decides, a slower device changes little.
        time_s = loops.time_s * smooth_max(after.time_s, host_s) / smooth_max(before.time_s, host_s)
        dynamic_j = (loops.power_w - self.baseline.static_power_w) * loops.time_s
        dynamic_j = dynamic_j * after.dynamic_energy_j / np.maximum(before.dynamic_energy_j, 1e-15)
        power_w = np.minimum(self._static_power_w(held_mhz) + dynamic_j / time_s, cap_w)
        return Loops(time_s, power_w)

    def in_network(self, predictions: OperationPredictions, counts: FloatArray) -> OperationPredictions:
        """See `PredictsOperations.in_network`; those in TF32 are quicker, and the board draws more."""
        more = self.network_static_w / self.baseline.static_power_w  # At any clock, as static power itself.
        quicker = np.where(predictions.in_tf32, self.network_tf32_factor, 1.0)
        found = predictions.times(quicker, quicker)
        return replace(found, static_power_w=predictions.static_power_w * (1 + more))

    @property
    def same_in_all_networks(self) -> bool:
        """See `PredictsOperations.same_in_all_networks`."""
        return True

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """See `PredictsOperations.predict_for_network`."""
        return self.predict(operations, None, power_limit_w)

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.remarks`; there is nothing."""
        return ()

    def by_fallback(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.by_fallback`; there is no other."""
        return ()

    def regressor_inputs(self, operation: Operation) -> NDArray[np.float32] | None:
        """See `PredictsOperations.regressor_inputs`."""
        if not self.covers(operation):
            return None
        operation = operation.replace(gradients="all")
        groups = [self.baseline.stand_in(operation, self.gpu) or ""]
        loop_s = self.baseline.loop_s(groups, counted_s([operation], self.gpu))
        return regressor_inputs(relative_features([operation], self.gpu), loop_s, self.baseline.host_s(groups))

    @property
    def shared_models(self) -> tuple[()]:
        """See `PredictsOperations.shared_models`; its regressors are of one GPU."""
        return ()

    @property
    def measured_launch_s(self) -> Mapping[str, float]:
        """See `PredictsOperations.measured_launch_s`."""
        method = self.baseline.method
        return {group.split()[0]: row.host_s[method] for group, row in self.baseline.groups.items()}

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {"time": self.time, "power": self.power}

    def facts(self) -> dict[str, Any]:
        """What is stored of the predictor beside its regressors."""
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
