"""Networks as CSV."""

from __future__ import annotations

import json

from ..rendering.csv_tables import table_csv
from .network import Network


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
