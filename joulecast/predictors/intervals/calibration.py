"""Half widths of operations' intervals, from the errors on operations that were held out.

An interval covers new cases that are like those its errors were found on (conformal.py). Groups make them alike:
operations of one family, bound by the same (host or GPU), and about as far from measured operations (`Closeness`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, grouped
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..formats.numbers import errors_to_text, number, number_array, sorted_errors
from ..physics.cached import OperationRows
from ..physics.operation_numbers import numbers_of
from .conformal import conformal_error, conformal_rank

_SIZES = ("channels_in", "channels_out", "positions", "kernel", "stride", "groups", "rows", "columns", "reduction")
COORDINATES = ("flops", "bytes", "batch", *_SIZES, "half_or_tf32")
"""Coordinates of an operation: sizes as logarithms to base 2, so that one size doubled is a distance of 1."""

# Another precision runs another kernel, which counts as a distance of 2, like four sizes doubled at once.
_OTHER_PRECISION = 2.0
# A single neighbour may be near by chance. Three show whether the neighbourhood was measured.
_NEIGHBOURS = 3
_ROWS_AT_ONCE = 4096


def coordinates(operations: Sequence[Operation]) -> NDArray[np.float32]:
    """Coordinates of operations, shape (operations, len(COORDINATES))."""
    n = numbers_of(operations)
    sizes = n.flops + 1, n.bytes_read + n.bytes_written + 1, n.first_size, *(getattr(n, name) for name in _SIZES)
    logs = [np.log2(np.maximum(values, 1e-3)) for values in sizes]
    # fp32 is number 0 in the list of precisions.
    return np.column_stack([*logs, _OTHER_PRECISION * n.precision]).astype(np.float32)


@dataclass(frozen=True)
class Closeness:
    """The operations that a predictor was trained on, as coordinates.

    Args:
        rows: Kind -> matrix of shape (operations, len(COORDINATES)).
    """

    rows: Mapping[str, NDArray[np.float32]]

    @classmethod
    def of(cls, operations: Collection[Operation]) -> Self:
        """Remember operations."""
        listed = sorted(operations, key=lambda operation: operation.digest)
        kinds = np.array([operation.kind for operation in listed])
        matrix = coordinates(listed)
        return cls({str(kind): matrix[kinds == kind] for kind in np.unique(kinds)})

    def distances(self, operations: Sequence[Operation]) -> FloatArray:
        """Mean distance of each operation to the three nearest of its kind; infinite where none was measured.

        Zero everywhere if nothing is remembered at all.
        """
        return self._known.of(OperationList.of(operations), self._distances)[:, 0]

    @cached_property
    def _known(self) -> OperationRows:
        return OperationRows(1)

    def _distances(self, operations: OperationList) -> FloatArray:
        """The distances of operations, computed anew, shape (operations, 1)."""
        found = np.full(len(operations), np.inf if self.rows else 0.0)
        kinds = np.array([operation.kind for operation in operations])
        matrix = coordinates(operations) if operations else np.empty((0, len(COORDINATES)), np.float32)
        for kind in set(kinds.tolist()) & set(self.rows):
            places = np.flatnonzero(kinds == kind)
            for start in range(0, len(places), _ROWS_AT_ONCE):
                some = places[start : start + _ROWS_AT_ONCE]
                found[some] = _nearest(matrix[some], self.rows[kind], self._squares[kind])
        return found[:, None]

    @cached_property
    def _squares(self) -> dict[str, NDArray[np.float32]]:
        """Kind -> squared distance of each of its rows from zero, shape (operations,)."""
        return {kind: (rows**2).sum(axis=1) for kind, rows in self.rows.items()}

    def to_dict(self) -> dict[str, Any]:
        """The coordinates as text, operation by operation."""
        return {
            kind: " ".join(f"{x:.2f}".removesuffix(".00") for x in rows.ravel()) for kind, rows in self.rows.items()
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        rows = {kind: number_array(text).astype(np.float32) for kind, text in value.items()}
        return cls({kind: numbers.reshape(-1, len(COORDINATES)) for kind, numbers in rows.items()})


def _nearest(points: NDArray[np.float32], rows: NDArray[np.float32], row_squares: NDArray[np.float32]) -> FloatArray:
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a b: one matrix product instead of a cube of differences.
    squares = (points**2).sum(axis=1)[:, None] + row_squares - 2 * points @ rows.T
    if len(rows) > _NEIGHBOURS:
        squares = np.partition(squares, _NEIGHBOURS - 1, axis=1)[:, :_NEIGHBOURS]
    found: FloatArray = np.sqrt(np.maximum(squares, 0.0)).mean(axis=1).astype(np.float64)
    return found


QUANTITIES: tuple[str, ...] = ("time", "power", "energy")
SCALED_POWER = "scaled power"
"""Errors of power in units of what is typical for such a power (`PowerUnits`), where such units are known."""

MEASURED, STAND_IN = "measured", "kind never measured"
"""Groups beside the families: operations of the training data, and kinds that another one stands in for."""

ONE_SIGMA = 0.6827
"""Share of normal errors within one standard deviation."""


@dataclass(frozen=True)
class ErrorGroup:
    """Errors of operations that are alike.

    Args:
        farthest: Largest distance of the group's operations from measured ones; the group before ends at the smallest.
        errors: Quantity -> sorted absolute log errors.
    """

    farthest: float
    errors: Mapping[str, FloatArray]


@dataclass(frozen=True, eq=False)
class PowerUnits:
    """Typical errors of power, by the predicted power.

    A loop at the cap draws just what the cap allows, and one that waits for the host little more than the idle board,
    whatever the operation. Between the two, power depends on how busy the GPU is, which is harder to predict.

    Args:
        watts: Predicted powers in watts, ascending.
        units: Typical absolute log error at each of these powers.
    """

    watts: FloatArray
    units: FloatArray

    def of(self, power_w: FloatArray) -> FloatArray:
        """The unit at each predicted power, interpolated linearly in the logarithm of power."""
        return np.exp(np.interp(power_w, self.watts, np.log(self.units)))

    def to_dict(self) -> dict[str, list[float]]:
        """Both as lists."""
        return {"watts": self.watts.round(4).tolist(), "units": self.units.round(6).tolist()}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: The lists are empty or of different lengths, the watts do not ascend, or a unit is not positive.
        """
        watts, units = (np.array([number(each) for each in value[name]], dtype=float) for name in ("watts", "units"))
        if len(watts) != len(units) or len(watts) == 0 or np.any(np.diff(watts) < 0) or np.any(units <= 0):
            raise ValueError("units of power need ascending watts, and a positive unit for each")
        return cls(watts, units)


@dataclass(frozen=True, eq=False)
class Cases:
    """Operations whose errors are looked up; arrays of shape (operations,).

    Args:
        host_bound: Whether launching takes longer than the GPU's work.
        measured: Whether the predictor was trained on this very operation, at this clock.
    """

    operations: Sequence[Operation]
    host_bound: NDArray[np.bool_]
    measured: NDArray[np.bool_]
    distances: FloatArray

    @cached_property
    def alike(self) -> dict[tuple[str, bool, bool, bool], NDArray[np.intp]]:
        """Family, whether bound by the host, measured, of a kind that was never measured -> indices of operations."""
        families = [operation.row.family for operation in self.operations]
        columns = (self.host_bound.tolist(), self.measured.tolist(), np.isinf(self.distances).tolist())
        found = grouped(zip(zip(families, *columns, strict=True), range(len(families)), strict=True))
        return {kind: np.array(places) for kind, places in found.items()}


@dataclass(frozen=True, eq=False)
class Calibration:
    """Errors of a predictor on operations that were held out, to predict its errors on new ones.

    Args:
        closeness: The operations that it was trained on; where it remembers none, distance plays no part.
        groups: Name of a group -> its errors, nearest operations first. Names are "family host" and "family GPU";
            coarser groups ("family", "host", "GPU", "") serve operations without a group of their own.
        power_units: Units that errors of power are counted in; None where they are counted as they are.
    """

    closeness: Closeness
    groups: Mapping[str, tuple[ErrorGroup, ...]]
    power_units: PowerUnits | None = None

    @classmethod
    def of_device_errors(
        cls, errors: Mapping[str, Sequence[float]], of_power: Mapping[str, Mapping[str, Sequence[float]]] | None = None
    ) -> Self:
        """Make a calibration from errors on chips that were left out, which do not depend on distance.

        Args:
            errors: Family ("" for all) -> sorted absolute log errors of time.
            of_power: "power" and "energy" -> family -> sorted absolute log errors of loops that are bound by the GPU.
        """
        time = {family: {"time": sorted_errors(values)} for family, values in errors.items()}
        groups = {family: (ErrorGroup(math.inf, known),) for family, known in time.items()}
        known = {name: (of_power or {}).get(name, {}) for name in ("power", "energy")}
        for family in known["power"]:
            own = {quantity: sorted_errors(each[family]) for quantity, each in known.items()}
            of_time = time.get(family, time.get("", {}))
            groups[f"{family} GPU".strip()] = (ErrorGroup(math.inf, {**of_time, **own}),)
        return cls(Closeness({}), _complete(groups))

    def log_errors(self, quantity: str, level: float, cases: Cases, power_w: FloatArray | None = None) -> FloatArray:
        """Half widths of the logarithm of a quantity, one per operation.

        A share `level` of such operations should lie within. Errors of power are scaled with the predicted powers where
        their units are known. NaN where no error of the quantity is known. Raises InputError: the level is not between
        0 and 1, or higher than all errors together support.
        """
        if quantity == "power" and self.power_units is not None and power_w is not None:
            return self.log_errors(SCALED_POWER, level, cases) * self.power_units.of(power_w)
        found = np.full(len(cases.operations), np.nan)
        everything = self.groups[""][-1].errors.get(quantity, np.empty(0))
        for kind, mine in cases.alike.items():
            bins = self._bins(*kind)
            # An operation that is farther away than all of its group belongs to the last bin.
            places = np.searchsorted([group.farthest for group in bins[:-1]], cases.distances[mine])
            for place in set(places.tolist()):
                # Where the quantity is known in other groups only, the errors of all groups together count.
                errors = bins[place].errors.get(quantity, everything)
                enough = conformal_rank(level, len(errors)) <= len(errors)
                if len(errors):
                    width = conformal_error(errors if enough else everything, level, "held-out operations")
                    found[mine[places == place]] = width
        return found

    def _bins(self, family: str, host_bound: bool, measured: bool, stood_in: bool) -> tuple[ErrorGroup, ...]:
        """The errors of operations that are alike; see `Cases.alike`."""
        bound = "host" if host_bound else "GPU"
        kin = [MEASURED] if measured else [f"{STAND_IN}, {family}", STAND_IN] if stood_in else [family]
        names = [name for each in kin for name in (f"{each} {bound}", each)]
        return next(self.groups[name] for name in (*names, bound, "") if name in self.groups)

    def far_outside(self, operations: Sequence[Operation], distances: FloatArray) -> NDArray[np.bool_]:
        """Operations farther from the training data than nearly all (99 %) that errors were found on.

        An operation is not far outside only because another kind stands in for its kind; errors for that case are
        known.
        """
        families, most = [operation.row.family for operation in operations], dict[str, float]()
        for family in set(families):
            mine = [name for name in (f"{family} GPU", f"{family} host", family) if name in self.groups]
            most[family] = max(self.groups[name][-1].farthest for name in mine or ("",))
        far = np.array([most[family] for family in families])
        outside: NDArray[np.bool_] = np.isfinite(distances) & (distances > far)
        return outside

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists and dictionaries."""
        return {
            "closeness": self.closeness.to_dict(),
            "groups": {
                name: [{"farthest": round(g.farthest, 4), "errors": errors_to_text(g.errors)} for g in bins]
                for name, bins in self.groups.items()
            },
            "power_units": None if self.power_units is None else self.power_units.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        units = value.get("power_units")
        groups = {
            name: tuple(
                ErrorGroup(number(g["farthest"]), {q: sorted_errors(each) for q, each in g["errors"].items()})
                for g in bins
            )
            for name, bins in value["groups"].items()
        }
        known = None if units is None else PowerUnits.from_dict(units)
        return cls(Closeness.from_dict(value["closeness"]), _complete(groups), known)


def _complete(groups: Mapping[str, tuple[ErrorGroup, ...]]) -> Mapping[str, tuple[ErrorGroup, ...]]:
    """Check groups from a file: the group for all others must exist, and no group may be empty.

    Raises ValueError: the group for all others is missing, or a group is empty.
    """
    if "" not in groups or not all(groups.values()):
        raise ValueError('the errors of operations lack the group "" for all others, or a group is empty')
    return groups
