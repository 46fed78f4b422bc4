"""How importers read the files of a source: rows of CSV, columns of Parquet, and samples of large tables."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, wraps
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ...errors import DatasetError
from ...system.regular_files import read_regular, refusing_damage
from ..measurement import Card, Dataset, refuse_lines
from ..store import imported_pyarrow, read_limited

Folder = str | Path
Importer = TypeVar("Importer", bound=Callable[..., list[Dataset]])


def importer(read: Importer) -> Importer:
    """Decorator: the importer raises a DatasetError if a column or a cell does not have the format of the source."""

    @wraps(read)
    def imported(folder: Folder, **options: Any) -> list[Dataset]:
        with refusing_damage("these files are damaged, or are not those of the source", Path(folder), DatasetError):
            return read(folder, **options)

    return cast("Importer", imported)


@cache
def _sources() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("../published.toml").read_text(encoding="utf-8"))


def published(source: str) -> dict[str, Any]:
    """The table of a source in published.toml, with tuples for its lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in _sources()[source].items()}


def card_of(source: str, gpu: str, clock_mhz: float | None = None, **more: Any) -> Card:
    """A card with what published.toml says of a source, and more; of methods only those that are given, if any are."""
    return Card.from_dict({"gpu": gpu, "clock_mhz": clock_mhz, **published(source)["card"], **more})


_MOST_BYTES = 256 << 20


def read_rows(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file, each as column -> text. The first of them is line 2 of the file.

    Raises DatasetError: the file cannot be read, is no table, or lacks a column.
    """
    what = "this file of measurements"
    data = read_regular(path, _MOST_BYTES, what, DatasetError)
    with refusing_damage(f"{what} cannot be read", path, DatasetError):
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        missing = set(columns) - set(reader.fieldnames or ())
        rows = list(reader)
    if missing:
        raise DatasetError(
            "columns are missing", given=str(path), allowed=", ".join(columns), hint=f"add {', '.join(sorted(missing))}"
        )
    return rows


_MOST_VALUES = 30_000_000
"""The largest table of a source has 18 million."""

Columns = dict[str, npt.NDArray[Any]]


def read_columns(path: Path, wanted: Iterable[str]) -> Columns:
    """Read columns of a Parquet file by name, all of one length.

    Missing numbers are NaN, missing texts are empty. Raises DatasetError: the file is missing or damaged, or lacks
    columns. MissingDependencyError: pyarrow is not installed.
    """
    pyarrow, wanted = imported_pyarrow(), list(wanted)
    with refusing_damage("this file of measurements cannot be read", path, DatasetError):
        table = read_limited(path, _MOST_VALUES, wanted)
    return {name: _array(name, table[name], pyarrow) for name in wanted}


def _array(name: str, column: Any, pyarrow: Any) -> npt.NDArray[Any]:
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        # Millions of rows have few distinct texts, so each text is created once.
        encoded = column.fill_null("").combine_chunks().dictionary_encode()
        texts: npt.NDArray[Any] = np.asarray(encoded.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[encoded.indices.to_numpy()])
    values = np.asarray(column.to_numpy())
    if values.dtype.kind not in "biuf":
        raise DatasetError(
            "a column is neither texts nor numbers",
            given=f"{name}: {column.type}",
            allowed="texts, integers, floating-point numbers or truth values",
        )
    return values


def rows_of(columns: Columns, places: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Rows as column -> value, and "line" with the number of the row, from 1."""
    values = (columns[name][places].tolist() for name in columns)
    for line, row in zip(places.tolist(), zip(*values, strict=True), strict=True):
        yield {"line": line + 1, **dict(zip(columns, row, strict=True))}


def refuse_unknown(columns: Columns, where: object, what: str, usable: Any = True, **known: Collection[Any]) -> None:
    """Refuse usable rows with values that are not among those known of a column. The error says what they are."""
    fine = np.all([np.isin(columns[name], list(values)) for name, values in known.items()], axis=0)
    unknown = np.flatnonzero(~fine & usable).tolist()
    values = {row: ", ".join(str(columns[name][row]) for name in known) for row in unknown}
    refuse_lines([f"row {row + 1}: unknown {what} ({value})" for row, value in values.items()], str(where))


def groups(columns: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Number the rows so that those that agree in all columns, of which there is at least one, have the same number."""
    first, *others = map(_codes, columns)
    for more in others:
        first = _codes(first * (int(more.max(initial=0)) + 1) + more)
    return first


def _codes(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The index of each value among the sorted distinct values."""
    if values.dtype == object:
        place = {value: rank for rank, value in enumerate(sorted(set(values.tolist())))}
        return np.fromiter((place[value] for value in values.tolist()), dtype=np.int64, count=len(values))
    return np.unique(values, return_inverse=True)[1].reshape(-1)


_SEED = 2026


def thinned(stratum: npt.NDArray[Any], rows: int | None) -> npt.NDArray[np.int64]:
    """Indices of so many rows (None: every row), ascending, from the strata that each row belongs to, numbered from 0.

    Strata share the rows evenly. What a small stratum does not use is shared by the others.
    """
    if rows is None or rows >= len(stratum):
        return np.arange(len(stratum))
    sizes = np.bincount(stratum)
    shuffled = np.random.default_rng(_SEED).permutation(len(stratum))
    shuffled = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    begins = np.cumsum(sizes) - sizes
    taken, left = [], rows
    # The smallest stratum comes first, so that what it does not use is shared by the rest.
    for rank, place in enumerate(np.argsort(sizes, kind="stable")):
        share = min(sizes[place], left // (len(sizes) - rank))
        taken.append(shuffled[begins[place] : begins[place] + share])
        left -= share
    return np.sort(np.concatenate(taken))
