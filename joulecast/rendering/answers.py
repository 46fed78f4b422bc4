"""What all answers have in common: they turn into plain dictionaries and JSON, into tables, and into a picture."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, needing
from .described import Description, first_rows
from .pictures import Picture

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance


class Table(NamedTuple):
    """Names of columns, and the values of each row in their order; None where a value is not known."""

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

        Raises MissingDependencyError: pandas is not installed.
        """
        with needing("a data frame needs pandas", "pip install pandas; or take to_csv(), which needs nothing"):
            import pandas as pd
        table = self._table()
        return pd.DataFrame([list(row) for row in table.rows], columns=list(table.header))


def _array(values: Sequence[Any]) -> NDArray[Any]:
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return np.array(values)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    return np.array(values, dtype=float if numbers and known else object)  # (None is NaN among floats)


_FORMULAS = ("=", "+", "-", "@")


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULAS) and len(value) > 1:
        return f"'{value}"
    return "" if value is None else repr(value) if isinstance(value, float) else value


def table_csv(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV; None is empty. A text that a spreadsheet would compute as a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def plain(value: Any) -> Any:
    """A value as plain lists and dictionaries: what has a `to_dict` by that, other dataclasses by their fields."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [*map(plain, value)] if isinstance(value, list | tuple) else value


class Plain:
    """An answer that turns into dictionaries of texts, numbers and lists."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain lists and dictionaries; quantities in SI units."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(cast("DataclassInstance", self))}

    def to_json(self, *, indent: int | None = None) -> str:
        """What `to_dict` returns, as JSON. Numbers that are not finite become null.

        Args:
            indent: Spaces by which each level is indented; None for one line.
        """
        return json.dumps(finite(self.to_dict()), indent=indent, allow_nan=False)


class Drawn(ABC):
    """An answer that can be drawn, and says something in words and tables."""

    @abstractmethod
    def _picture(self) -> Picture: ...

    @abstractmethod
    def described(self) -> Description:
        """What a terminal and a notebook show of the answer."""

    @overload
    def plot(self, path: str | Path) -> Path: ...
    @overload
    def plot(self, path: None = None) -> Picture: ...
    def plot(self, path: str | Path | None = None) -> Path | Picture:
        """Draw the answer.

        Returns the path; without a path, a picture that Jupyter shows and `save` writes. Raises InputError: there is
        nothing to draw, or the path has another ending or is in no folder. Raises MissingDependencyError: matplotlib,
        which writes PNG, is not installed.

        Args:
            path: An SVG or PNG file to write, or an HTML file, which also has the tables; None to write none.
        """
        picture = self._picture()
        if path is None:
            return picture
        page = Picture(self._page(picture.svg)) if Path(path).suffix.lower() == ".html" else picture
        return page.save(path)

    def _page(self, picture: str) -> str:
        """Everything that is said of the answer as HTML, with a picture."""
        return self.described().to_html(picture)

    def _repr_html_(self) -> str:
        try:
            picture = self._picture().svg
        except InputError:  # There is nothing to draw, and the notes say why.
            picture = ""
        return self._page(picture)


class Answer(Plain, Tabular, Drawn):
    """An answer with all forms: a line of text, dictionaries, tables and a picture; in Jupyter all of them."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).splitlines()[0]}>"

    def described(self) -> Description:
        """What a terminal and a notebook show of the answer: its line, its table and its notes."""
        return Description(str(self).splitlines()[0], [first_rows(*self._table())], getattr(self, "notes", ()))


def finite(value: Any) -> Any:
    """A value of lists and dictionaries with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ENTRY = re.compile(r"^ {8}(\w+(?:, \w+)*): (.*(?:\n {12}.*)*)", re.MULTILINE)


def documented(value: Any) -> dict[str, str]:
    """What the docstring of a function or class says of each argument: the words of options, fields and tools."""
    entries = _ENTRY.findall(value.__doc__ or "")
    return {each: " ".join(text.split()) for names, text in entries for each in names.split(", ")}
