"""The one table of errors: what was left out of training, as it was measured and as it was predicted.

All evaluations fill it. Cards, reports, comparisons, metrics and intervals are made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement

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
    def of_networks(
        cls,
        split: str,
        gpu: str,
        networks: Sequence[NetworkMeasurement],
        predicted: Mapping[str, Sequence[float]],
        **columns: Sequence[Any],
    ) -> Self:
        """Errors on networks of a GPU or CPU, given predicted seconds, joules and watts, and further columns."""
        unknown = float("nan")
        named = {
            "split": [f"{split}, {m.mode}" for m in networks],
            "where": [gpu] * len(networks),
            "what": [f"{m.network} {m.precision}" for m in networks],
            "network": [m.network for m in networks],
            "input": ["x".join(map(str, m.input_shape)) for m in networks],
            "precision": [m.precision for m in networks],
            "mode": [m.mode for m in networks],
            "clock": [unknown if m.clock_mhz is None else m.clock_mhz for m in networks],
            **columns,
        }
        measured = {
            "time": [m.time_s for m in networks],
            "energy": [unknown if m.energy_j is None else m.energy_j for m in networks],
            "power": [unknown if m.power_w is None else m.power_w for m in networks],
        }
        return cls(
            tuple(networks),
            {name: np.array(values) for name, values in named.items()},
            {name: np.array(values, dtype=float) for name, values in measured.items()},
            {name: np.array(predicted[name], dtype=float) for name in measured},
        )

    @classmethod
    def joined(cls, parts: Iterable[Errors]) -> Self:
        """Join tables. Quantities that one of them lacks are not known there; columns that one lacks are left out."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls()
        shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
        quantities = dict.fromkeys(name for part in parts for name in part.measured)
        unknown = [np.full(len(part), np.nan) for part in parts]
        measured, predicted = (
            {
                name: np.concatenate(
                    [getattr(part, each).get(name, no) for part, no in zip(parts, unknown, strict=True)]
                )
                for name in quantities
            }
            for each in ("measured", "predicted")
        )
        columns = {name: np.concatenate([part[name] for part in parts]) for name in shared}
        return cls(tuple(one for part in parts for one in part.of), columns, measured, predicted)

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column."""
        return self.columns[name]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Self:
        """Select rows by a mask, or by their indices."""
        places = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        columns, measured, predicted = (
            {name: values[places] for name, values in each.items()}
            for each in (self.columns, self.measured, self.predicted)
        )
        return type(self)(tuple(self.of[place] for place in places.tolist()), columns, measured, predicted)

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
        found = []
        for place, (split, where, clock) in enumerate(
            zip(*(self[name].tolist() for name in ("split", "where", "clock")), strict=True) if len(self) else ()
        ):
            case: Row = {"split": split, "where": where}
            case |= {name: str(self[name][place]) for name in ("network", "input", "precision", "mode")}
            case |= {} if np.isnan(clock) else {"clock_mhz": clock}
            errors = {name: self.predicted[name][place] / self.measured[name][place] - 1 for name in self.measured}
            found.append(case | {name: float(error) for name, error in errors.items() if not np.isnan(error)})
        return found


def network_log_errors(errors: Errors) -> dict[str, tuple[float, ...]]:
    """Quantity -> sorted absolute log errors on networks, for intervals; only time unless every energy is known."""
    logs = {name: errors.log_errors(name) for name in ("time", "power", "energy", "edp")} if len(errors) else {}
    return {name: tuple(np.sort(np.abs(each)).tolist()) for name, each in logs.items() if not np.isnan(each).any()}
