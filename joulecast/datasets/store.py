"""Stores datasets as Parquet files with a fixed, versioned schema and a JSON card; limits on what is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import DatasetError, InputError, needing, with_extra
from ..operations.network import Network
from ..operations.operation import Operation
from ..system.limits import limited_memory
from ..system.regular_files import MOST_BYTES, read_json, refusing_damage
from ..system.whole_files import whole_file
from .measurement import SCHEMA_VERSION, Card, Dataset, Measurement, NetworkMeasurement, refuse_lines

_MOST_BYTES = 1 << 30


def read_limited(path: Path, most_values: int, columns: list[str] | None = None) -> Any:
    """These columns of a Parquet file (None: all), unless it says much more than any file of its kind holds.

    How long lists are is seen only when they are read, so memory is limited meanwhile. (pyarrow would tell the number
    of values of a column beforehand, but ends the process where what a file says of a column contradicts itself.)
    Raises DatasetError: it lacks columns, or holds more than `most_values`, rows times columns, or more than 1 GiB.
    Raises OSError, pyarrow.ArrowException: it cannot be read.
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
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            values = sum(group.num_rows for group in groups) * file.metadata.num_columns
            size_bytes = sum(group.total_byte_size for group in groups)
            if values > most_values or size_bytes > _MOST_BYTES:
                raise _too_large(path, f"{values:,} values, {size_bytes:,} bytes", most_values)
            if missing := [name for name in columns or () if name not in file.schema_arrow.names]:
                raise DatasetError("columns are missing", given=str(path), hint=f"add {', '.join(missing)}")
            return file.read(columns=columns)
    except MemoryError as error:
        raise _too_large(path, "lists that take more memory", most_values) from error
    finally:
        pyarrow.set_memory_pool(default_pool)


def _too_large(path: Path, given: str, most_values: int) -> DatasetError:
    return DatasetError(
        "a file of measurements holds more than any does",
        given=f"{path}: {given}",
        allowed=f"up to {most_values:,} values and {_MOST_BYTES:,} bytes",
    )


_MOST_VALUES = 50_000_000
_OPERATIONS, _NETWORKS, _CARD = "operations.parquet", "networks.parquet", "card.json"
_OPERATION = ("operation", "kind", "mode", "precision")
"""Columns that describe an operation: what its to_dict gives as JSON, and three values of it."""
_NEXT = "restore the file, or import the dataset again"


def imported_pyarrow() -> Any:
    """Import pyarrow. Raises MissingDependencyError: it is not installed."""
    with needing("datasets need pyarrow", with_extra("train")):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def _schemas(pa: Any) -> tuple[Any, Any]:
    """Columns of operations and of networks: the fields of their classes, which are nullable where they may be None."""
    types = {"float": pa.float64(), "str": pa.string(), "int": pa.int64(), "bool": pa.bool_()}
    types |= {"Shape": pa.list_(pa.int64()), "Network": pa.string()}  # as to_dict gives it

    def columns(kind: type[Measurement | NetworkMeasurement], later: Sequence[str]) -> Iterator[Any]:
        for each in fields(kind):
            type_, *none = str(each.type).split(" | ")
            if type_ in types:
                yield pa.field(each.name, types[type_], nullable=bool(none) or each.name in later)

    described = [pa.field(name, pa.string(), nullable=False) for name in _OPERATION]
    operations = pa.schema([*described, *columns(Measurement, ("engine", "kernel"))])
    return operations, pa.schema([*columns(NetworkMeasurement, ("usable", "remark"))])


def _columns(rows: Sequence[Measurement | NetworkMeasurement], schema: Any) -> dict[str, list[Any]]:
    """The rows by column. The text of an operation is made once, because operations repeat."""
    columns: dict[str, list[Any]] = {}
    for name in schema.names:
        if name == "operation":
            operations = [row.operation for row in rows if isinstance(row, Measurement)]
            texts = {operation: _text(operation) for operation in dict.fromkeys(operations)}
            columns |= {"operation": [texts[operation] for operation in operations]}
            columns |= {name: [getattr(o, name) for o in operations] for name in _OPERATION[1:]}
        elif name == "operations":
            networks = [row.operations for row in rows if isinstance(row, NetworkMeasurement)]
            columns[name] = [None if network is None else _text(network) for network in networks]
        elif name not in columns:
            columns[name] = [getattr(row, name) for row in rows]
    return columns


def _text(value: Operation | Network) -> str:
    return json.dumps(value.to_dict(), sort_keys=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save(dataset: Dataset, folder: str | Path) -> Path:
    """Write a dataset into a folder: two Parquet files, then the card with their sha256.

    The card is written last and moved into place, so a folder that has a card is complete. Raises DatasetError: it
    cannot be written there, or holds a value that no column takes. MissingDependencyError: pyarrow is not installed.
    """
    pa = imported_pyarrow()
    folder = Path(folder)
    with refusing_damage("this dataset cannot be written", folder, DatasetError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _CARD).unlink(missing_ok=True)
        files = {}
        parts: tuple[Sequence[Measurement | NetworkMeasurement], ...] = (dataset.measurements, dataset.networks)
        for name, schema, rows in zip((_OPERATIONS, _NETWORKS), _schemas(pa), parts, strict=True):
            table = pa.Table.from_pydict(_columns(rows, schema), schema=schema)
            with whole_file(folder / name) as unfinished:
                pa.parquet.write_table(table, unfinished, compression="zstd")
            files[name] = {"sha256": _digest(folder / name), "rows": len(rows)}
        card = {"schema_version": SCHEMA_VERSION, **dataset.card.to_dict(), "files": files}
        with whole_file(folder / _CARD) as unfinished:
            unfinished.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return folder


def _read_rows(folder: Path, name: str, facts: dict[str, Any], schema: Any) -> list[dict[str, Any]]:
    path = folder / name
    if not path.is_file():
        raise DatasetError("a file of the dataset is missing", given=str(path), hint=_NEXT)
    if _digest(path) != facts["sha256"]:
        raise DatasetError("a file of the dataset differs from its card", given=str(path), hint=_NEXT)
    table = read_limited(path, _MOST_VALUES)
    if table.schema.names != schema.names or table.num_rows != facts["rows"]:
        raise DatasetError(
            "a file of the dataset does not have the schema or length that its card states", given=str(path), hint=_NEXT
        )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def load(folder: str | Path) -> Dataset:
    """Read a dataset and check every file against its card.

    Raises DatasetError: there is no dataset, a file is missing or was changed, the schema has another version, or rows
    are impossible.
    """
    folder = Path(folder)
    try:
        card = read_json(folder / _CARD, MOST_BYTES, "the card of this dataset", DatasetError)
        version, files = card.pop("schema_version"), card.pop("files")
    except (DatasetError, KeyError, AttributeError, TypeError) as error:
        raise DatasetError(
            "this folder holds no complete dataset",
            given=str(folder),
            allowed=f"a folder with {_CARD}, {_OPERATIONS} and {_NETWORKS}",
            hint="`joulecast datasets import` makes one",
        ) from error
    if version != SCHEMA_VERSION:
        raise DatasetError(
            "this dataset has another schema version",
            given=version,
            allowed=SCHEMA_VERSION,
            hint="import it again, or use the version of joulecast that wrote it",
        )
    with refusing_damage("the card or a file of this dataset is damaged", folder, DatasetError):
        schemas = zip((_OPERATIONS, _NETWORKS), _schemas(imported_pyarrow()), strict=True)
        operations, networks = (_read_rows(folder, name, files[name], schema) for name, schema in schemas)
        known: dict[str, Operation] = {}
        faults: list[str] = []
        measurements = []
        for position, row in enumerate(operations, start=1):
            text, rest = row["operation"], {name: value for name, value in row.items() if name not in _OPERATION}
            try:
                # Operations repeat, and building one checks it, which takes time.
                if text not in known:
                    known[text] = Operation.from_dict(json.loads(text))
                measurements.append(Measurement(operation=known[text], **rest))
            except (InputError, json.JSONDecodeError) as error:
                faults.append(f"row {position}: {error.what if isinstance(error, InputError) else error}")
        refuse_lines(faults, str(folder))
        return Dataset(Card.from_dict(card), tuple(measurements), tuple(map(_network, networks)))


def _network(row: dict[str, Any]) -> NetworkMeasurement:
    values = {name: value for name, value in row.items() if value is not None or name in ("power_w", "energy_j")}
    if "operations" in values:
        values["operations"] = Network.from_dict(json.loads(values["operations"]))
    return NetworkMeasurement(**{**values, "input_shape": tuple(values["input_shape"])})


def fingerprint(folder: str | Path) -> str:
    """The sha256 that identifies a dataset: that of its card, which contains those of its files."""
    return _digest(Path(folder) / _CARD)
