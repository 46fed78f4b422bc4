"""Limits on Parquet files: a repeated value takes no room there, but does in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..system.limits import limited_memory

_MOST_BYTES = 1 << 30


def read_limited(path: Path, most_values: int, columns: list[str] | None = None) -> Any:
    """The table of a Parquet file, unless it says much more than any file of its kind holds.

    How long lists are is seen only when they are read, so memory is limited meanwhile. (pyarrow would tell the number
    of values of a column beforehand, but ends the process where what a file says of a column contradicts itself.)

    Args:
        path: The file.
        most_values: Largest number of rows times columns.
        columns: Names of the columns to read; None for all.

    Raises:
        DatasetError: It lacks columns, or holds more values than that, or more than 1 GiB.
        OSError, pyarrow.ArrowException: It cannot be read.
    """
    import pyarrow
    from pyarrow import parquet

    default_pool = pyarrow.default_memory_pool()
    # The default pool reserves a gigabyte on first use. It is made to do so now, so that this does not count against
    # the limit. The file is read with another pool, which allocates only what it needs.
    pyarrow.allocate_buffer(1 << 20, default_pool)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        with limited_memory(_MOST_BYTES), parquet.ParquetFile(path) as file:
            _refuse_large(file.metadata, path, most_values)
            if missing := [name for name in columns or () if name not in file.schema_arrow.names]:
                raise DatasetError("columns are missing", given=str(path), hint=f"add {', '.join(missing)}")
            return file.read(columns=columns)
    except MemoryError as error:
        raise _too_large(path, "lists that take more memory", most_values) from error
    finally:
        pyarrow.set_memory_pool(default_pool)


def _refuse_large(metadata: Any, path: Path, most_values: int) -> None:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    values = sum(group.num_rows for group in groups) * metadata.num_columns
    size_bytes = sum(group.total_byte_size for group in groups)
    if values > most_values or size_bytes > _MOST_BYTES:
        raise _too_large(path, f"{values:,} values, {size_bytes:,} bytes", most_values)


def _too_large(path: Path, given: str, most_values: int) -> DatasetError:
    return DatasetError(
        "a file of measurements holds more than any does",
        given=f"{path}: {given}",
        allowed=f"up to {most_values:,} values and {_MOST_BYTES:,} bytes",
    )
