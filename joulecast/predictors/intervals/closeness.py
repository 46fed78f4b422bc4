"""Distance of an operation from those that were measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation
from ..physics.operation_numbers import numbers_of

COORDINATES: tuple[str, ...] = (
    "flops",
    "bytes",
    "batch",
    "channels_in",
    "channels_out",
    "positions",
    "kernel",
    "stride",
    "groups",
    "rows",
    "columns",
    "reduction",
    "half_or_tf32",
)
"""Coordinates of an operation: sizes as logarithms to base 2, so that one size doubled is a distance of 1."""

# Another precision runs another kernel, which counts as a distance of 2, like four sizes doubled at once.
_OTHER_PRECISION = 2.0
# A single neighbour may be near by chance. Three show whether the neighbourhood was measured.
_NEIGHBOURS = 3
_ROWS_AT_ONCE = 4096


def coordinates(operations: Sequence[Operation]) -> NDArray[np.float32]:
    """Coordinates of operations, shape (operations, len(COORDINATES))."""
    n = numbers_of(operations)
    sizes = [
        n.flops + 1,
        n.bytes_read + n.bytes_written + 1,
        n.first_size,
        n.channels_in,
        n.channels_out,
        n.positions,
        n.kernel,
        n.stride,
        n.groups,
        n.rows,
        n.columns,
        n.reduction,
    ]
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
        found = np.full(len(operations), np.inf if self.rows else 0.0)
        kinds = np.array([operation.kind for operation in operations])
        matrix = coordinates(operations) if operations else np.empty((0, len(COORDINATES)), np.float32)
        for kind in set(kinds.tolist()) & set(self.rows):
            places = np.flatnonzero(kinds == kind)
            for start in range(0, len(places), _ROWS_AT_ONCE):
                some = places[start : start + _ROWS_AT_ONCE]
                found[some] = _nearest(matrix[some], self.rows[kind], self._squares[kind])
        return found

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
        rows = {
            kind: np.array(text.split() if isinstance(text, str) else text, dtype=np.float32)
            for kind, text in value.items()
        }
        return cls({kind: numbers.reshape(-1, len(COORDINATES)) for kind, numbers in rows.items()})


def _nearest(points: NDArray[np.float32], rows: NDArray[np.float32], row_squares: NDArray[np.float32]) -> FloatArray:
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a b: one matrix product instead of a cube of differences.
    squares = (points**2).sum(axis=1)[:, None] + row_squares - 2 * points @ rows.T
    if len(rows) > _NEIGHBOURS:
        squares = np.partition(squares, _NEIGHBOURS - 1, axis=1)[:, :_NEIGHBOURS]
    found: FloatArray = np.sqrt(np.maximum(squares, 0.0)).mean(axis=1).astype(np.float64)
    return found
