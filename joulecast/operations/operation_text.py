"""An operation as a short text, for tables that people read."""

from __future__ import annotations

from typing import Any

from .operation import Operation


def operation_text(operation: Operation) -> str:
    """A short text that tells the operations of a network apart."""
    shapes = ["x".join(map(str, shape)) for shape in operation.input_shapes]
    out = "x".join(map(str, operation.output_shape))
    names: dict[str, Any] = {"kernel_size": "k", "stride": "s", "groups": "g"}
    details = " ".join(
        f"{short}{operation.attributes[name]}"
        for name, short in names.items()
        if name in operation.attributes and operation.attributes[name] not in (1, None)
    )
    inputs = f"{len(shapes)} inputs" if len(shapes) > 3 else ", ".join(shapes)
    change = out if set(shapes) == {out} else f"{inputs} -> {out}"
    gradients = "" if operation.gradients == "all" else f" gradients: {operation.gradients}"
    return f"{operation.kind} {change}" + (f" {details}" if details else "") + f" {operation.precision}{gradients}"
