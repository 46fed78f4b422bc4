"""Intervals of one network prediction, looked up in the errors of network_calibration.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation_list import OperationList
from .conformal import conformal_error, conformal_rank
from .network_calibration import NetworkCalibration, shares_of
from .operation_spread import OperationSpread, PredictedOperations
from .widening import BASIS, CLOCK_ERRORS, LEAST_LEVEL, clock_error, least_half_width, never_measured, octaves

FAR_SHARE = 0.2
"""A network is far outside the training data if this share of its device time is in operations that are."""


class _Around:
    """Intervals around a value, by the scores and units of either form of a spread."""

    def supports(self: Any, level: float) -> bool:
        """Whether there are enough errors for a level. Raises InputError: the level is not between 0 and 1."""
        known = [len(self.scores["time"]), *([] if self.measured_mhz is None else [len(CLOCK_ERRORS["time"])])]
        return all(conformal_rank(level, count) <= count for count in known)

    def around(self: Any, quantity: str, value: float, level: float, held_mhz: float | None) -> tuple[float, float]:
        """Low and high of a quantity, for a prediction with this held clock.

        Raises InputError: the level is not between 0 and 1, or higher than the errors support.
        """
        half = conformal_error(self.scores[quantity], level, "measured networks") * self.units[quantity]
        if self.measured_mhz is not None and held_mhz is not None:
            half = float(np.hypot(half, clock_error(quantity, level, octaves(held_mhz, self.measured_mhz))))
        # Missing work can only increase the totals, so that only the upper end moves. What few measurements show may be
        # absent elsewhere, or twice as much: both ends move by it.
        more = {"time": 1, "energy": 1, "edp": 2, "power": 0}[quantity]
        half = math.hypot(half, more * math.log(1 - self.unconfirmed_share))
        return value / math.exp(half), value * math.exp(half) / (1 - self.missing_share) ** more


@dataclass(frozen=True)
class NetworkSpread(_Around):
    """Errors on networks that were left out, scaled for one prediction.

    Args:
        operations: Errors of its operations; None where the networks' errors are counted without difficulty.
        missing_share: Share of the network's FLOPs, or bytes if that is more, that is in no total.
        measured_mhz: The clock that was measured, if that is another than was asked for.
        unconfirmed_share: Share of the device time that effects add which few measurements show (networks/effects.py).
    """

    networks: NetworkCalibration
    composition: str
    operations: OperationSpread | None
    counts: FloatArray
    predictions: PredictedOperations
    missing_share: float
    measured_mhz: float | None
    unconfirmed_share: float = 0.0

    @property
    def basis(self) -> str:
        """Where the errors come from, in words."""
        parts = [self.networks.basis]
        if self.measured_mhz is not None:
            parts.append(f"what another clock adds: {BASIS}")
        if self.unconfirmed_share:
            parts.append("what effects add that few networks showed: counted as an error")
        if self.missing_share:
            parts.append("what is missing: as much time and energy per FLOP or byte as the rest")
        return "; ".join(parts)

    @cached_property
    def units(self) -> Mapping[str, float]:
        """The difficulty by quantity."""
        if self.operations is None:
            return {quantity: self._unit(quantity) for quantity in self.scores}
        sigmas = self.operations.sigmas(self.predictions.operations)
        return self.networks.difficulty_of(*shares_of(self.counts, self.predictions), sigmas)

    @property
    def far_outside(self) -> bool:
        """Whether much of the device time is in operations far outside the training data."""
        if self.operations is None:
            return False
        device_s = np.nan_to_num(self.counts * self.predictions.device_time_s)
        far = self.operations.far_outside(self.predictions.operations)
        return float(device_s[far].sum()) > FAR_SHARE * float(device_s.sum())

    @property
    def never_measured_kinds(self) -> tuple[str, ...]:
        """Kinds that make the interval wider because no dataset has measured them (widening.py)."""
        some = compress(self.predictions.operations, self._never_measured)
        return tuple(dict.fromkeys(f"{o.kind} in fp64" if o.precision == "fp64" else o.kind for o in some))

    @cached_property
    def _never_measured(self) -> NDArray[np.bool_]:
        operations = self.predictions.operations
        if self.operations is None:
            return OperationList.of(operations).derived(never_measured)
        return self.operations.looked_up(operations).never_measured

    @cached_property
    def _never_measured_share(self) -> float:
        """Share of the device time in operations that no dataset has measured."""
        shares, known = shares_of(self.counts, self.predictions)
        return float(shares[self._never_measured[known]].sum())

    def _unit(self, quantity: str) -> float:
        """Factor that widens errors without difficulty. Errors of all unmeasured kinds are taken to be the same."""
        share, errors = self._never_measured_share, self.scores
        if not share or not self.supports(LEAST_LEVEL):
            return 1.0
        widest = conformal_error(errors[quantity], LEAST_LEVEL, "measured networks")
        return max(1.0, share * least_half_width(quantity, LEAST_LEVEL) / widest)

    @property
    def scores(self) -> Mapping[str, FloatArray]:
        """Quantity -> sorted absolute log errors on networks, in units of their difficulty."""
        return self.networks.scores[self.composition]

    def __reduce__(self) -> tuple[type[SentNetworkSpread], tuple[object, ...]]:
        """Pickle what a client needs of these errors, and not all errors that they were looked up in."""
        return SentNetworkSpread, tuple(vars(self.as_sent()).values())

    def as_sent(self) -> SentNetworkSpread:
        """All values that a client needs to compute intervals."""
        scores = {name: tuple(map(float, each)) for name, each in self.scores.items()}
        units = {name: float(unit) for name, unit in self.units.items()}
        return SentNetworkSpread(
            scores,
            units,
            self.missing_share,
            self.far_outside,
            self.basis,
            self.measured_mhz,
            self.unconfirmed_share,
        )


@dataclass(frozen=True)
class SentNetworkSpread(_Around):
    """A NetworkSpread with everything looked up, small enough to be sent to a client.

    Args:
        scores: Sorted absolute log errors on networks by quantity, in units of their difficulty.
        units: The difficulty by quantity.
    """

    scores: Mapping[str, tuple[float, ...]]
    units: Mapping[str, float]
    missing_share: float
    far_outside: bool
    basis: str
    measured_mhz: float | None
    unconfirmed_share: float = 0.0
