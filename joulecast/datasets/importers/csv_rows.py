"""Rows of a CSV file of a source, or an error that says what is wrong with the file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from ...errors import DatasetError
from ...system.damage import unreadable
from ...system.regular_files import read_regular

_MOST_BYTES = 256 << 20


def read_rows(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """Read the rows of a CSV file, each as column -> text. The first of them is line 2 of the file.

    Args:
        path: Path of the file.
        columns: Columns that it must have.

    Raises:
        DatasetError: The file cannot be read, is no table, or lacks a column.
    """
    what = "this file of measurements"
    data = read_regular(path, _MOST_BYTES, what, DatasetError)
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        missing = set(columns) - set(reader.fieldnames or ())
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise unreadable(f"{what} cannot be read", path, error, DatasetError) from error
    if missing:
        raise DatasetError(
            "columns are missing",
            given=str(path),
            allowed=", ".join(columns),
            hint=f"add {', '.join(sorted(missing))}",
        )
    return rows
