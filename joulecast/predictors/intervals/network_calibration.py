"""Errors on networks that were left out, in units of their difficulty, which is computed from their operations.

For one prediction they are looked up once, and its intervals follow from these few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, total
from ...operations.operation_list import OperationList
from ...rendering.answers import Plain
from ..formats.numbers import errors_to_text, numbers, sorted_errors
from .conformal import (
    BASIS,
    CLOCK_ERRORS,
    LEAST_LEVEL,
    STEP_ERRORS,
    clock_error,
    conformal_error,
    conformal_rank,
    least_half_width,
    never_measured,
    octaves,
    within_range,
)
from .operation_spread import OperationSpread, PredictedOperations

NETWORK_QUANTITIES: tuple[str, ...] = ("time", "power", "energy", "edp")
STEP_BASIS = "published training steps in half precision (time) and networks in inference (power)"
_TIMES = {"time": 1, "energy": 1, "edp": 2, "power": 0}
"""How often a quantity contains the time."""


def shares_of(counts: FloatArray, predictions: PredictedOperations) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Shares of the known operations in a network's device time, and a mask of the operations that are known."""
    known = ~np.isnan(predictions.device_time_s)
    device_s = counts[known] * predictions.device_time_s[known]
    return device_s / max(float(total(device_s)), 1e-30), known


@dataclass(frozen=True)
class Difficulty:
    """How the errors of operations add up to that of a network: a standard deviation of its log error.

    Args:
        floor: Standard deviation that remains if every operation is exact: errors of the composition, of the host, and
            of work that is not listed.
        correlation: Correlation of the errors of a network's operations, from 0 (they average out) to 1 (they are all
            the same).
    """

    floor: float
    correlation: float

    def of(self, variances: FloatArray) -> FloatArray:
        """The standard deviation of a network, or of several, from what `variances` gives, shape (..., 2)."""
        alike, apart = variances.T
        found: FloatArray = np.sqrt(self.floor**2 + self.correlation * alike + (1 - self.correlation) * apart)
        return found


def variances(shares: FloatArray, sigma: FloatArray) -> FloatArray:
    """Variance of a network's error if the errors of its operations are all the same, and if they are independent."""
    return np.array([float(total(shares * sigma)) ** 2, float(total((shares * sigma) ** 2))])


@dataclass(frozen=True)
class NetworkCalibration:
    """Errors on networks that were left out, in units of their difficulty.

    Args:
        difficulties: time, power and energy -> how it follows from the operations; that of the energy-delay product is
            the sum of those of time and energy, which err together. None: errors count as they are.
        scores: Composition -> quantity -> sorted absolute log errors over difficulty.
        basis: The networks that the errors come from, in a few words.
    """

    difficulties: Mapping[str, Difficulty]
    scores: Mapping[str, Mapping[str, FloatArray]]
    basis: str

    @classmethod
    def of_errors(cls, errors: Mapping[str, Sequence[float]], basis: str) -> Self:
        """Make a calibration from quantity -> sorted absolute log errors, counted as they are, without difficulty."""
        return cls({}, {"overlap": _of_networks(errors)}, basis)

    @classmethod
    def of_training_steps(cls, power: Sequence[float]) -> Self:
        """The calibration of training steps in half precision, with errors of power from other networks.

        Energy and energy-delay product have no errors of their own: time and power are taken to err independently.
        """
        difficulty = Difficulty(STEP_ERRORS["floor"], STEP_ERRORS["correlation"])
        scores = {"time": sorted_errors(STEP_ERRORS["scores"]), "power": sorted_errors(power)}
        return cls({"time": difficulty}, {"overlap": scores}, STEP_BASIS)

    def summed(self, of: Mapping[str, FloatArray]) -> dict[str, Any]:
        """The difficulty, quantity by quantity, from what `variances` gives for each; 1 where none was learned."""
        if not self.difficulties:
            return dict.fromkeys(NETWORK_QUANTITIES, 1.0)
        found: dict[str, Any] = {name: difficulty.of(of[name]) for name, difficulty in self.difficulties.items()}
        return {**found, "edp": found["time"] + found["energy"]} if "energy" in found else {"power": 1.0, **found}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists and dictionaries."""
        return {
            "difficulties": {quantity: dict(vars(d)) for quantity, d in self.difficulties.items()},
            "scores": {composition: errors_to_text(scores) for composition, scores in self.scores.items()},
            "basis": self.basis,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            {quantity: Difficulty(**numbers(each)) for quantity, each in value["difficulties"].items()},
            {composition: _of_networks(scores) for composition, scores in value["scores"].items()},
            str(value["basis"]),
        )


def _of_networks(value: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Errors of every quantity. Raises KeyError, TypeError, ValueError: one is missing, or is something else."""
    return {quantity: sorted_errors(value[quantity]) for quantity in NETWORK_QUANTITIES}


FAR_SHARE = 0.2
"""A network is far outside the training data if this share of its device time is in operations that are."""


@dataclass(frozen=True)
class Interval(Plain):
    """Low and high of each quantity, for a share `level` of networks like those that were left out.

    Power, energy and energy-delay product are None where the device's power was not measured.
    """

    level: float
    time_s: tuple[float, float]
    power_w: tuple[float, float] | None = None
    energy_j: tuple[float, float] | None = None
    edp_js: tuple[float, float] | None = None


@dataclass(frozen=True)
class NetworkSpread:
    """Errors on networks that were left out, looked up for one prediction: few numbers, small enough to be sent.

    Args:
        scores: Quantity -> sorted absolute log errors on networks, in units of their difficulty.
        units: Quantity -> the difficulty of this network.
        missing_share: Share of the network's FLOPs, or bytes if that is more, that is in no total.
        far_outside: Whether much of the device time is in operations far outside the training data.
        basis: Where the errors come from, in words.
        measured_mhz: The clock that was measured, if that is another than was asked for.
        unconfirmed_share: Share of the device time that effects add which few measurements show (parts.py).
        never_measured_kinds: Kinds that make the interval wider because no dataset has measured them (conformal.py).
    """

    scores: Mapping[str, FloatArray | tuple[float, ...]]
    units: Mapping[str, float]
    missing_share: float
    far_outside: bool
    basis: str
    measured_mhz: float | None
    unconfirmed_share: float = 0.0
    never_measured_kinds: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        networks: NetworkCalibration,
        composition: str,
        operations: OperationSpread | None,
        counts: FloatArray,
        predictions: PredictedOperations,
        *,
        missing_share: float,
        measured_mhz: float | None,
        unconfirmed_share: float = 0.0,
    ) -> Self:
        """Look errors up for a network.

        The errors of its operations are None where the networks' errors are counted without difficulty. Counts are the
        calls of each operation in one iteration, shape (operations,).
        """
        scores, asked = networks.scores[composition], predictions.operations
        shares, known = shares_of(counts, predictions)
        if operations is None:
            never, far_outside = OperationList.of(asked).derived(never_measured), False
            units, share = dict.fromkeys(scores, 1.0), float(shares[never[known]].sum())
            if share and _supports(LEAST_LEVEL, len(scores["time"]), measured_mhz):
                # Errors of all unmeasured kinds are taken to be the same.
                for quantity, errors in scores.items():
                    widest = conformal_error(errors, LEAST_LEVEL, "measured networks")
                    units[quantity] = max(1.0, share * least_half_width(quantity, LEAST_LEVEL) / widest)
        else:
            never = operations.looked_up(asked).never_measured
            sigmas = operations.sigmas(asked)
            units = networks.summed({each: variances(shares, sigmas[each][known]) for each in networks.difficulties})
            device_s = np.nan_to_num(counts * predictions.device_time_s)
            far_s = float(device_s[operations.far_outside(asked)].sum())
            far_outside = far_s > FAR_SHARE * float(device_s.sum())
        basis = [networks.basis]
        if measured_mhz is not None:
            basis.append(f"what another clock adds: {BASIS}")
        if unconfirmed_share:
            basis.append("what effects add that few networks showed: counted as an error")
        if missing_share:
            basis.append("what is missing: as much time and energy per FLOP or byte as the rest")
        kinds = (f"{o.kind} in fp64" if o.precision == "fp64" else o.kind for o in compress(asked, never))
        return cls(
            scores,
            {quantity: float(unit) for quantity, unit in units.items()},
            missing_share,
            far_outside,
            "; ".join(basis),
            measured_mhz,
            unconfirmed_share,
            tuple(dict.fromkeys(kinds)),
        )

    def supports(self, level: float) -> bool:
        """Whether there are enough errors for a level. Raises InputError: the level is not between 0 and 1."""
        return _supports(level, len(self.scores["time"]), self.measured_mhz)

    def around(self, quantity: str, value: float, level: float, held_mhz: float | None) -> tuple[float, float]:
        """Low and high of a quantity, for a prediction with this held clock.

        Raises InputError: the level is not between 0 and 1, or higher than the errors support.
        """
        more = _TIMES[quantity]
        if quantity in self.scores:
            half = self._half(quantity, level)
        else:
            half = math.hypot(more * self._half("time", level), self._half("power", level))
        if self.measured_mhz is not None and held_mhz is not None:
            half = float(np.hypot(half, clock_error(quantity, level, octaves(held_mhz, self.measured_mhz))))
        # Missing work can only increase the totals, so that only the upper end moves. What few measurements show may be
        # absent elsewhere, or twice as much: both ends move by it.
        half = math.hypot(half, more * math.log(1 - self.unconfirmed_share))
        return value / math.exp(half), value * math.exp(half) / (1 - self.missing_share) ** more

    def _half(self, quantity: str, level: float) -> float:
        return conformal_error(self.scores[quantity], level, "measured networks") * self.units[quantity]

    def interval(
        self,
        level: float,
        time_s: float,
        energy_j: float | None,
        held_clock_mhz: float | None,
        power_range_w: tuple[float, float],
    ) -> Interval:
        """The interval around predicted totals.

        The joules are None where the device's power was not measured, the held clock is None on a CPU, and the range is
        that of the watts which the board can draw. Raises InputError: the level is too high for the number of networks
        that errors are known of.
        """
        if energy_j is None:
            return Interval(level, self.around("time", time_s, level, held_clock_mhz))
        power_w = energy_j / time_s
        values = {"time": time_s, "power": power_w, "energy": energy_j, "edp": energy_j * time_s}
        found = {name: self.around(name, value, level, held_clock_mhz) for name, value in values.items()}
        low_w, high_w = found["power"]
        low_w, high_w = within_range(low_w, power_w, high_w, power_range_w)
        return Interval(level, found["time"], (float(low_w), float(high_w)), found["energy"], found["edp"])


def _supports(level: float, count: int, measured_mhz: float | None) -> bool:
    """Whether so many errors on networks, and those of other clocks where one is asked for, support a level."""
    known = [count, *([] if measured_mhz is None else [len(CLOCK_ERRORS["time"])])]
    return all(conformal_rank(level, each) <= each for each in known)
