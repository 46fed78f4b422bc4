"""The one table of errors: what was left out of training, as it was measured and as it was predicted.

All evaluations fill it, and return it in a `Validation`. Cards, reports, comparisons, metrics and intervals are made
from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement
from ...operations.operation import Operation

ALL = "all"
"""Name in place of a GPU or kind for errors over all of them."""

Row = dict[str, Any]
"""Errors of a group, or of one network: what it is, its count, and quantity -> statistics, or an error."""


def r2(measured: FloatArray, predicted: FloatArray) -> float:
    """Coefficient of determination. If all measured values are the same, it is 1 where they are predicted and else 0.

    scikit-learn's `r2_score` has the same rule (`force_finite`).
    """
    missed, spread = np.sum((measured - predicted) ** 2), np.sum((measured - np.mean(measured)) ** 2)
    return float(1 - missed / spread) if spread else float(not missed)


def statistics(errors: Sequence[float] | FloatArray) -> dict[str, float]:
    """Median, mean (the MAPE) and 90th percentile of absolute values of relative errors; and the bias, their mean."""
    error = np.asarray(errors, dtype=float)
    size = np.abs(error)
    middle, most = np.median(size), np.quantile(size, 0.9)
    return {"median": float(middle), "mean": float(size.mean()), "p90": float(most), "bias": float(error.mean())}


@dataclass(frozen=True)
class Errors:
    """A row for each measurement of an operation or network, for each way in which it was left out of training.

    Args:
        of: The operation, or the measurement of the network, of each row.
        columns: Name -> values. All tables have "split", how a row was left out; "where", the GPU or the campaign; and
            "what", such as the kind of operation. Networks also have "network", "input", "precision", "mode", "clock".
        measured, predicted: Quantity ("time" in seconds, "power" in watts, "energy" in joules) -> values; NaN where
            they are not known.
    """

    of: tuple[Any, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    measured: Mapping[str, FloatArray] = field(default_factory=dict)
    predicted: Mapping[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def of_operations(
        cls,
        split: str | Sequence[str],
        where: str | Sequence[str],
        operations: Sequence[Operation],
        measured: Mapping[str, Sequence[float | None] | FloatArray],
        predicted: Mapping[str, FloatArray],
        **columns: Sequence[Any] | NDArray[Any],
    ) -> Self:
        """Errors on operations, given what is known of them by quantity, and further columns. "what" is their kind."""
        named = {"split": split, "where": where, "what": [operation.kind for operation in operations], **columns}
        return cls._made(operations, named, measured, predicted)

    @classmethod
    def of_networks(
        cls,
        split: str,
        gpu: str,
        networks: Sequence[NetworkMeasurement],
        time_s: Sequence[float],
        energy_j: Sequence[float | None],
        **columns: Sequence[Any],
    ) -> Self:
        """Errors on networks of a GPU or CPU, given predicted seconds and joules, and further columns."""
        named = {
            "split": [f"{split}, {m.mode}" for m in networks],
            "where": gpu,
            "what": [f"{m.network} {m.precision}" for m in networks],
            "network": [m.network for m in networks],
            "input": ["x".join(map(str, m.input_shape)) for m in networks],
            "precision": [m.precision for m in networks],
            "mode": [m.mode for m in networks],
            "clock": np.array([m.clock_mhz for m in networks], dtype=float),
            **columns,
        }
        fields = {"time": "time_s", "energy": "energy_j", "power": "power_w"}
        measured = {name: [getattr(m, field) for m in networks] for name, field in fields.items()}
        power_w = np.array(energy_j, dtype=float) / np.array(time_s)
        return cls._made(networks, named, measured, {"time": time_s, "energy": energy_j, "power": power_w})

    @classmethod
    def _made(cls, of: Sequence[Any], columns: Mapping[str, Any], *known: Mapping[str, Any]) -> Self:
        """The table of columns, in which a text stands for all rows, and of values, of which None is not known."""
        listed = {name: [each] * len(of) if isinstance(each, str) else each for name, each in columns.items()}
        values = ({name: np.array(each, dtype=float) for name, each in quantities.items()} for quantities in known)
        return cls(tuple(of), {name: np.array(each) for name, each in listed.items()}, *values)

    @classmethod
    def joined(cls, parts: Iterable[Errors]) -> Self:
        """Join tables. Quantities that one of them lacks are not known there; columns that one lacks are left out."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls()
        shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
        quantities = dict.fromkeys(name for part in parts for name in part.measured)

        def values(known: str) -> dict[str, FloatArray]:
            each = [(getattr(part, known), np.full(len(part), np.nan)) for part in parts]
            return {name: np.concatenate([mine.get(name, no) for mine, no in each]) for name in quantities}

        columns = {name: np.concatenate([part[name] for part in parts]) for name in shared}
        return cls(tuple(one for part in parts for one in part.of), columns, values("measured"), values("predicted"))

    def having(self, columns: Mapping[str, NDArray[Any]]) -> Self:
        """The table with further columns, or others in place of its own."""
        return replace(self, columns={**self.columns, **columns})

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column."""
        return self.columns[name]

    @property
    def families(self) -> list[str]:
        """The family of each row's operation."""
        return [operation.row.family for operation in self.of]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Self:
        """Select rows by a mask, or by their indices."""
        places = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        tables = (
            {n: values[places] for n, values in each.items()} for each in (self.columns, self.measured, self.predicted)
        )
        return type(self)(tuple(self.of[place] for place in places.tolist()), *tables)

    def groups(self, name: str) -> Iterator[tuple[str, Self]]:
        """Each value of a column, in the order in which the values first occur, with its rows."""
        column = self.columns.get(name, np.empty(0))
        for value in dict.fromkeys(column.tolist()):
            yield value, self.where(column == value)

    def log_errors(self, quantity: str) -> FloatArray:
        """Log of predicted over measured time, power, energy or energy-delay product; NaN where one is not known."""
        if quantity in self.measured:
            found: FloatArray = np.log(self.predicted[quantity] / self.measured[quantity])
            return found
        # The energy of a loop is its power times its time.
        parts = {"energy": ("time", "power"), "edp": ("energy", "time")}[quantity]
        return self.log_errors(parts[0]) + self.log_errors(parts[1])

    def known(self, quantity: str) -> NDArray[np.bool_]:
        """Mask of the rows whose quantity was measured and predicted."""
        return ~np.isnan(self.measured[quantity]) & ~np.isnan(self.predicted[quantity])

    def relative(self, quantity: str) -> FloatArray:
        """Relative errors of the rows in which a quantity is known."""
        known = self.known(quantity)
        found: FloatArray = self.predicted[quantity][known] / self.measured[quantity][known] - 1
        return found

    def row(self, split: str, where: str = ALL, what: str = ALL, *, with_r2: bool = False) -> Row:
        """Statistics of all rows together, of each known quantity; if asked for, R2 of it and of its logarithm."""
        found: Row = {"split": split, "where": where, "what": what}
        found["count"] = max(int(self.known(quantity).sum()) for quantity in self.measured)
        if with_r2:
            # In a small campaign, a fold can contain all operations of a kind, which then has no prediction.
            first = next(iter(self.measured))
            uncovered = ~np.isnan(self.measured[first]) & np.isnan(self.predicted[first])
            found |= {"unique": len(set(self.of)), "uncovered": int(uncovered.sum())}
        for quantity in self.measured:
            if len(errors := self.relative(quantity)):
                found[quantity] = statistics(errors)
                if with_r2:
                    pair = [each[quantity][self.known(quantity)] for each in (self.measured, self.predicted)]
                    found[quantity] |= {"r2": r2(*pair), "r2_log": r2(*map(np.log, pair))}
        return found

    def rows(self, *, together: bool = True) -> list[Row]:
        """Statistics of each split: of all rows if `together`, of those of each GPU or campaign, and of each kind."""
        found = []
        for split, mine in self.groups("split"):
            if together:
                found.append(mine.row(split, with_r2=True))
            for where, here in mine.groups("where"):
                found.append(here.row(split, where, with_r2=True))
                kinds = sorted(here.groups("what"), key=lambda kind: -len(kind[1]))
                found += [some.row(split, where, what) for what, some in kinds]
        return [row for row in found if row["count"]]

    def cases(self) -> list[Row]:
        """Each network with its signed relative errors."""
        names = ("split", "where", "network", "input", "precision", "mode")
        found = []
        for place in range(len(self)):
            case: Row = {name: str(self[name][place]) for name in names}
            case |= {} if np.isnan(clock := float(self["clock"][place])) else {"clock_mhz": clock}
            errors = {name: self.predicted[name][place] / self.measured[name][place] - 1 for name in self.measured}
            found.append(case | {name: float(error) for name, error in errors.items() if not np.isnan(error)})
        return found


def network_log_errors(errors: Errors) -> dict[str, tuple[float, ...]]:
    """Quantity -> sorted absolute log errors on networks, for intervals; only time unless every energy is known."""
    logs = {name: errors.log_errors(name) for name in ("time", "power", "energy", "edp")} if len(errors) else {}
    return {name: tuple(np.sort(np.abs(each)).tolist()) for name, each in logs.items() if not np.isnan(each).any()}


SEEN = "measured before"
"""Name of the split of operations that were in the training data, and were measured again."""
SUMMED = ", as a plain sum of loops"
"""End of the names of splits of networks whose operations are added up as they run in loops."""


@dataclass(frozen=True)
class Coverage:
    """Coverage of the intervals of one group of cases.

    Args:
        split: How the cases were left out of the predictor's training.
        group: What the counted cases have in common.
        within: Quantity -> share within the interval. All measurements of an operation count as one case.
        width: Quantity -> median half width, as a factor minus 1.
        unique: Quantity -> number of operations or networks behind that share.
    """

    split: str
    group: str
    cases: int
    within: Mapping[str, float]
    width: Mapping[str, float]
    unique: Mapping[str, int]


@dataclass(frozen=True)
class Validation:
    """The validation of a recipe: on one GPU or CPU in one mode, on all GPUs, or of kernels.

    Args:
        title: What it was validated on, such as "NVIDIA A30, inference".
        operations, networks: Errors on what was left out.
        held_out: Errors on operations left out in other ways, from which intervals are made.
        together: Whether errors of all GPUs are shown together; campaigns on one GPU are not.
        coverage: How many of the cases lay within intervals that were made without them.
    """

    title: str
    operations: Errors
    networks: Errors = field(default_factory=Errors)
    held_out: Errors = field(default_factory=Errors)
    together: bool = False
    coverage: tuple[Coverage, ...] = ()

    def rows(self) -> list[Row]:
        """Statistics of all errors: by split, GPU or campaign, and kind or network."""
        return [*self.operations.rows(together=self.together), *self.networks.rows(together=self.together)]

    def scores(self) -> list[list[str]]:
        """Rows of a table by which recipes are compared; see `HEADER`."""
        found = []
        for row in self.rows():
            if row["what"] == ALL and (row["where"] == ALL or not self.together) and SUMMED not in row["split"]:
                known = row["where"] == ALL or self.title.startswith(row["where"])  # what the title says already
                where = self.title if known else f"{self.title}, {row['where']}"
                count = row["count" if self.together else "unique"]  # On one GPU, repeats count once.
                found.append([where, row["split"], str(count), *(_error(row, *each) for each in _SCORES)])
        return found

    def metrics(self) -> dict[str, float]:
        """All statistics by name, such as "operations in folds/night/linear/time_mean", for tracking."""
        found: dict[str, float] = {}
        for row in self.rows():
            name = "/".join(row[part] for part in ("split", "where", "what") if row[part] != ALL)
            quantities = {quantity: each for quantity, each in row.items() if isinstance(each, Mapping)}
            found |= {f"{name}/{quantity}_{s}": v for quantity, each in quantities.items() for s, v in each.items()}
        return found


_SCORES = (("time", "median"), ("time", "mean"), ("energy", "mean"), ("power", "mean"))
HEADER = ("where", "left out", "count", *(f"{quantity}: {statistic}" for quantity, statistic in _SCORES))
"""Columns of scores, by which recipes are compared: absolute relative errors of loop time (own predictor), device time
(any GPU) or a network's time, and of energy and power of the same operations or networks."""


def _error(row: Row, quantity: str, statistic: str) -> str:
    return f"{100 * row[quantity][statistic]:.1f} %" if quantity in row else ""
