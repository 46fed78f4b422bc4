"""Errors on networks that were left out, in units of their difficulty, which is computed from their operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, total
from ...operations.operation import Operation
from ..formats.numbers import errors_to_text, number, sorted_errors
from .calibration import Calibration, Cases
from .operation_spread import PredictedOperations

NETWORK_QUANTITIES: tuple[str, ...] = ("time", "power", "energy", "edp")


@dataclass(frozen=True, eq=False)
class Parts:
    """The operations of a network, as its difficulty is computed from them: one value per unique operation.

    Args:
        operations: The operations; those that are missing are left out.
        shares: Share of each operation in the network's device time; they sum up to 1.
        measured: Whether the predictor was trained on this very operation.
    """

    operations: tuple[Operation, ...]
    shares: FloatArray
    measured: NDArray[np.bool_]
    distances: FloatArray

    @classmethod
    def of(
        cls,
        counts: FloatArray,
        predictions: PredictedOperations,
        measured: NDArray[np.bool_],
        distances: FloatArray,
    ) -> Self:
        """Collect what the difficulty of a network depends on."""
        shares, known = shares_of(counts, predictions)
        return cls(tuple(compress(predictions.operations, known)), shares, measured[known], distances[known])

    def variances(self, calibration: Calibration, quantity: str) -> FloatArray:
        """What `variances` gives with the standard deviations of a calibration."""
        known = self._variances
        if (calibration, quantity) not in known:
            known[calibration, quantity] = variances(self.shares, calibration.sigma(quantity, self.cases))
        return known[calibration, quantity]

    @cached_property
    def _variances(self) -> dict[tuple[Calibration, str], FloatArray]:
        """Kept here, because intervals of many networks are made again with each of them left out."""
        return {}

    @property
    def cases(self) -> Cases:
        """The operations as their errors are looked up."""
        return Cases(self.operations, np.zeros(len(self.operations), dtype=bool), self.measured, self.distances)


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
        """The standard deviation of networks, from rows of what `variances` gives."""
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

    def difficulty(self, calibration: Calibration, parts: Parts) -> dict[str, float]:
        """The difficulty of a network, quantity by quantity; 1 where none was learned."""
        return self._summed({quantity: parts.variances(calibration, quantity) for quantity in self.difficulties})

    def difficulty_of(
        self, shares: FloatArray, known: NDArray[np.bool_], sigmas: Mapping[str, FloatArray]
    ) -> dict[str, float]:
        """The difficulty of a network whose operations' standard deviations were looked up."""
        return self._summed({quantity: variances(shares, sigmas[quantity][known]) for quantity in self.difficulties})

    def _summed(self, of: Mapping[str, FloatArray]) -> dict[str, float]:
        if not self.difficulties:
            return dict.fromkeys(NETWORK_QUANTITIES, 1.0)
        found = {quantity: float(difficulty.of(of[quantity])) for quantity, difficulty in self.difficulties.items()}
        return {**found, "edp": found["time"] + found["energy"]}

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
            {
                quantity: Difficulty(number(d["floor"]), number(d["correlation"]))
                for quantity, d in value["difficulties"].items()
            },
            {composition: _of_networks(scores) for composition, scores in value["scores"].items()},
            str(value["basis"]),
        )


def _of_networks(value: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Errors of every quantity. Raises KeyError, TypeError, ValueError: one is missing, or is something else."""
    return {quantity: sorted_errors(value[quantity]) for quantity in NETWORK_QUANTITIES}
