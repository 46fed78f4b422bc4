"""Operations as rows of tables."""

from __future__ import annotations

import json

from .operation import Operation

IDENTITY = ("kind", "input_shapes", "attributes", "precision", "mode")
"""Columns that identify an operation."""

WORK = ("flops", "bytes_read", "bytes_written", "parameters")
"""Columns with the work of one call of an operation; each is named like the attribute of `Operation`."""


def identity(operation: Operation) -> tuple[str, ...]:
    """The values of `IDENTITY`, with shapes and attributes as JSON."""
    value = operation.to_dict()
    shapes, attributes = json.dumps(value["input_shapes"]), json.dumps(value["attributes"])
    return operation.kind, shapes, attributes, operation.precision, operation.mode
