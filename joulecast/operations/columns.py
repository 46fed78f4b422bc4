"""Operations and networks from the columns of a table: of pandas, polars, Arrow, or a dictionary of lists or arrays.

The columns are those that `Network.to_frame` writes; in a table of several networks, the column `network` says which
one a row belongs to. A table is read some rows at a time, and operations that are equal are made once. Any table will
do whose columns are found by name. (The dataframe interchange protocol is not used: polars has removed it, and pandas
announces that it will.)
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, totals_by
from ..errors import InputError, located
from .network import Network
from .operation import Operation
from .operation_list import IDENTITY, OperationList


@dataclass(frozen=True, eq=False)
class Calls:
    """The operations of many networks. A row is one operation of one network.

    Args:
        places: Index of each row's operation in `operations`, shape (rows,).
        owners: Index of each row's network in `names`, ascending, shape (rows,).
        counts: Calls of each row in one iteration of its network, shape (rows,).
        listed: The networks themselves, where they are given as such; empty where they come from a table.
    """

    names: tuple[str, ...]
    operations: OperationList
    places: NDArray[np.intp]
    owners: NDArray[np.intp]
    counts: FloatArray
    listed: tuple[Network, ...] = ()

    @classmethod
    def of(cls, networks: Sequence[Network]) -> Self:
        """The calls of these networks."""
        place_of: dict[object, int] = {}
        places = [place_of.setdefault(op, len(place_of)) for network in networks for op in network.operations]
        return cls(
            names=tuple(network.name for network in networks),
            operations=OperationList(place_of),  # type: ignore[arg-type]  # (its keys are operations)
            places=np.array(places, dtype=np.intp),
            owners=np.repeat(np.arange(len(networks)), [len(network) for network in networks]),
            counts=np.array([entry.count for network in networks for entry in network], dtype=float),
            listed=tuple(networks),
        )

    def sums(self, values: FloatArray) -> FloatArray:
        """Sums over all calls of each network, shape (networks,), of values of one call, shape (rows,); NaN is zero."""
        return totals_by(self.owners, self.counts * values, len(self.names))

    def as_table(self, values: NDArray[np.intp]) -> tuple[NDArray[np.intp], FloatArray]:
        """A value of each row and its calls, shape (networks, operations of the longest network); 0 fills them up."""
        lengths = np.bincount(self.owners, minlength=len(self.names))
        column = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table, counts = np.zeros((len(self.names), max(lengths)), dtype=np.intp), np.zeros((len(lengths), max(lengths)))
        table[self.owners, column], counts[self.owners, column] = values, self.counts
        return table, counts

    def network(self, index: int) -> Network:
        """One of the networks."""
        if self.listed:
            return self.listed[index]
        rows = self._rows(index)
        pairs = zip(self.places[rows].tolist(), self.counts[rows].tolist(), strict=True)
        return Network.of(((self.operations[place], int(count)) for place, count in pairs), name=self.names[index])

    def places_of(self, index: int) -> NDArray[np.intp]:
        """Indices into `operations` of the operations of one network, each different one once."""
        # In the order of `Network.of`, which puts equal operations together.
        return np.array([*dict.fromkeys(self.places[self._rows(index)].tolist())], dtype=np.intp)

    def _rows(self, index: int) -> slice:
        start, stop = np.searchsorted(self.owners, [index, index + 1]).tolist()
        return slice(start, stop)


Columns = Any
"""A table: a data frame of pandas or polars, a table of Arrow, or a dictionary of lists or arrays."""

_ROWS_AT_ONCE = 1 << 18
"""Rows whose values are Python objects at the same time; about 100 MB."""

_NETWORK, _COUNT = "network", "count"


def is_table(value: object) -> bool:
    """Whether a value has columns with names."""
    return isinstance(value, Mapping) or hasattr(value, "column_names") or hasattr(value, "columns")


def operations_of(table: Columns) -> tuple[OperationList, NDArray[np.intp]]:
    """The different operations of a table, and the index of each row's operation among them, shape (rows,)."""
    columns = _columns(table, IDENTITY)
    reader = _Reader()
    places = [reader.places(columns, start, stop) for start, stop in _pieces(len(columns[0]))]
    return OperationList(reader.operations), np.concatenate([np.empty(0, np.intp), *places])


def networks_of(table: Columns) -> Iterator[Calls]:
    """The networks of a table, some at a time. The rows of a network follow each other.

    Raises InputError: a column is missing, rows of a network are apart, or a row describes an operation that cannot
    exist.
    """
    columns = _columns(table, (_NETWORK, _COUNT, *IDENTITY))
    names, starts = _runs(columns[0])
    first = 0
    while first < len(names):
        # At least one network, and as many more as fit into the limit on rows.
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + _ROWS_AT_ONCE, "right")) - 1)
        start, stop = int(starts[first]), int(starts[last])
        reader = _Reader()
        places = reader.places(columns[2:], start, stop)
        yield Calls(
            names=tuple(map(str, names[first:last])),
            operations=OperationList(reader.operations),
            places=places,
            owners=np.repeat(np.arange(last - first), np.diff(starts[first : last + 1])),
            counts=_counts(columns[1], start, stop),
        )
        first = last


class _Reader:
    """Makes operations of rows, each different one once."""

    def __init__(self) -> None:
        self.operations: dict[Operation, int] = {}
        """Each different operation -> its place among them."""
        self._known: dict[tuple[Any, ...], int] = {}

    def places(self, columns: Sequence[Any], start: int, stop: int) -> NDArray[np.intp]:
        """Index of the operation of each of these rows, shape (rows,)."""
        rows = zip(*(_values(column, start, stop) for column in columns), strict=True)
        places = np.empty(stop - start, np.intp)
        for number, row in enumerate(rows):
            try:
                place = self._known.get(row)
            except TypeError:  # Shapes and attributes are lists and dictionaries, which have no hash.
                row = tuple(value if isinstance(value, str) else json.dumps(value, default=list) for value in row)
                place = self._known.get(row)
            places[number] = self._new(row, start + number) if place is None else place
        return places

    def _new(self, row: tuple[Any, ...], number: int) -> int:
        kind, shapes, attributes, precision, mode = row
        try:
            value = {"kind": kind, "input_shapes": json.loads(shapes), "attributes": json.loads(attributes)}
            operation = Operation.from_dict({**value, "precision": precision, "mode": mode})
        except InputError as error:
            raise located(error, f"row {number + 1} of the table") from error
        except (TypeError, ValueError) as error:
            raise InputError(
                f"row {number + 1} of the table has shapes or attributes that are not JSON",
                given=f"{shapes!r}, {attributes!r}"[:200],
                allowed='such as "[[32, 128]]" and "{}"; or lists and dictionaries',
                hint="Network.to_frame() writes such columns",
            ) from error
        place = self._known[row] = self.operations.setdefault(operation, len(self.operations))
        return place


def _columns(table: Any, names: Sequence[str]) -> list[Any]:
    """The columns of these names. Raises InputError: one is missing, or they have different lengths."""
    has = [*map(str, table)] if isinstance(table, Mapping) else None
    has = has or [*map(str, getattr(table, "column_names", None) or table.columns)]
    missing = [name for name in names if name not in has]
    if missing:
        raise InputError(
            f"a table lacks the column {missing[0]}",
            given=", ".join(has)[:200] or "no columns",
            allowed=", ".join(names),
            hint="Network.to_frame() writes these columns, but for the name of the network",
        )
    columns = [table[name] for name in names]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in zip(names, columns, strict=True))
        raise InputError(
            "the columns of a table have one length", given=lengths, hint="give one value for each row in every column"
        )
    return columns


def _values(column: Any, start: int, stop: int) -> list[Any]:
    """Some values of a column as Python objects."""
    piece = column.iloc[start:stop] if hasattr(column, "iloc") else column[start:stop]  # (pandas slices by label)
    for convert in ("to_pylist", "to_list", "tolist"):  # Arrow; polars; pandas and numpy
        if hasattr(piece, convert):
            return list(getattr(piece, convert)())
    return list(piece)


def _pieces(rows: int) -> Iterator[tuple[int, int]]:
    return ((start, min(rows, start + _ROWS_AT_ONCE)) for start in range(0, rows, _ROWS_AT_ONCE))


def _runs(column: Any) -> tuple[list[Any], NDArray[np.intp]]:
    """The names of the networks in their order, and the row that each begins at, with the number of rows at the end."""
    names: list[Any] = []
    starts: list[int] = []
    row = 0
    for start, stop in _pieces(len(column)):
        for name, same in itertools.groupby(_values(column, start, stop)):
            if not names or names[-1] != name:
                names.append(name)
                starts.append(row)
            row += sum(1 for _ in same)
    if len(set(names)) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise InputError(
            "the rows of a network follow each other", given=f"rows of {twice} in several places", hint="sort the table"
        )
    return names, np.array([*starts, row], dtype=np.intp)


def _counts(column: Any, start: int, stop: int) -> NDArray[np.float64]:
    """Calls of each of these rows. Raises InputError: one is not a positive integer."""
    values = _values(column, start, stop)
    try:
        counts = np.array(values, dtype=float)
    except (TypeError, ValueError):
        counts = np.full(len(values), np.nan)
    wrong = np.flatnonzero(~((counts >= 1) & (counts == np.floor(counts)) & np.isfinite(counts)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"row {start + row + 1} of the table: a count is a positive integer",
            given=repr(values[row])[:100],
            allowed="1 or more",
        )
    return counts
