"""CalibratedPredictor: any predictor of operations, corrected by a board's profile. The one place where factors act.

Its intervals come from the errors of the profile on operations that were left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import PredictsOperations, WrappedPredictor
from ..intervals.calibration import ONE_SIGMA
from ..intervals.conformal import conformal_rank
from ..intervals.operation_spread import OperationSpread, PredictedOperations
from ..intervals.widening import clock_error
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from ..physics.norms import smooth_max
from ..physics.operation_numbers import FAMILIES, numbers_of
from .parts import LAUNCHES, PARTS, STATIC, calibrated_work, factor_of, members, places_of
from .profile import ALL, BoardProfile

_LEAST = 1e-30  # Instead of a division by zero.


def corrected(
    found: OperationPredictions, gpu: GPU, profile: BoardProfile, clock_mhz: float, *, in_loops: bool = True
) -> OperationPredictions:
    """Predictions of operations for the board that a profile was measured on.

    Args:
        found: Predictions for any board of this GPU.
        gpu: The GPU.
        profile: The profile.
        clock_mhz: The graphics clock that they were asked for.
        in_loops: Whether they are loops on the board, with its host and at its clock. Inside a network, host times stay
            those of the reference host, and watts those of the clock: the network's host has the factor, and its clock
            is limited (networks/prepared.py, Execution.most_clock_mhz).
    """
    work, cap_w = found.work, found.power_range_w[1]
    if work is None:
        return found
    of, most_mhz = members(OperationList.of(found.operations), gpu), profile.most_clock_mhz or np.inf
    after = calibrated_work(work, profile.factors, of, most_mhz)
    static = profile.factors.get(STATIC, 1.0)
    host_s = found.host_time_s * (factor_of(LAUNCHES, profile.factors, of) if in_loops else 1.0)
    # Predicted loops already hold at the clock that the cap allows; the board may hold less. Networks find their own.
    held_mhz = np.minimum(found.held_clock_mhz, most_mhz)
    (old_s, old_j), (new_s, new_j) = work.at(found.held_clock_mhz), after.at(held_mhz)
    device_s = found.device_time_s * new_s / np.maximum(old_s, _LEAST)
    waiting_w = static * np.maximum(found.power_w - found.dynamic_energy_j / np.maximum(found.time_s, _LEAST), 0.0)
    waiting_w *= static_power_w(gpu, held_mhz) / static_power_w(gpu, found.held_clock_mhz)
    shared_mhz = min(clock_mhz, most_mhz) if in_loops else clock_mhz
    dynamic_j = found.dynamic_energy_j * new_j / np.maximum(old_j, _LEAST)
    dynamic_j = np.minimum(dynamic_j, np.maximum(cap_w - waiting_w, 1.0) * np.maximum(device_s, _LEAST))
    time_s = found.time_s * smooth_max(device_s, host_s)
    time_s = np.maximum(time_s / smooth_max(found.device_time_s, found.host_time_s), device_s)
    power_w = np.minimum(waiting_w + dynamic_j / np.maximum(time_s, _LEAST), cap_w)
    return replace(
        found,
        time_s=time_s,
        power_w=power_w,
        energy_j=time_s * power_w,
        device_time_s=device_s,
        dynamic_energy_j=dynamic_j,
        host_time_s=host_s,
        static_power_w=found.static_power_w * static * static_power_w(gpu, shared_mhz) / static_power_w(gpu, clock_mhz),
        held_clock_mhz=held_mhz,
        work=after,
        spread=_spread(found.spread, gpu, profile, clock_mhz),
    )


def _spread(
    spread: OperationSpread | None, gpu: GPU, profile: BoardProfile, clock_mhz: float
) -> OperationSpread | None:
    if not isinstance(spread, OperationSpread):
        return spread
    own = {each.name: getattr(spread, each.name) for each in fields(OperationSpread)}
    away = float(abs(np.log2(clock_mhz / gpu.boost_clock_mhz)))
    return CalibratedSpread(**own, profile=profile, octaves_away=away)


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


@dataclass(frozen=True, eq=False)
class CalibratedPredictor(WrappedPredictor):
    """A predictor of operations whose predictions are those for one board.

    Args:
        own: The predictor that is corrected.
        profile: What was measured on the board.
    """

    profile: BoardProfile

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """See `PredictsOperations.predict`."""
        clock = self.gpu.checked_clock_mhz(clock_mhz)
        return corrected(self.own.predict(operations, clock_mhz, power_limit_w), self.gpu, self.profile, clock)

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """See `PredictsOperations.predict_for_network`."""
        found = self.own.predict_for_network(operations, power_limit_w)
        return corrected(found, self.gpu, self.profile, float(self.gpu.boost_clock_mhz), in_loops=False)

    def factors_of(self, operation: Operation) -> dict[str, float]:
        """Name of a part -> the factor that acts on it, for the parts of an operation."""
        names = [name for name in PARTS if name in self.profile.factors]
        of_each = members(OperationList([operation]), self.gpu)[0, places_of(names)].tolist()
        return {name: self.profile.factors[name] ** much for name, much in zip(names, of_each, strict=True) if much}


def calibrated(own: PredictsOperations, profile: BoardProfile) -> CalibratedPredictor:
    """A predictor corrected by a profile; see `CalibratedPredictor` for the arguments.

    Raises InputError: the profile is of another GPU.
    """
    profile.check_gpu(own.gpu.name)
    # The same object each time: what was predicted of a network is cached by predictor (networks/prepared.py).
    return _MADE(own, profile)


_MADE: Callable[..., CalibratedPredictor] = lru_cache(maxsize=16)(CalibratedPredictor)
