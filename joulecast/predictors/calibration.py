"""Intervals of operations and networks from the errors on what was held out (conformal prediction).

Split conformal prediction (Lei et al., JASA 2018): if the k-th smallest of n absolute errors is taken for the half
width, k = ceil((n + 1) x level), then a share `level` of new cases like those lies within. "Like those" is what the
groups are for: operations of one family, bound by the same (host or GPU), about as far from those that were measured.
A network's errors are counted in units of its difficulty, which follows from its operations.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..operations import Operation
from .closeness import Closeness
from .features import FloatArray

if TYPE_CHECKING:
    from .predictor import OperationPredictions

QUANTITIES: tuple[str, ...] = ("time", "power", "energy")
NETWORK_QUANTITIES: tuple[str, ...] = ("time", "power", "energy", "edp")
MEASURED, STAND_IN = "measured", "kind never measured"
"""Groups beside the families: operations of the training data, and kinds that another one stands in for."""

_ONE_SIGMA = 0.6827


def conformal_rank(level: float, count: int) -> int:
    """Which of `count` sorted errors covers a share `level` of new cases; above `count` if none does.

    Raises:
        InputError: The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise InputError("the level of an interval lies between 0 and 1", given=level)
    return math.ceil((count + 1) * level - 1e-9)


def conformal_error(errors: Sequence[float] | FloatArray, level: float, of_what: str) -> float:
    """The half width that covers a share `level`, out of sorted absolute errors.

    Raises:
        InputError: The level is not between 0 and 1, or too high for so few errors.
    """
    rank = conformal_rank(level, len(errors))
    if rank > len(errors):
        raise InputError(
            f"{len(errors)} {of_what} cannot support such an interval",
            given=level,
            allowed=f"up to {len(errors) / (len(errors) + 1):.3f}",
        )
    return float(errors[rank - 1])


@dataclass(frozen=True)
class ErrorGroup:
    """What was found on operations that are alike.

    Args:
        farthest: Distances up to this one, from where the group before ends.
        errors: Quantity -> sorted absolute log errors.
    """

    farthest: float
    errors: Mapping[str, FloatArray]


@dataclass(frozen=True)
class Calibration:
    """What the errors of a predictor say about those of new operations.

    Args:
        closeness: The operations that it was trained on.
        groups: Name -> errors, nearest first. Names are "family host" and "family GPU"; coarser ones ("family", "host",
            "GPU", "") are there for what has no group of its own.
        clock_errors: Quantity -> sorted absolute log errors that one octave between the clock that was measured and
            another adds; empty where that is not known.
    """

    closeness: Closeness
    groups: Mapping[str, tuple[ErrorGroup, ...]]
    clock_errors: Mapping[str, FloatArray]

    def log_errors(
        self,
        quantity: str,
        level: float,
        operations: Sequence[Operation],
        host_bound: NDArray[np.bool_],
        measured: NDArray[np.bool_],
        distances: FloatArray,
    ) -> FloatArray:
        """Half widths of the logarithm of a quantity, one per operation.

        Args:
            quantity: One of QUANTITIES.
            level: Share of such operations that should lie within.
            operations: Which.
            host_bound: Whether launching takes longer than the GPU's work.
            measured: Whether the predictor was trained on this very operation, at this clock.
            distances: From the nearest operation that it was trained on.

        Raises:
            InputError: The level is not between 0 and 1, or higher than all errors together support.
        """
        found = np.empty(len(operations))
        widths: dict[tuple[str, int], float] = {}
        everything = self.groups[""][-1].errors[quantity]
        for i, (name, place) in enumerate(self._places(operations, host_bound, measured, distances)):
            if (name, place) not in widths:
                errors = self.groups[name][place].errors[quantity]
                enough = conformal_rank(level, len(errors)) <= len(errors)
                widths[name, place] = conformal_error(errors if enough else everything, level, "held-out operations")
            found[i] = widths[name, place]
        return found

    def _places(
        self,
        operations: Sequence[Operation],
        host_bound: NDArray[np.bool_],
        measured: NDArray[np.bool_],
        distances: FloatArray,
    ) -> Iterator[tuple[str, int]]:
        """The name of each operation's group, and which of its bins."""
        edges = {name: [group.farthest for group in bins] for name, bins in self.groups.items()}
        columns = (host_bound.tolist(), measured.tolist(), distances.tolist())
        for operation, host, seen, distance in zip(operations, *columns, strict=True):
            bound = "host" if host else "GPU"
            family = MEASURED if seen else STAND_IN if math.isinf(distance) else operation.row.family
            name = next(n for n in (f"{family} {bound}", family, bound, "") if n in self.groups)
            place = min(int(np.searchsorted(edges[name], distance)), len(edges[name]) - 1)
            yield name, place

    def sigma(
        self, quantity: str, operations: Sequence[Operation], measured: NDArray[np.bool_], distances: FloatArray
    ) -> FloatArray:
        """A standard deviation of the log error of each operation's work on the GPU."""
        on_gpu = np.zeros(len(operations), dtype=bool)
        return self.log_errors(quantity, _ONE_SIGMA, operations, on_gpu, measured, distances)

    def far_outside(self, operations: Sequence[Operation], distances: FloatArray) -> NDArray[np.bool_]:
        """Operations farther from the training data than nearly all (99 %) that errors were found on.

        A kind that another one stands in for is not far outside by that alone; its errors are known.
        """
        far = [self._far_from(operation.row.family) for operation in operations]
        outside: NDArray[np.bool_] = np.isfinite(distances) & (distances > np.array(far))
        return outside

    def _far_from(self, family: str) -> float:
        bins = [
            self.groups[name][-1].farthest
            for name in (f"{family} GPU", f"{family} host", family)
            if name in self.groups
        ]
        return max(bins) if bins else self.groups[""][-1].farthest

    def clock_error(self, quantity: str, level: float, octaves: Any) -> Any:
        """What a clock so many octaves away adds to the half width; zero at the clock that was measured.

        Raises:
            InputError: The level is too high for the errors that are known.
        """
        errors = self.clock_errors.get(quantity)
        if errors is None or not len(errors):
            return 0.0 * np.asarray(octaves)
        return conformal_error(errors, level, "errors at other clocks") * np.abs(octaves)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and dictionaries."""
        return {
            "closeness": self.closeness.to_json(),
            "groups": {
                name: [{"farthest": round(g.farthest, 4), "errors": _rounded(g.errors)} for g in bins]
                for name, bins in self.groups.items()
            },
            "clock_errors": _rounded(self.clock_errors),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        groups = {
            name: tuple(ErrorGroup(float(g["farthest"]), _arrays(g["errors"])) for g in bins)
            for name, bins in value["groups"].items()
        }
        return cls(Closeness.from_json(value["closeness"]), groups, _arrays(value["clock_errors"]))


def _rounded(errors: Mapping[str, FloatArray]) -> dict[str, list[float]]:
    return {quantity: [float(f"{error:.4g}") for error in values] for quantity, values in errors.items()}


def _arrays(value: Mapping[str, Any]) -> dict[str, FloatArray]:
    return {quantity: np.array(errors, dtype=float) for quantity, errors in value.items()}


@dataclass(frozen=True)
class Parts:
    """The operations of a network as its difficulty wants them: one value per unique operation.

    Args:
        operations: Which; those that are missing are left out.
        shares: Of the network's device time; they sum up to 1.
        measured: Whether the predictor was trained on this very operation.
        distances: See `Calibration.log_errors`.
    """

    operations: tuple[Operation, ...]
    shares: FloatArray
    measured: NDArray[np.bool_]
    distances: FloatArray

    @classmethod
    def of(
        cls, counts: FloatArray, predictions: OperationPredictions, measured: Collection[str], closeness: Closeness
    ) -> Self:
        """Look at a network.

        Args:
            counts: Calls of each operation.
            predictions: Of its operations.
            measured: Digests of the operations that the predictor was trained on.
            closeness: The same operations.
        """
        device_s = np.nan_to_num(counts * predictions.device_time_s)
        known = np.flatnonzero(~np.isnan(predictions.device_time_s))
        operations = tuple(predictions.operations[i] for i in known)
        return cls(
            operations,
            device_s[known] / max(float(device_s.sum()), 1e-30),
            np.array([operation.digest in measured for operation in operations], dtype=bool),
            closeness.distances(operations),
        )


@dataclass(frozen=True)
class Difficulty:
    """How the errors of operations add up to that of a network: a standard deviation of its log error.

    Args:
        floor: What remains if every operation is certain: composition, host, and work that no operation shows.
        correlation: Of the errors of a network's operations, from 0 (they average out) to 1 (they all err alike).
    """

    floor: float
    correlation: float

    def of(self, shares: FloatArray, sigma: FloatArray) -> float:
        """The standard deviation for operations with these shares and standard deviations."""
        alike, apart = float((shares * sigma).sum()) ** 2, float(((shares * sigma) ** 2).sum())
        return math.sqrt(self.floor**2 + self.correlation * alike + (1 - self.correlation) * apart)


@dataclass(frozen=True)
class NetworkCalibration:
    """Errors on networks that were left out, in units of their difficulty.

    Args:
        difficulties: time, power and energy -> how it follows from the operations; that of the energy-delay product is
            the sum of those of time and energy, which err together.
        scores: Composition -> quantity -> sorted absolute log errors over difficulty.
        basis: What networks these were, in a few words.
    """

    difficulties: Mapping[str, Difficulty]
    scores: Mapping[str, Mapping[str, FloatArray]]
    basis: str

    def difficulty(self, calibration: Calibration, parts: Parts) -> dict[str, float]:
        """The difficulty of a network, quantity by quantity."""
        found = {
            quantity: difficulty.of(
                parts.shares, calibration.sigma(quantity, parts.operations, parts.measured, parts.distances)
            )
            for quantity, difficulty in self.difficulties.items()
        }
        return {**found, "edp": found["time"] + found["energy"]}

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and dictionaries."""
        return {
            "difficulties": {
                quantity: {"floor": d.floor, "correlation": d.correlation} for quantity, d in self.difficulties.items()
            },
            "scores": {composition: _rounded(scores) for composition, scores in self.scores.items()},
            "basis": self.basis,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            {quantity: Difficulty(d["floor"], d["correlation"]) for quantity, d in value["difficulties"].items()},
            {composition: _arrays(scores) for composition, scores in value["scores"].items()},
            value["basis"],
        )
