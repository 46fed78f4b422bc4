"""Predicted costs as rows of an energy tree: by module, by pass (forward or backward), and by component of energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...energy import Figure, Row, Share
from ...operations.network import Entry
from ...operations.operation import Operation
from ..operation_predictions import Source

DEVICE = "gpu"
STATIC, DYNAMIC = "static", "dynamic"
_BACKWARD = "(backward)"  # Path under which extraction lists work of no module, such as adding up gradients.


def energy_rows(
    entry: Entry,
    device_time_s: float | None,
    energy_j: Mapping[str, float | None],
    source: Source,
    by_memory: bool,
) -> Iterator[Row]:
    """The rows of one operation with all its calls.

    Args:
        entry: The operation, and how often each module calls it.
        device_time_s: Seconds of all calls; None if the operation is not covered.
        energy_j: Component -> joules: "static" for those that the board draws whether anything runs or not, "dynamic"
            for those that the operation causes; None if the operation is not covered.
        source: How time and energy are known: measured, modelled or missing.
        by_memory: Whether memory traffic limits the operation, not arithmetic.
    """
    whole = Share(
        {DEVICE: Figure.of(device_time_s, source)},
        {(DEVICE, component): Figure.of(joules, source) for component, joules in energy_j.items()},
    )
    operation = entry.operation
    for path, calls in (entry.by_module or {"": entry.count}).items():
        mine = whole.scaled_by(calls / entry.count)
        if operation.row.is_optimizer_step:
            yield Row(path, mine, operation.kind, "optimizer", calls)
        elif path == _BACKWARD:
            yield Row("", mine, operation.kind, "backward", calls)
        elif operation.mode == "inference":
            yield Row(path, mine, operation.kind, "forward", calls)
        else:
            forward = forward_fraction(operation, by_memory)
            yield Row(path, mine.scaled_by(forward), operation.kind, "forward", calls)
            yield Row(path, mine.scaled_by(1 - forward), operation.kind, "backward", calls)


def forward_fraction(operation: Operation, by_memory: bool) -> float:
    """The share of the forward pass in the cost of a training operation.

    It is the share of FLOPs, or of bytes if these decide the time: a third for a product with both gradients, and two
    of five passes over memory for a ReLU.

    Args:
        operation: An operation in training mode.
        by_memory: Whether memory traffic limits the operation, not arithmetic.
    """
    forward = operation.replace(mode="inference")
    if by_memory or not operation.flops:
        part, whole = forward.bytes_read + forward.bytes_written, operation.bytes_read + operation.bytes_written
    else:
        part, whole = forward.executed_flops, operation.executed_flops
    return min(1.0, part / whole) if whole else 1.0
