"""CalibratedPredictor: a predictor of operations on one board, whose profile acts on the work of operations.

Its intervals come from the errors of the profile on operations that were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...hardware.gpu import VoltageCurve
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..intervals.operation_spread import OperationSpread
from ..operation_predictions import OperationPredictions
from ..physics.clock import Work
from ..physics.energy import voltage_of
from ..physics.operation_numbers import FAMILIES, KIND_PLACES, numbers_of
from ..physics.roofline import on_tensor_cores
from ..predictor import OperationPredictor
from .profile import CYCLES, DRAM, JOULES, PARTS, STATIC, VOLTAGE, WHOLE, BoardProfile, launches_in, places_of

_HIGHEST = 0.99  # Of a lowest voltage, relative to that at the boost clock.
_MIDDLE_BYTES, _DECADES = 1e7, 2.0  # Where factors of sizes are 1, and how far from there they grow: no farther.


def members(operations: OperationList, gpu: GPU) -> FloatArray:
    """How much each operation is a part of each of PARTS: 1 or 0, or decades of bytes; shape (operations, parts)."""
    n = numbers_of(operations)
    trained, product = np.asarray(n.is_training) > 0, np.asarray(n.is_product) > 0
    tensor = product & np.asarray(on_tensor_cores(n, gpu))
    size = np.clip(np.log10(np.maximum(n.bytes_read + n.bytes_written, 1.0) / _MIDDLE_BYTES), -_DECADES, _DECADES)
    family = np.asarray(n.family)[:, None] == np.arange(len(FAMILIES))
    kind = np.asarray(n.kind)[:, None] == np.array([*KIND_PLACES.values()])
    mode, every = np.column_stack([~trained, trained]), np.ones((len(operations), 1))
    units = np.column_stack([every, tensor, product & ~tensor, ~product])
    whole = family & mode[:, :1], family & mode[:, 1:], kind, family * size[:, None]
    return np.hstack([units, *whole, mode, *[every] * 4, family]).astype(float)


@lru_cache(maxsize=64)
def with_voltage(gpu: GPU, lowest: float, slope: float) -> GPU:
    """A GPU with the voltage curve of a board.

    Args:
        gpu: The GPU, with the curve of the catalogue.
        lowest: Voltage of the board at its lowest clocks, over that of the GPU.
        slope: How steeply it falls from the boost clock on, over that of the GPU. Where it ends to fall follows.
    """
    known = voltage_of(gpu)
    flat, knee = known.curve.flat_mv / known.boost_mv, known.curve.knee_mhz / known.measured_boost_mhz
    if (lowest, slope) == (1.0, 1.0) or flat >= 1:
        return gpu
    own_flat = min(lowest * flat, _HIGHEST)
    own_knee = 1 - (1 - knee) * (1 - own_flat) / (1 - flat) / slope
    curve = VoltageCurve(own_flat, own_knee * known.boost_mhz, known.boost_mhz, 1.0, known.curve.bend)
    return replace(gpu, voltage=curve)


@dataclass(frozen=True, eq=False)
class CalibratedPredictor(OperationPredictor):
    """A predictor of operations whose predictions are those for one board.

    Args:
        profile: What was measured on the board.
    """

    profile: BoardProfile = field(kw_only=True)

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """See `OperationPredictor.predict`."""
        clock = self.gpu.checked_clock_mhz(clock_mhz)
        held_mhz = min(clock, self.profile.most_clock_mhz or np.inf)
        return self._with_errors(super().predict(operations, held_mhz, power_limit_w), clock)

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """See `OperationPredictor.predict_for_network`.

        The host that launches networks has the factor of launches (networks/predictor.py), and the highest clock of the
        board limits that of networks (`Execution.most_clock_mhz`).
        """
        found = super().predict_for_network(operations, power_limit_w)
        found = replace(found, host_time_s=found.host_time_s / self._factor(launches_in(self.mode)))
        return self._with_errors(found, float(self.gpu.boost_clock_mhz))

    def work(self, operations: Sequence[Operation], *, capped: bool = False) -> Work:
        """See `OperationPredictor.work`."""
        acting, factors = members(OperationList.of(operations), self.gpu), self.profile.factors

        def factor(names: Sequence[str]) -> FloatArray:
            named = [name for name in names if name in factors]
            product: FloatArray = np.exp(acting[:, places_of(named)] @ np.log([factors[name] for name in named]))
            return product

        work, whole, cycles = super().work(operations, capped=capped), factor(WHOLE), factor(CYCLES)
        # The clocks that this board holds under its cap were not measured one by one.
        work = work.scaled_by(1.0, factor(JOULES))
        board = with_voltage(self.gpu, *map(self._factor, VOLTAGE))
        return replace(
            work,
            gpu=board,
            compute_s=work.compute_s * whole * cycles,
            memory_s=work.memory_s * whole * factor((DRAM,)),
            cache_s=work.cache_s * whole * cycles,
            cap_w=np.inf if factors else work.cap_w,
        )

    def _host_s(self, operations: OperationList) -> FloatArray:
        return super()._host_s(operations) * self._factor(launches_in(self.mode))

    def _static_power_w(self, clock_mhz: Any) -> Any:
        return super()._static_power_w(clock_mhz) * self._factor(STATIC)

    def _factor(self, name: str) -> float:
        return self.profile.factors.get(name, 1.0)

    def _with_errors(self, found: OperationPredictions, clock_mhz: float) -> OperationPredictions:
        if not isinstance(found.spread, OperationSpread):
            return found
        away = float(abs(np.log2(clock_mhz / self.gpu.boost_clock_mhz)))
        return replace(found, spread=replace(found.spread, left_out=self.profile.errors, octaves_away=away))

    def factors_of(self, operation: Operation) -> dict[str, float]:
        """Name of a part -> the factor that acts on it, for the parts of an operation."""
        names = [name for name in PARTS if name in self.profile.factors]
        of_each = members(OperationList([operation]), self.gpu)[0, places_of(names)].tolist()
        return {name: self.profile.factors[name] ** much for name, much in zip(names, of_each, strict=True) if much}


@lru_cache(maxsize=16)  # The same object each time: what was predicted of a network is cached by predictor.
def calibrated(own: OperationPredictor, profile: BoardProfile) -> CalibratedPredictor:
    """A predictor corrected by a profile. Raises InputError: the profile is of another GPU, or of no clock of it."""
    profile.check_gpu(own.gpu.name)
    if profile.most_clock_mhz is not None:
        own.gpu.checked_clock_mhz(profile.most_clock_mhz)
    return CalibratedPredictor(own.gpu, own.mode, own.find_shared, own.chips, profile=profile)
