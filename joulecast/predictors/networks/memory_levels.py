"""Predicted joules as rows of an energy tree, and their split into static energy, memory levels, arithmetic, a rest.

A row has a module, a pass (forward or backward), and components of energy: static and dynamic, or those of the split.

The split does not change a prediction: the components of an operation add up to the joules that were predicted for it,
to the last bit. The energy of a memory level is its traffic times its energy per access. If all levels together exceed
the predicted dynamic energy, they are scaled down to it. From the remaining energy, arithmetic gets the energy of its
FLOPs minus that of shared memory and L1. (The energy per FLOP was fitted to whole products, so it includes these two.)
The rest is what remains: instructions, multiprocessors that are awake, and all errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...energy import EnergyTree, Figure, Row, Share
from ...energy.node import Node, Phase
from ...hardware import GPU
from ...hardware.gpu import MEMORY_LEVELS
from ...hardware.ncu import Traffic
from ...rendering.answers import Answer, Table
from ...rendering.pictures import Picture, StackedBar, one_below_the_other, stacked_bars
from ...units import si
from ..physics.energy import PRIOR_ENERGY, EnergyConstants
from ..physics.memory_traffic import ACCESS_BYTES, AccessEnergies, traffic_bytes
from .costs import OperationCost

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
        yield from energy_rows(cost, own_j)
    static_all_j = [joules for _, each in listed if (joules := each.get(STATIC)) is not None]
    if busy < 1:
        energy = {(DEVICE, STATIC): Figure((1 - busy) * math.fsum(static_all_j), "modelled")} if static_all_j else {}
        phase: Phase = "other" if any(cost.operation.mode == "training" for cost, _ in listed) else "forward"
        yield Row("", Share({DEVICE: Figure(time_s - busy_s, "modelled")}, energy), WAITING, phase)


def energy_rows(cost: OperationCost, energy_j: Mapping[str, float | None]) -> Iterator[Row]:
    """The rows of one operation with all its calls.

    Components of energy are "static", which the board draws whether anything runs or not, and "dynamic", which the
    operation causes; None if the operation is not covered.
    """
    whole = Share(
        {DEVICE: Figure.of(cost.device_time_s, cost.source)},
        {(DEVICE, component): Figure.of(joules, cost.source) for component, joules in energy_j.items()},
    )
    operation = cost.operation
    for path, calls in (cost.entry.by_module or {"": cost.count}).items():
        mine = whole.scaled_by(calls / cost.count)
        if operation.row.is_optimizer_step:
            yield Row(path, mine, operation.kind, "optimizer", calls)
        elif path == _BACKWARD:
            yield Row("", mine, operation.kind, "backward", calls)
        elif operation.mode == "inference":
            yield Row(path, mine, operation.kind, "forward", calls)
        else:
            forward = cost.forward_fraction
            if forward:
                yield Row(path, mine.scaled_by(forward), operation.kind, "forward", calls)
            if operation.gradients != "none":
                yield Row(path, mine.scaled_by(1 - forward), operation.kind, "backward", calls)


COMPUTE, REST = "compute", "rest"
COMPONENTS = (STATIC, *MEMORY_LEVELS, COMPUTE, REST)
"""The components into which the joules of an operation are divided."""

_NORMAL_90 = 1.6449  # 90 % of a normal distribution lie within this many standard deviations of the mean.


@dataclass(frozen=True)
class OperationLevels:
    """The joules of one operation by component, all its calls together.

    Args:
        cost: The predicted cost of the operation.
        energy_j: Component -> joules; None for each component if the operation is not covered.
        traffic_bytes: Memory level -> bytes that it serves.
        scaled: Factor by which the levels were scaled down to the predicted dynamic energy; 1 if they did not exceed
            it.
    """

    cost: OperationCost
    energy_j: Mapping[str, float | None]
    traffic_bytes: Mapping[str, float]
    scaled: float = 1.0

    @classmethod
    def of(cls, cost: OperationCost, traffic: Sequence[float], levels_j: Sequence[float], units_j: float) -> Self:
        """Divide a cost, given the traffic and joules of each memory level and the joules of arithmetic units."""
        moved = dict(zip(MEMORY_LEVELS, traffic, strict=True))
        if cost.energy_j is None:
            return cls(cost, dict.fromkeys(COMPONENTS), moved)
        dynamic_j, explained_j = min(cost.dynamic_energy_j or 0.0, cost.energy_j), sum(levels_j)
        scaled = min(1.0, dynamic_j / explained_j) if explained_j else 1.0
        parts = {STATIC: cost.energy_j - dynamic_j}
        parts |= {level: scaled * joules for level, joules in zip(MEMORY_LEVELS, levels_j, strict=True)}
        left_j = max(0.0, dynamic_j - scaled * explained_j)
        parts[COMPUTE] = min(left_j, max(0.0, units_j - parts["shared"] - parts["l1"]))
        return cls(cost, closed(parts, cost.energy_j), moved, scaled)


@dataclass(frozen=True, repr=False)
class MemoryLevels(Answer):
    """The joules of a network by component: static, shared memory, L1, L2, DRAM, compute and rest.

    Args:
        title: Name of the network for tables and plots.
        gpu: Full name of the GPU.
        clock_mhz: Graphics clock that it settles at.
        time_s: Predicted seconds of an iteration.
        predicted_j: Predicted joules of an iteration.
        operations: The components of each operation, in the order of the network.
        energies: Energy per access at each memory level.
        warnings: Warnings of the prediction.
    """

    title: str
    gpu: str
    clock_mhz: float
    time_s: float
    predicted_j: float
    operations: tuple[OperationLevels, ...]
    energies: AccessEnergies
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, costs: Sequence[OperationCost], gpu: GPU, clock_mhz: float, **totals: Any) -> Self:
        """Divide the joules of operations on a GPU, which settles at this graphics clock, into components.

        The totals are the fields `time_s`, `predicted_j` and `warnings`.
        """
        energies = AccessEnergies.of(gpu, clock_mhz)
        operations, counts = [cost.operation for cost in costs], np.array([[cost.count] for cost in costs], dtype=float)
        traffic = counts * traffic_bytes(operations, gpu)
        levels_j = traffic / ACCESS_BYTES * np.array([energies.joules[level] for level in MEMORY_LEVELS])
        # Of arithmetic units, including the supply of their operands.
        paid = EnergyConstants.parts(operations, np.zeros(len(costs)), gpu, clock_mhz)[:, :2]
        units_j = counts[:, 0] * (paid @ PRIOR_ENERGY.values()[:2])
        columns = costs, traffic.tolist(), levels_j.tolist(), units_j.tolist()
        divided = tuple(OperationLevels.of(*each) for each in zip(*columns, strict=True))
        return cls(title, gpu.name, clock_mhz, operations=divided, energies=energies, **totals)

    @cached_property
    def energy_j(self) -> dict[str, float]:
        """Component -> joules of an iteration; they add up exactly to the predicted energy."""
        sums = {
            component: math.fsum(each.energy_j[component] or 0.0 for each in self.operations)
            for component in COMPONENTS
        }
        return closed(sums, self.predicted_j)

    @property
    def dynamic_j(self) -> float:
        """Joules that are not static."""
        return math.fsum(joules for component, joules in self.energy_j.items() if component != STATIC)

    @property
    def movement_j(self) -> float:
        """Joules of all memory levels together."""
        return math.fsum(self.energy_j[level] for level in MEMORY_LEVELS)

    @cached_property
    def traffic_bytes(self) -> dict[str, float]:
        """Memory level -> bytes that it serves in an iteration."""
        return {level: math.fsum(each.traffic_bytes[level] for each in self.operations) for level in MEMORY_LEVELS}

    def range_j(self, level: str) -> tuple[float, float]:
        """Lower and upper end of a 90 % interval of a memory level's joules, from the spread of the energy per access.

        The interval does not include errors of the traffic; `compare_traffic` compares the traffic with counters.

        Args:
            level: One of `MEMORY_LEVELS`.
        """
        factor = self.energies.spread[level] ** _NORMAL_90
        return self.energy_j[level] / factor, min(self.energy_j[level] * factor, self.dynamic_j)

    def compare_traffic(self, counted: Traffic, iterations: float = 1) -> dict[str, tuple[float, float | None]]:
        """Memory level -> predicted bytes of an iteration, and counted ones; None where they were not counted.

        Args:
            counted: What `ncu` counted of the same program (`joulecast.hardware.ncu.read_counters`).
            iterations: Number of iterations that were counted.
        """
        return {
            level: (self.traffic_bytes[level], None if (found := counted[level]) is None else found / iterations)
            for level in MEMORY_LEVELS
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on where the numbers come from, and the warnings of the prediction."""
        notes = [f"energy per access: {self.energies.source}"]
        scaled = sum(each.scaled < 1 for each in self.operations)
        if scaled:
            notes.append(f"{scaled} operations: the levels were scaled down to the dynamic energy that is predicted")
        return (*notes, *self.warnings)

    def tree(self) -> EnergyTree:
        """The energy tree of the prediction, with these components instead of static and dynamic energy."""
        rows = iteration_rows(((each.cost, each.energy_j) for each in self.operations), self.time_s)
        return EnergyTree.of(self.title, rows, notes=self.notes)

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Operation kind, or waiting for the host -> component -> joules, most joules first."""
        return self._by(lambda node: node.name)

    def by_module(self) -> dict[str, dict[str, float]]:
        """Outermost module -> component -> joules, most joules first; the model itself is ""."""
        return self._by(lambda node: node.path.partition(".")[0])

    def _by(self, name: Callable[[Node], str]) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for node in self.tree().root.walk():
            if node.own.energy:
                parts = found.setdefault(name(node), dict.fromkeys(COMPONENTS, 0.0))
                for component, figure in node.own.by_component().items():
                    parts[component] += figure.value
        return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))

    def _picture(self) -> Picture:
        """Stacked bars of the components, by kind of operation and by module."""
        by = {"kind": self.by_kind(), "module": self.by_module()}
        return one_below_the_other(
            [
                stacked_bars(
                    [StackedBar(name or "(model)", [parts[c] for c in COMPONENTS]) for name, parts in found.items()],
                    COMPONENTS,
                    "J",
                    f"Energy by memory level and {what} of {self.title} on {self.gpu}",
                )
                for what, found in by.items()
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Joules, ranges and traffic as plain dictionaries; quantities in SI units."""
        return {
            "title": self.title,
            "gpu": self.gpu,
            "clock_mhz": self.clock_mhz,
            "energy_j": self.energy_j,
            "range_j": {level: list(self.range_j(level)) for level in MEMORY_LEVELS},
            "traffic_bytes": self.traffic_bytes,
            "access_energy_j": dict(self.energies.joules),
            "measured": self.energies.measured,
            "operations": [
                {**each.cost.to_dict(), "by_level_j": dict(each.energy_j), "traffic_bytes": dict(each.traffic_bytes)}
                for each in self.operations
            ],
            "notes": list(self.notes),
        }

    def _table(self) -> Table:
        """One row for each operation, with the joules of each component."""
        header = ["kind", "input_shapes", "precision", "count", *(f"{component}_j" for component in COMPONENTS)]
        rows = []
        for each in self.operations:
            operation = each.cost.operation
            sizes = " ".join("x".join(map(str, shape)) for shape in operation.input_shapes)
            rows.append([operation.kind, sizes, operation.precision, each.cost.count, *each.energy_j.values()])
        return Table(header, rows)

    def __str__(self) -> str:
        whole = self.predicted_j
        lines = [f"{self.title} on {self.gpu}: {si(whole, 'J')}"]
        for component, joules in self.energy_j.items():
            line = f"{component:>8}  {si(joules, 'J'):>9}  {100 * joules / whole:5.1f} %"
            if component in MEMORY_LEVELS:
                low_j, high_j = self.range_j(component)
                line += f"  ({si(low_j, 'J')} to {si(high_j, 'J')}; {si(self.traffic_bytes[component], 'B')})"
            lines.append(line)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def closed(parts: Mapping[str, float], total_j: float) -> dict[str, float]:
    """The parts with a new rest, such that `math.fsum` of all parts is exactly the total.

    If rounding errors would make the rest negative, they are subtracted from the largest part instead. A "rest" that is
    given is not used.
    """
    found, taker = {**parts, REST: 0.0}, REST
    if math.fsum([total_j, *(-joules for joules in found.values())]) < 0:
        taker = max(found, key=lambda part: found[part])
    others = [-joules for part, joules in found.items() if part != taker]
    found[taker] = math.fsum([total_j, *others])
    if (sum_j := math.fsum(found.values())) != total_j:
        # The exact sum lies in the middle of two floats, and is rounded to the other one. The least step of the
        # smallest part decides it.
        smallest = min((part for part, joules in found.items() if joules > 0), key=lambda part: found[part])
        found[smallest] = math.nextafter(found[smallest], math.inf if sum_j < total_j else 0.0)
    return found
