"""Limits on Parquet files: a repeated value takes no room there, but does in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..memory_limit import limited_memory

_MOST_BYTES = 1 << 30


def read_limited(file: Any, path: Path, most_values: int, columns: list[str] | None = None) -> Any:
    """The table of a Parquet file, unless it says much more than any file of its kind holds.

    How long lists are is seen only when they are read, so memory is limited meanwhile. (pyarrow would tell the number
    of values of a column beforehand, but ends the process where what a file says of a column contradicts itself.)

    Args:
        file: pyarrow's ParquetFile.
        path: Where it lies, for the error.
        most_values: Rows times columns.
        columns: To read; None for all.

    Raises:
        DatasetError: It holds more values than that, or more than 1 GiB.
    """
    metadata = file.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    values = sum(group.num_rows for group in groups) * metadata.num_columns
    size_bytes = sum(group.total_byte_size for group in groups)
    if values > most_values or size_bytes > _MOST_BYTES:
        raise _too_large(path, f"{values:,} values, {size_bytes:,} bytes", most_values)
    try:
        with limited_memory(_MOST_BYTES):
            return file.read(columns=columns)
    except MemoryError as error:
        raise _too_large(path, "lists that take more memory", most_values) from error


def _too_large(path: Path, given: str, most_values: int) -> DatasetError:
    return DatasetError(
        "a file of measurements holds more than any does",
        given=f"{path}: {given}",
        allowed=f"up to {most_values:,} values and {_MOST_BYTES:,} bytes",
    )
