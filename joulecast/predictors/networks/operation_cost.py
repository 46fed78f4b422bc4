"""OperationCost: predicted time, power and energy of one operation of a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ...operations.entry import Entry
from ...operations.operation import Operation
from ..operation_predictions import Source

Bound = Literal["compute", "memory", "launch"]

COLUMNS = ("device_time_s", "power_w", "energy_j", "source", "bound_by")
"""What tables and dictionaries say of the cost of an operation."""


@dataclass(frozen=True)
class OperationCost:
    """The cost of one operation of a network, all its calls together; None where missing.

    Args:
        entry: The operation, how often it is called in an iteration, and in which modules of the model.
        device_time_s: Seconds that the GPU works on it.
        power_w: Board power in watts during this time, at most the cap.
        energy_j: Joules, including a share of static energy; those of all operations add up to the network's.
        source: measured, modelled or missing.
        bound_by: "launch" if the host needs longer for a call than the GPU; otherwise "compute" or "memory", whichever
            takes longer by the data sheet. A network waits for launches only if the host needs longer in total.
        dynamic_energy_j: The part of the joules that the operation causes; the rest is the board's static energy.
    """

    entry: Entry
    device_time_s: float | None
    power_w: float | None
    energy_j: float | None
    source: Source
    bound_by: Bound
    dynamic_energy_j: float | None = None

    @property
    def operation(self) -> Operation:
        """The operation."""
        return self.entry.operation

    @property
    def count(self) -> int:
        """Calls per iteration."""
        return self.entry.count

    @property
    def module_paths(self) -> tuple[str, ...]:
        """Modules of the model that call it."""
        return self.entry.module_paths

    def to_dict(self) -> dict[str, Any]:
        """The operation with its count and modules, as `Entry.to_dict` has it, and what it costs in SI units."""
        return {**self.entry.to_dict(), **{name: getattr(self, name) for name in COLUMNS}}


def by_cost(costs: Iterable[OperationCost]) -> list[OperationCost]:
    """Operations by their energy, or by their time where no energy is known; the most expensive first."""
    listed = list(costs)
    if any(cost.energy_j is not None for cost in listed):
        return sorted(listed, key=lambda cost: -(cost.energy_j or 0.0))
    return sorted(listed, key=lambda cost: -(cost.device_time_s or 0.0))
