"""Tables as CSV, for programs: every digit of a number, nothing where a value is not known."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from .operations.network import Network


def table_csv(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows)
    return text.getvalue()


def network_csv(network: Network) -> str:
    """The operations of a network, one line each."""
    header = ["kind", "input_shapes", "attributes", "precision", "mode", "count", "flops", "bytes_read"]
    header += ["bytes_written", "parameters", "module_paths"]
    rows = []
    for entry in network:
        operation = entry.operation
        plain = operation.to_json()
        rows.append(
            [
                operation.kind,
                json.dumps(plain["input_shapes"]),
                json.dumps(plain["attributes"]),
                operation.precision,
                operation.mode,
                entry.count,
                operation.flops,
                operation.bytes_read,
                operation.bytes_written,
                operation.parameters,
                " ".join(entry.module_paths),
            ]
        )
    return table_csv(header, rows)
