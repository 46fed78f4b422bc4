"""How far a prediction may be off: the errors of calibration.py, looked up for one request."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...hardware import GPU
from ...operations import Operation
from ..physics.features import FloatArray
from .calibration import QUANTITIES, Calibration
from .clock_errors import BASIS, CLOCK_ERRORS, octaves
from .conformal import conformal_error, conformal_rank
from .network_calibration import NetworkCalibration, shares_of

if TYPE_CHECKING:
    from ..operation_predictions import OperationPredictions

FAR_SHARE = 0.2
"""Share of a network's device time in operations far outside the training data, from where the network is, too."""


def power_range_w(gpu: GPU, power_limit_w: float) -> tuple[float, float]:
    """Least and most watts that a board can draw under a cap."""
    idle_w = gpu.idle_power_w
    if idle_w is None:
        idle_w = 0.0 if gpu.idle_curve is None else float(gpu.idle_curve.at(float(gpu.min_clock_mhz)))
    return min(idle_w, power_limit_w), power_limit_w


def within_range(low: Any, value: Any, high: Any, power_range_w: tuple[float, float]) -> tuple[Any, Any]:
    """An interval of power around a value, without what the board cannot draw."""
    least, most = power_range_w
    return np.minimum(np.maximum(low, least), value), np.maximum(np.minimum(high, most), value)


@dataclass(frozen=True)
class OperationIntervals:
    """Low and high of each quantity, arrays of one length; NaN where no errors are known.

    Args:
        level: Share of such operations that should lie within.
        time_s, power_w, energy_j: Low and high, of loops as in `OperationPredictions`.
    """

    level: float
    time_s: tuple[FloatArray, FloatArray]
    power_w: tuple[FloatArray, FloatArray]
    energy_j: tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class OperationSpread:
    """Where to look the errors of operations up.

    Args:
        calibration: Of their predictor.
        trained_on: Digests of the operations that it was trained on.
        measured_mhz: The clock that those were measured at; None for a predictor of any clock.
        filled: Errors of the predictor that filled operations in, and which those are.
    """

    calibration: Calibration
    trained_on: frozenset[str]
    measured_mhz: float | None
    filled: tuple[OperationSpread, NDArray[np.bool_]] | None = None

    def log_errors(self, predictions: OperationPredictions, level: float) -> dict[str, FloatArray]:
        """Half widths of the logarithms of time, power and energy.

        Raises:
            InputError: The level is not between 0 and 1, or higher than the errors support.
        """
        operations = predictions.operations
        looked_up = _looked_up(self.calibration, self.trained_on, operations)
        measured, distances = looked_up.measured, looked_up.distances
        found = {}
        for quantity in ("time", "power", "energy"):
            asked = (level, operations, predictions.host_bound, measured, distances)
            if quantity == "power":
                half = self.calibration.power_errors(*asked, predictions.power_w)
            else:
                half = self.calibration.log_errors(quantity, *asked)
            if self.measured_mhz is not None:
                half = np.hypot(
                    half, clock_error(quantity, level, octaves(predictions.held_clock_mhz, self.measured_mhz))
                )
            found[quantity] = half
        if self.filled is not None:
            other, places = self.filled
            for quantity, half in other.log_errors(predictions, level).items():
                found[quantity] = np.where(places & ~np.isnan(half), half, found[quantity])
        return found

    def told(self, predictions: OperationPredictions) -> ToldOperationSpread:
        """The same with everything looked up, at the usual levels."""
        levels = {}
        for level in ToldOperationSpread.LEVELS:
            with contextlib.suppress(InputError):
                levels[level] = self.log_errors(predictions, level)
        return ToldOperationSpread(levels, tuple(map(bool, self.far_outside(predictions.operations))))

    def far_outside(self, operations: Sequence[Operation]) -> NDArray[np.bool_]:
        """See `Calibration.far_outside`."""
        return _looked_up(self.calibration, self.trained_on, tuple(operations)).far


@dataclass(frozen=True)
class ToldOperationSpread:
    """An OperationSpread with everything looked up for certain operations, so that it can travel.

    Args:
        half_widths: Level -> quantity -> half widths of the logarithms.
        far: Which operations are far outside the training data.
    """

    LEVELS: ClassVar[tuple[float, ...]] = (0.5, 0.68, 0.8, 0.9, 0.95)

    half_widths: Mapping[float, Mapping[str, FloatArray]]
    far: tuple[bool, ...]

    def log_errors(self, predictions: OperationPredictions, level: float) -> Mapping[str, FloatArray]:
        """See `OperationSpread.log_errors`.

        Raises:
            InputError: A level that was not looked up.
        """
        if level not in self.half_widths:
            known = ", ".join(map(str, self.half_widths))
            raise InputError("intervals that come from a service have certain levels", given=level, allowed=known)
        return self.half_widths[level]

    def far_outside(self, operations: Sequence[Operation]) -> NDArray[np.bool_]:
        """See `OperationSpread.far_outside`."""
        return np.array(self.far, dtype=bool)


@dataclass(frozen=True, eq=False)
class _LookedUp:
    """What a calibration says of some operations whatever the clock.

    Args:
        calibration: Which.
        operations: Of what.
        measured: Which of them were measured.
        distances: How far each is from those that were.
    """

    calibration: Calibration
    operations: tuple[Operation, ...]
    measured: NDArray[np.bool_]
    distances: FloatArray

    @cached_property
    def far(self) -> NDArray[np.bool_]:
        """See `Calibration.far_outside`."""
        return self.calibration.far_outside(self.operations, self.distances)

    @cached_property
    def sigmas(self) -> dict[str, FloatArray]:
        """Quantity -> see `Calibration.sigma`."""
        known = self.operations, self.measured, self.distances
        return {quantity: self.calibration.sigma(quantity, *known) for quantity in QUANTITIES}


# A network is asked about at one clock after the other.
@lru_cache(maxsize=256)
def _looked_up(calibration: Calibration, trained_on: frozenset[str], operations: tuple[Operation, ...]) -> _LookedUp:
    measured = np.array([operation.digest in trained_on for operation in operations], dtype=bool)
    return _LookedUp(calibration, operations, measured, calibration.closeness.distances(operations))


def clock_error(quantity: str, level: float, octaves_away: FloatArray) -> FloatArray:
    """Half width of a logarithm that a clock so far from the one that was measured adds; none at that clock.

    Raises:
        InputError: The level is higher than the errors support.
    """
    if not np.any(octaves_away):
        return np.zeros_like(octaves_away)
    return conformal_error(CLOCK_ERRORS[quantity], level, BASIS) * octaves_away


@dataclass(frozen=True)
class NetworkSpread:
    """What the errors on networks that were left out say about one prediction.

    Args:
        networks: Those errors.
        composition: How the prediction was composed.
        operations: Where the errors of its operations are; None where the networks' need no difficulty.
        counts: Calls of each operation.
        predictions: Of its operations.
        measured_mhz: The clock that was measured, if that is another than was asked for.
    """

    networks: NetworkCalibration
    composition: str
    operations: OperationSpread | None
    counts: FloatArray
    predictions: OperationPredictions
    measured_mhz: float | None

    @property
    def basis(self) -> str:
        """Where the errors come from, in words."""
        parts = [self.networks.basis]
        if self.measured_mhz is not None:
            parts.append(f"what another clock adds: {BASIS}")
        if self.missing_share:
            parts.append("what is missing: as much time and energy per FLOP or byte as the rest")
        return "; ".join(parts)

    @cached_property
    def units(self) -> Mapping[str, float]:
        """The difficulty by quantity."""
        if self.operations is None:
            return dict.fromkeys(self.networks.scores[self.composition], 1.0)
        spread = self.operations
        looked_up = _looked_up(spread.calibration, spread.trained_on, self.predictions.operations)
        return self.networks.difficulty_of(*shares_of(self.counts, self.predictions), looked_up.sigmas)

    @cached_property
    def missing_share(self) -> float:
        """Share of the network's FLOPs, or bytes if that is more, in operations that are in no total."""
        missing = np.array([source == "missing" for source in self.predictions.source])
        if not missing.any():
            return 0.0
        work = np.array([(o.flops, o.bytes_read + o.bytes_written) for o in self.predictions.operations], dtype=float)
        work *= self.counts[:, None]
        return float((work[missing].sum(axis=0) / np.maximum(work.sum(axis=0), 1.0)).max())

    @property
    def far_outside(self) -> bool:
        """Whether much of the device time is in operations far outside the training data."""
        if self.operations is None:
            return False
        device_s = np.nan_to_num(self.counts * self.predictions.device_time_s)
        far = self.operations.far_outside(self.predictions.operations)
        return float(device_s[far].sum()) > FAR_SHARE * float(device_s.sum())

    def supports(self, level: float) -> bool:
        """Whether there are enough errors for an interval of this level.

        Raises:
            InputError: The level is not between 0 and 1.
        """
        return _supports(self.networks.scores[self.composition], self.measured_mhz, level)

    def around(self, quantity: str, value: float, level: float, held_mhz: float) -> tuple[float, float]:
        """Low and high of a quantity, for a prediction with this held clock.

        Raises:
            InputError: The level is not between 0 and 1, or higher than the errors support.
        """
        errors = self.networks.scores[self.composition][quantity]
        half = _half_width(errors, self.units[quantity], self.measured_mhz, quantity, level, held_mhz)
        return _low_high(quantity, value, half, self.missing_share)

    def told(self) -> ToldNetworkSpread:
        """The same with everything looked up."""
        scores = {name: tuple(map(float, each)) for name, each in self.networks.scores[self.composition].items()}
        units = {name: float(unit) for name, unit in self.units.items()}
        return ToldNetworkSpread(scores, units, self.missing_share, self.far_outside, self.basis, self.measured_mhz)


@dataclass(frozen=True)
class ToldNetworkSpread:
    """A NetworkSpread with everything looked up: what intervals take and nothing else, so that it can travel.

    Args:
        scores: Sorted absolute log errors on networks by quantity, in units of their difficulty.
        units: The difficulty by quantity.
        missing_share: See NetworkSpread, as for the others.
        far_outside: Whether the network is.
        basis: Where the errors come from.
        measured_mhz: The clock that was measured, if that is another.
    """

    scores: Mapping[str, tuple[float, ...]]
    units: Mapping[str, float]
    missing_share: float
    far_outside: bool
    basis: str
    measured_mhz: float | None

    def supports(self, level: float) -> bool:
        """See `NetworkSpread.supports`."""
        return _supports(self.scores, self.measured_mhz, level)

    def around(self, quantity: str, value: float, level: float, held_mhz: float) -> tuple[float, float]:
        """See `NetworkSpread.around`."""
        errors = self.scores[quantity]
        half = _half_width(errors, self.units[quantity], self.measured_mhz, quantity, level, held_mhz)
        return _low_high(quantity, value, half, self.missing_share)


def _supports(scores: Mapping[str, Sequence[float] | FloatArray], measured_mhz: float | None, level: float) -> bool:
    known: list[Sequence[float] | FloatArray] = [scores["time"]]
    if measured_mhz is not None:
        known.append(CLOCK_ERRORS["time"])
    return all(conformal_rank(level, len(errors)) <= len(errors) for errors in known)


def _half_width(
    errors: Sequence[float] | FloatArray,
    unit: float,
    measured_mhz: float | None,
    quantity: str,
    level: float,
    held_mhz: float,
) -> float:
    half = conformal_error(errors, level, "measured networks") * unit
    if measured_mhz is not None:
        half = float(np.hypot(half, clock_error(quantity, level, octaves(held_mhz, measured_mhz))))
    return half


def _low_high(quantity: str, value: float, half: float, missing_share: float) -> tuple[float, float]:
    # What is missing makes the whole larger, never smaller.
    more = {"time": 1, "energy": 1, "edp": 2, "power": 0}[quantity]
    return value / math.exp(half), value * math.exp(half) / (1 - missing_share) ** more
