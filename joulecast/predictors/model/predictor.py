"""A predictor for GPUs that were never measured, at any clock.

All that it needs of a GPU is its data sheet. Physics gives the least time of an operation (least_times.py), and a
residual model predicts the ratio of device time to it, which was learned over many GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import ResidualModel, SharedModel, launch_s, require_mode
from ..intervals.calibration import Calibration
from ..intervals.conformal import power_range_w
from ..intervals.operation_spread import OperationSpread
from ..operation_predictions import OperationPredictions
from ..physics.clock import Work
from ..physics.energy import static_power_w
from ..physics.least_times import LeastTimes
from ..physics.limits import with_limits
from ..physics.norms import smooth_max
from ..physics.operation_numbers import numbers_of
from ..physics.partial import measured_operations, work_shares
from ..physics.power_cap import loop_clocks_mhz
from ..physics.precisions import attention_in_half, fp64_in_fp32, tf32_in_fp32, without_tf32
from .learned import OneModel

_LEAST_J = 1e-15  # Instead of a division by zero.


def lists_asked_for(operations: OperationList, gpu: GPU) -> tuple[OperationList, ...]:
    """The lists that `AnyGpuPredictor.work` asks the residual model and the kernels for, to prefetch them."""
    listed = _as_run(operations.derived(with_limits).operations, gpu)
    plain = listed.derived(tf32_in_fp32).operations
    return (listed, plain) if plain else (listed,)


def _as_run(operations: OperationList, gpu: GPU) -> OperationList:
    """The operations as a GPU runs them: TF32 is a permission, of no use where its rate is not above that of fp32."""
    is_quicker = gpu.peak_flops.get("tf32", 0.0) > gpu.peak_flops["fp32"]
    return operations if is_quicker else operations.derived(without_tf32)


def _energy_if_slower(predictions: OperationPredictions, slower: FloatArray) -> FloatArray | float:
    """Dynamic energy of operations that take longer for the same work, relative to that without; shape (operations,).

    Multiprocessors are awake for longer. The energy of FLOPs and bytes stays the same.
    """
    work = predictions.work
    if work is None:
        return 1.0
    energy: FloatArray = 1.0 + (slower - 1.0) * work.awake_j / np.maximum(work.dynamic_j, _LEAST_J)
    return energy


@dataclass(frozen=True, eq=False)
class AnyGpuPredictor:
    """The predictor for any GPU, applied to one GPU and one mode.

    Args:
        gpu: Any GPU of the catalogue, or one that a file describes.
        mode: "inference" or "training".
        learned: The residual model, which all GPUs share.
        calibration: Errors on chips that were left out; None where they are not known.
        kernels: Model of the device times of kernels in half precision and below. It replaces the residual model for
            the operations that it covers. None if there is no such model.
    """

    gpu: GPU
    mode: str
    learned: ResidualModel
    calibration: Calibration | None = None
    kernels: OneModel | None = None

    @property
    def coverage(self) -> tuple[str, ...]:
        """What is covered: every kind, in the precisions of the GPU that were learned."""
        kinds = tuple(f"all kinds in {precision}" for precision in self.gpu.unquantized)
        return kinds if self.kernels is None else (*kinds, *self.kernels.coverage(self.gpu))

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """Predict operations on this GPU; see `OperationPredictor.predict`.

        Raises:
            InputError: An operation of another mode, or a clock or a cap that the GPU cannot hold.
        """
        clock, cap_w = self.gpu.checked_clock_mhz(clock_mhz), self.gpu.checked_power_limit_w(power_limit_w)
        return self._predict(operations, clock, cap_w)

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """See `PredictsOperations.predict_for_network`; the cap is left out, which spares a search for each operation.

        Raises:
            InputError: An operation of another mode.
        """
        found = self._predict(operations, float(self.gpu.boost_clock_mhz), np.inf)
        if self.kernels is None or found.work is None:
            return found
        # Weights come from the memory, which no clock changes.
        read_s = self.kernels.read_s(_as_run(OperationList.of(operations), self.gpu), self.gpu)
        bounds = found.work.bounds
        work = replace(found.work, bounds=bounds._replace(fixed_s=np.fmax(bounds.fixed_s, read_s)))
        known_s = found.device_time_s
        return replace(found, work=work, device_time_s=np.where(np.isnan(known_s), known_s, np.fmax(known_s, read_s)))

    def _predict(self, operations: Sequence[Operation], clock: float, cap_w: float) -> OperationPredictions:
        operations = OperationList.of(operations)
        require_mode(operations, self.mode)
        # Quantized products are covered only where they were measured. Other precisions say nothing about them.
        has = {"tf32", *self.gpu.unquantized}
        covered = np.array([o.precision in has and not o.row.measured_only for o in operations], dtype=bool)
        if self.kernels is not None:
            covered |= ~np.isnan(self.kernels.device_s(operations, self.gpu))
        values = np.full((6, len(operations)), np.nan)
        work = None
        if covered.any():
            some = operations if covered.all() else OperationList(compress(operations, covered))
            work = self.work(some, capped=np.isfinite(cap_w))
            values[:, covered] = self._predict_covered(some, work, clock, cap_w)
            work = work.scatter(covered)
        time_s, power_w, device_s, dynamic_j, host_s, held_mhz = values
        return OperationPredictions(
            operations=operations,
            time_s=time_s,
            power_w=power_w,
            energy_j=time_s * power_w,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            host_time_s=host_s,
            source=tuple("modelled" if known else "missing" for known in covered.tolist()),
            static_power_w=static_power_w(self.gpu, clock),
            held_clock_mhz=held_mhz,
            work=work,
            spread=self._spread(operations),
            power_range_w=power_range_w(self.gpu, cap_w),
        )

    def work(self, operations: Sequence[Operation], *, capped: bool = False) -> Work:
        """Work of covered operations at the default clock; see clock.py and `ResidualModel.factors`.

        cuDNN chooses between TF32 and fp32, so the time is the smaller of both. Some limit others (limits.py).
        """
        listed, masked, trained, multiples = OperationList.of(operations).derived(with_limits)
        work = self._allowing_fp32(_as_run(listed, self.gpu), capped)
        work = work.limited(trained, multiples) if len(trained) else work
        return work.limited(masked, at_most=True) if len(masked) else work

    def _allowing_fp32(self, listed: OperationList, capped: bool) -> Work:
        places, always, plain = listed.derived(tf32_in_fp32)
        work = self._work(listed, capped)
        if not plain:
            return work
        in_fp32 = self._work(plain, capped).scatter(places)
        quicker = places & (np.nan_to_num(in_fp32.device_s, nan=np.inf) < work.device_s)
        # Launches decide the time of small operations, and chance which is quicker. Their energies are far apart.
        least_j = np.where(always, in_fp32.dynamic_j, np.fmin(work.dynamic_j, in_fp32.dynamic_j))
        found = work.with_others(in_fp32, quicker | always)
        return found.scaled_by(1.0, least_j / np.maximum(found.dynamic_j, _LEAST_J))

    def _work(self, operations: OperationList, capped: bool) -> Work:
        whole = operations.derived(measured_operations)
        work = self._whole_work(whole, capped)
        if whole is operations:
            return work
        share = work_shares(operations, whole)
        return work.scaled_by(share, share)

    def _whole_work(self, operations: OperationList, capped: bool) -> Work:
        # Nothing was measured in fp64. Its ratio of device time to least time is assumed to be that of fp32.
        seen = operations.derived(fp64_in_fp32)
        ratio, energy_ratio = self.learned.factors(seen, self.gpu, capped=capped)
        works = 1.0 - numbers_of(operations).is_identity
        clock = float(self.gpu.boost_clock_mhz)
        if self.kernels is not None:
            device_s = self.kernels.device_s(operations, self.gpu)
            least_s = LeastTimes.of(operations, self.gpu, clock).time_s
            ratio = np.where(np.isnan(device_s), ratio, device_s / least_s)
            # Attention was never measured in fp32. It has as many blocks as in half precision, and more to compute.
            places, in_half = operations.derived(attention_in_half)
            if len(places):
                half_s = self.kernels.device_s(in_half, self.gpu)
                ratio[places] = np.fmax(ratio[places], half_s / least_s[places])
        work = Work.of(operations, self.gpu, clock, ratio * works, self.learned.energy)
        work = work.scaled_by(1.0, energy_ratio).bounded(operations)
        return work if self.kernels is None else self._with_power(work, operations, self.kernels)

    def _with_power(self, work: Work, operations: OperationList, kernels: OneModel) -> Work:
        """The work with dynamic energies that follow from the power of kernels, as far as it is known."""
        demand_w = kernels.demand_w(operations, self.gpu)
        if np.isnan(demand_w).all():
            return work
        clock = float(self.gpu.boost_clock_mhz)
        device_s, dynamic_j = work.at(clock)
        known_j = (demand_w - static_power_w(self.gpu, clock)) * device_s
        more = kernels.power_share(operations, self.gpu) * (known_j / np.maximum(dynamic_j, _LEAST_J) - 1.0)
        return work.scaled_by(1.0, np.where(np.isnan(demand_w), 1.0, 1.0 + more))

    def _spread(self, operations: OperationList) -> OperationSpread | None:
        """Errors on chips that were left out; for kernels, errors for the measurements that their times rest on."""
        if self.calibration is None:
            return None
        fallback: tuple[OperationSpread, NDArray[np.bool_]] | None = None
        run = _as_run(OperationList.of(operations), self.gpu)
        for calibration, places in () if self.kernels is None else self.kernels.calibrations(run, self.gpu):
            others = places if fallback is None else places | fallback[1]
            fallback = OperationSpread(calibration, frozenset(), None, fallback), others
        return OperationSpread(self.calibration, frozenset(), None, fallback)

    def _predict_covered(self, operations: Sequence[Operation], work: Work, clock: float, cap_w: float) -> FloatArray:
        host_s = launch_s(operations, self.mode, self.learned.host_s)
        held_mhz = loop_clocks_mhz(work, clock, cap_w, host_s)
        # The measured loops ran under the default cap, and too shortly to throttle as networks do. So a learned time
        # already holds at the clock that the default cap allows, and is scaled from there to the held clock.
        device_s, dynamic_j = work.at(held_mhz)
        if np.isfinite(cap_w):  # An infinite cap times a device time of zero would be NaN.
            default = float(self.gpu.boost_clock_mhz)
            top_mhz = np.maximum(loop_clocks_mhz(work, default, self.gpu.power_limit_w, host_s), 1.0)
            device_s, _ = work.at(default * held_mhz / top_mhz)
            device_s = work.bounds.applied(device_s, default / clock)
            allowed_w = np.maximum(cap_w - static_power_w(self.gpu, held_mhz), 1.0)
            dynamic_j = np.minimum(dynamic_j, allowed_w * device_s)
        time_s = smooth_max(device_s, host_s)
        power_w = static_power_w(self.gpu, held_mhz) + dynamic_j / time_s
        return np.array([time_s, power_w, device_s, dynamic_j, host_s, held_mhz])

    def in_network(self, predictions: OperationPredictions, counts: FloatArray) -> OperationPredictions:
        """See `PredictsOperations.in_network`."""
        known = [source != "missing" for source in predictions.source]
        if not any(known):
            return predictions
        operations = _as_run(OperationList.of(predictions.operations), self.gpu)
        some = operations if all(known) else OperationList(compress(operations, known))
        found = predictions.times(*self.learned.in_network(some.derived(fp64_in_fp32), counts[known], self.gpu))
        if self.kernels is None:
            return found
        slower = self.kernels.in_network(operations, self.gpu)
        cycles = self.kernels.load_cycles(operations, self.gpu)
        return found.times(slower, _energy_if_slower(found, slower)).loading(cycles)

    @property
    def same_in_all_networks(self) -> bool:
        """See `PredictsOperations.same_in_all_networks`."""
        return self.learned.same_in_all_networks

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.remarks`: the measurements behind the device times of kernels."""
        return (
            ()
            if self.kernels is None
            else self.kernels.remarks(_as_run(OperationList.of(operations), self.gpu), self.gpu)
        )

    def by_fallback(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.by_fallback`; this predictor is the fallback, and has none itself."""
        return ()

    def regressor_inputs(self, operation: Operation) -> None:
        """See `PredictsOperations.regressor_inputs`; this predictor has no regressors of a single GPU."""

    def covers(self, operation: Operation) -> bool:
        """See `PredictsOperations.covers`: every kind, in the precisions of the GPU."""
        return operation.precision in {"tf32", *self.gpu.unquantized}

    @property
    def measured_launch_s(self) -> Mapping[str, float]:
        """See `PredictsOperations.measured_launch_s`; no launch was measured on this GPU."""
        return {}

    @property
    def shared_models(self) -> tuple[SharedModel, ...]:
        """See `PredictsOperations.shared_models`."""
        return (self.learned,) if self.kernels is None else (self.learned, self.kernels)
