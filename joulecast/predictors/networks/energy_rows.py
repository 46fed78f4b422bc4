"""Predicted costs as rows of an energy tree: by module, by pass (forward or backward), and by component of energy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from ...energy import Figure, Row, Share
from ...energy.node import Phase
from ...operations.entry import Entry
from ...operations.operation import Operation
from ..operation_predictions import Source
from .operation_cost import OperationCost

DEVICE = "gpu"
STATIC, DYNAMIC = "static", "dynamic"
WAITING = "waiting for the host"
"""The part of an iteration in which the device has nothing to do. On a CPU, it is the time between operations."""

_BACKWARD = "(backward)"  # Path under which extraction lists work of no module, such as adding up gradients.


def iteration_rows(costs: Iterable[tuple[OperationCost, Mapping[str, float | None]]], time_s: float) -> Iterator[Row]:
    """The rows of an iteration: those of its operations, and one for the time in which the device waits for the host.

    The cost of an operation includes a share of the static energy of the whole iteration. Here, it has the static
    energy of its own seconds, and the rest belongs to waiting. All rows together have the seconds and the joules of the
    iteration.
    """
    listed = list(costs)
    busy_s = min(time_s, math.fsum(cost.device_time_s or 0.0 for cost, _ in listed))
    busy = busy_s / time_s if time_s else 1.0
    for cost, energy_j in listed:
        static_j = energy_j.get(STATIC)
        own_j = {**energy_j, STATIC: None if static_j is None else busy * static_j}
        yield from energy_rows(cost.entry, cost.device_time_s, own_j, cost.source, by_memory=cost.bound_by == "memory")
    static_all_j = [joules for _, each in listed if (joules := each.get(STATIC)) is not None]
    if busy < 1:
        energy = {(DEVICE, STATIC): Figure((1 - busy) * math.fsum(static_all_j), "modelled")} if static_all_j else {}
        phase: Phase = "other" if any(cost.operation.mode == "training" for cost, _ in listed) else "forward"
        yield Row("", Share({DEVICE: Figure(time_s - busy_s, "modelled")}, energy), WAITING, phase)


def energy_rows(
    entry: Entry,
    device_time_s: float | None,
    energy_j: Mapping[str, float | None],
    source: Source,
    by_memory: bool,
) -> Iterator[Row]:
    """The rows of one operation with all its calls.

    Seconds and joules are those of all calls, None if the operation is not covered. Components of energy are "static",
    which the board draws whether anything runs or not, and "dynamic", which the operation causes. `by_memory` says
    whether memory traffic limits the operation, not arithmetic.
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
            if forward:
                yield Row(path, mine.scaled_by(forward), operation.kind, "forward", calls)
            if operation.gradients != "none":
                yield Row(path, mine.scaled_by(1 - forward), operation.kind, "backward", calls)


def forward_fraction(operation: Operation, by_memory: bool) -> float:
    """The share of the forward pass in the cost of a training operation.

    It is the share of FLOPs, or of bytes if these decide the time: a third for a product with both gradients, and two
    of five passes over memory for a ReLU.
    """
    if not operation.has_backward:
        return 0.0 if operation.gradients == "recomputed" else 1.0
    forward = operation.replace(mode="inference")
    if by_memory or not operation.flops:
        part, whole = forward.bytes_read + forward.bytes_written, operation.bytes_read + operation.bytes_written
    else:
        part, whole = forward.executed_flops, operation.executed_flops
    return min(1.0, part / whole) if whole else 1.0
