"""Tables for programs: CSV and data frames, with all digits of numbers, and empty where a value is not known."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd


class Table(NamedTuple):
    """Rows under a header.

    Args:
        header: Names of the columns.
        rows: Values of each row, in the order of the header; None where a value is not known.
    """

    header: Sequence[str]
    rows: Iterable[Iterable[Any]]


class Tabular(ABC):
    """An answer that is a table: it gives its rows in `_table`, and users take them as CSV or as a data frame."""

    @abstractmethod
    def _table(self) -> Table: ...

    def to_csv(self) -> str:
        """The table as CSV. A value that is not known is empty."""
        return table_csv(*self._table())

    def to_columns(self) -> dict[str, NDArray[Any]]:
        """The table as an array for each column, which other libraries take: `polars.DataFrame(answer.to_columns())`.

        A number that is not known is NaN, and any other value that is not known None.
        """
        header, rows = self._table()
        columns = [*zip(*rows, strict=True)] or [()] * len(header)
        return {name: _array(values) for name, values in zip(header, columns, strict=True)}

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas DataFrame; for other libraries, see `to_columns`.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingDependencyError(
                "a data frame needs pandas", hint="pip install pandas; or take to_csv(), which needs nothing"
            ) from None
        table = self._table()
        return pd.DataFrame([list(row) for row in table.rows], columns=list(table.header))


def _array(values: Sequence[Any]) -> NDArray[Any]:
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return np.array(values)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    return np.array(values, dtype=float if numbers and known else object)  # (None is NaN among floats)


def table_csv(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows)
    return text.getvalue()
