"""Columns of a Parquet file as arrays, or an error that says what is wrong with the file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DatasetError, MissingDependencyError, with_extra
from ...system.damage import unreadable
from ..parquet_limits import read_limited

_MOST_VALUES = 30_000_000
"""The largest table of a source has 18 million."""

Columns = dict[str, npt.NDArray[Any]]


def read_columns(path: Path, wanted: Iterable[str]) -> Columns:
    """Read columns of a Parquet file by name, all of one length.

    Missing numbers are NaN, missing texts are empty.

    Raises:
        DatasetError: The file is missing or damaged, or lacks columns.
        MissingDependencyError: pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError("datasets need pyarrow", hint=with_extra("train")) from error
    wanted = list(wanted)
    try:
        table = read_limited(path, _MOST_VALUES, wanted)
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable("this file of measurements cannot be read", path, error, DatasetError) from error
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


def codes(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The index of each value among the sorted distinct values."""
    if values.dtype == object:
        place = {value: rank for rank, value in enumerate(sorted(set(values.tolist())))}
        return np.fromiter((place[value] for value in values.tolist()), dtype=np.int64, count=len(values))
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def groups(columns: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Number the rows so that those that agree in all columns have the same number."""
    found = None
    for column in columns:
        place = codes(column)
        found = place if found is None else codes(found * (int(place.max(initial=0)) + 1) + place)
    if found is None:
        raise ValueError("no columns to group by")
    return found
