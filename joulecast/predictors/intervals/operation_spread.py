"""Intervals of predictions of operations, looked up in the errors of calibration.py."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import InputError
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..physics.cached import cached
from ..physics.operation_numbers import FAMILIES, numbers_of
from .calibration import ONE_SIGMA, QUANTITIES, Calibration, Cases
from .conformal import clock_error, conformal_rank, least_half_width, never_measured, octaves


class PredictedOperations(Protocol):
    """Operations with what was predicted of them; `OperationPredictions` is one. Arrays have a value per operation."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations."""

    @property
    def power_w(self) -> FloatArray:
        """Mean board power of each operation in a loop."""

    @property
    def device_time_s(self) -> FloatArray:
        """Seconds that the GPU works on each operation; NaN where missing."""

    @property
    def host_bound(self) -> NDArray[np.bool_]:
        """Whether launching an operation takes longer than the GPU's work."""

    @property
    def held_clock_mhz(self) -> FloatArray:
        """Graphics clock that each operation runs at."""


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


ALL = "all"
"""Errors on a board of all families together, beside those of single families."""


@dataclass(frozen=True)
class OperationSpread:
    """Errors of operations, to be looked up for one request.

    Args:
        trained_on: Digests of the operations that it was trained on.
        measured_mhz: The clock that those were measured at; None for a predictor of any clock.
        fallback: Intervals of the predictor that stood in for operations that were never measured, and a mask of
            those operations, shape (operations,).
        left_out: Quantity -> family, or ALL -> sorted errors on operations of one board that was calibrated. A family
            with enough of them has the interval of its own ones. Another one keeps the interval that it has without
            them, unless the errors of all families together are larger.
        octaves_away: Distance of the clock that is asked for from the one that `left_out` was measured at, in octaves.
    """

    calibration: Calibration
    trained_on: frozenset[str]
    measured_mhz: float | None
    fallback: tuple[OperationSpread, NDArray[np.bool_]] | None = None
    left_out: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)
    octaves_away: float = 0.0

    def log_errors(self, predictions: PredictedOperations, level: float) -> dict[str, FloatArray]:
        """Half widths of the logarithms of time, power and energy.

        Raises InputError: the level is not between 0 and 1, or higher than the errors support.
        """
        known = self.looked_up(predictions.operations)
        cases = replace(known.cases, host_bound=predictions.host_bound)
        found = {}
        for quantity in QUANTITIES:
            half = self.calibration.log_errors(quantity, level, cases, predictions.power_w)
            if self.measured_mhz is not None:
                half = np.hypot(
                    half, clock_error(quantity, level, octaves(predictions.held_clock_mhz, self.measured_mhz))
                )
            found[quantity] = half
        if self.fallback is not None:
            other, places = self.fallback
            for quantity, half in other.log_errors(predictions, level).items():
                found[quantity] = np.where(places & ~np.isnan(half), half, found[quantity])
        widened = {quantity: known.widened(quantity, half, level) for quantity, half in found.items()}
        return self._on_board(widened, level, predictions.operations)

    def looked_up(self, operations: Sequence[Operation]) -> LookedUp:
        """What the calibration says about operations at any clock."""
        return _looked_up(operations, self.calibration, self.trained_on)

    def sigmas(self, operations: tuple[Operation, ...]) -> dict[str, FloatArray]:
        """Quantity -> standard deviations of the log errors of the operations' device times or energies."""
        found = self.looked_up(operations).sigmas
        if self.fallback is not None:
            other, places = self.fallback
            its = other.sigmas(operations)
            found = {name: np.where(places & ~np.isnan(sigma), sigma, found[name]) for name, sigma in its.items()}
        return self._on_board(found, ONE_SIGMA, operations)

    def _on_board(
        self, halves: dict[str, FloatArray], level: float, operations: Sequence[Operation]
    ) -> dict[str, FloatArray]:
        """Half widths with the errors on operations of the board, see `left_out`."""
        found = dict(halves)
        for quantity, errors in self.left_out.items():
            added = clock_error(quantity, level, np.array(self.octaves_away))
            known = {}
            for family, sizes in errors.items():
                if (rank := conformal_rank(level, len(sizes))) <= len(sizes):
                    known[family] = float(np.hypot(sizes[rank - 1], added))
            if ALL in known:
                own = np.array([known.get(name, np.nan) for name in FAMILIES])
                own = own[OperationList.of(operations).derived(_families)]
                found[quantity] = np.where(np.isnan(own), np.maximum(halves[quantity], known[ALL]), own)
        return found

    def take(self, places: NDArray[np.intp]) -> OperationSpread:
        """The spread of the operations at given indices; an index may occur twice."""
        if self.fallback is None:
            return self
        other, mask = self.fallback
        return replace(self, fallback=(other.take(places), mask[places]))

    def as_sent(self, predictions: PredictedOperations) -> SentOperationSpread:
        """Half widths at common levels, to be sent to a client."""
        levels = {}
        for level in SentOperationSpread.LEVELS:
            with contextlib.suppress(InputError):
                levels[level] = self.log_errors(predictions, level)
        return SentOperationSpread(levels, tuple(map(bool, self.far_outside(predictions.operations))))

    def far_outside(self, operations: Sequence[Operation]) -> NDArray[np.bool_]:
        """See `Calibration.far_outside`."""
        return self.looked_up(operations).far


def _families(operations: OperationList) -> NDArray[np.int64]:
    return np.asarray(numbers_of(operations).family, dtype=np.int64)


@dataclass(frozen=True)
class SentOperationSpread:
    """An OperationSpread with everything looked up for certain operations, small enough to be sent to a client.

    Args:
        half_widths: Level -> quantity -> half widths of the logarithms.
        far: Mask of the operations that are far outside the training data.
    """

    LEVELS: ClassVar[tuple[float, ...]] = (0.5, 0.68, 0.8, 0.9, 0.95)

    half_widths: Mapping[float, Mapping[str, FloatArray]]
    far: tuple[bool, ...]

    def log_errors(self, predictions: PredictedOperations, level: float) -> Mapping[str, FloatArray]:
        """See `OperationSpread.log_errors`. Raises InputError: a level that was not looked up."""
        if level not in self.half_widths:
            known = ", ".join(map(str, self.half_widths))
            raise InputError("intervals that come from a service have certain levels", given=level, allowed=known)
        return self.half_widths[level]

    def take(self, places: NDArray[np.intp]) -> SentOperationSpread:
        """See `OperationSpread.take`."""
        widths = {
            level: {quantity: half[places] for quantity, half in of_level.items()}
            for level, of_level in self.half_widths.items()
        }
        return SentOperationSpread(widths, tuple(self.far[place] for place in places.tolist()))

    def far_outside(self, operations: Sequence[Operation]) -> NDArray[np.bool_]:
        """See `OperationSpread.far_outside`."""
        return np.array(self.far, dtype=bool)


@dataclass(frozen=True, eq=False)
class LookedUp:
    """What a calibration says about some operations at any clock.

    Args:
        cases: The operations that they were looked up for, as those of a GPU that does not wait for the host.
    """

    calibration: Calibration
    cases: Cases

    @cached_property
    def far(self) -> NDArray[np.bool_]:
        """See `Calibration.far_outside`."""
        return self.calibration.far_outside(self.cases.operations, self.cases.distances)

    @cached_property
    def sigmas(self) -> dict[str, FloatArray]:
        """Quantity -> standard deviations of the log errors of device times or energies, shape (operations,)."""
        return {
            each: self.widened(each, self.calibration.log_errors(each, ONE_SIGMA, self.cases), ONE_SIGMA)
            for each in QUANTITIES
        }

    @cached_property
    def never_measured(self) -> NDArray[np.bool_]:
        """Mask of the operations for whose kinds no dataset and no training data has a measurement."""
        return never_measured(self.cases.operations, self.calibration.closeness.rows) & ~self.cases.measured

    def widened(self, quantity: str, half: FloatArray, level: float) -> FloatArray:
        """Half widths, where nothing was measured at least those of conformal.py; NaN stays."""
        if not self.never_measured.any():
            return half
        return np.where(self.never_measured, np.maximum(half, least_half_width(quantity, level)), half)


@cached  # A network is asked for at one clock after the other.
def _looked_up(operations: OperationList, calibration: Calibration, trained_on: frozenset[str]) -> LookedUp:
    """Look operations up in a calibration, and cache the result; see `OperationSpread` for the arguments."""
    measured = np.array([operation.digest in trained_on for operation in operations], dtype=bool)
    distances = calibration.closeness.distances(operations)
    return LookedUp(calibration, Cases(operations, np.zeros(len(operations), dtype=bool), measured, distances))
