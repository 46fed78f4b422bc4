"""The outcome of an evaluation: a table of errors, and what cards, reports, comparisons and MLflow say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .calibrating import Coverage
from .errors import ALL, Errors, Row
from .left_out import SUMMED


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
