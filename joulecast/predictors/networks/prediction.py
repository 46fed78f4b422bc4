"""Prediction: the answer to what a network costs on a GPU at a clock, or on a CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import InputError
from ...hardware import GPU, find_gpu
from ...operations.inputs import InputShape, batch_size_of, shape_to_json, titled
from ...operations.operation_list import IDENTITY, identity, operation_text
from ...rendering.answers import Answer, Table, plain
from ...rendering.described import LEVEL, Column, Description, Grid, Unit, listing, quantity, totals, word
from ...rendering.pictures import Bar, Picture, bars, short
from ...units import NOT_MEASURED, number, si
from ..intervals.conformal import require_level
from ..intervals.network_calibration import Interval, NetworkSpread
from .costs import COLUMNS, Coverage, OperationCost, Uncovered, by_cost

if TYPE_CHECKING:
    from ...energy import EnergyTree
    from .memory_levels import MemoryLevels

Composition = Literal["overlap", "sum", "serial"]
QUANTITIES = (("time", "time_s", "s"), ("power", "power_w", "W"), ("energy", "energy_j", "J"))
_TOTALS: tuple[tuple[str, str, Unit], ...] = (
    *QUANTITIES,
    ("energy-delay product", "edp_js", "Js"),
    ("throughput", "samples_per_s", lambda value: f"{number(value, 4)} samples/s"),
    ("memory needed", "memory_bytes", "B"),
)
_DRAWN = 20  # Operations in a picture.
_BOUNDS = ("compute", "memory", "launch")

_TOLD = (
    *("network", "input_shape", "mode", "gpu", "clock_mhz", "held_clock_mhz", "power_limit_w", "predictor"),
    *("composition", "execution", "host", "time_s", "power_w", "energy_j", "edp_js", "device_time_s", "host_time_s"),
    *("batch_size", "samples_per_s", "energy_per_sample_j", "memory_bytes", "interval", "far_outside", "uncovered"),
    *("uncovered_share", "notes"),
)  # What `Prediction.to_dict` says, in its order.


def energy_not_measured(device: str) -> InputError:
    """The error for joules or watts of a device of this name, whose power was not measured."""
    return InputError(
        f"the power of {device} was not measured, so that its energy is not known",
        given="energy",
        allowed="time",
        hint="collect on a machine that lets you read the energy counters of its CPU (`joulecast measure` says how), "
        "and train again; or choose a GPU",
    )


@dataclass(frozen=True, repr=False)
class Prediction(Answer):
    """Time, power and energy of one iteration of a network on a GPU or a CPU.

    What was not measured on a device is None: energy on a CPU whose counters could not be read, and on every CPU the
    clocks and the power cap, which cannot be chosen there.

    Args:
        network: Name of the network.
        input_shape: Shape of the input of an iteration; None for a list of operations.
        mode: inference or training.
        gpu: Full name of the GPU or CPU.
        clock_mhz: Requested graphics clock in MHz.
        power_limit_w: Requested power cap in watts.
        predictor: Name of the zoo entry of the predictor.
        composition: "overlap" of host and device, or plain "sum"; on a CPU "serial", one operation after the other.
        time_s: Seconds per iteration.
        energy_j: Joules per iteration.
        device_time_s, host_time_s: Seconds that GPU and host need per iteration; the larger decides the time. On a CPU
            those of its operations, and those between them, which add up.
        held_clock_mhz: Graphics clock that the GPU settles at: clock_mhz, or less where it would draw more than its
            cap; where some operations throttle and others do not, the mean over device time.
        operations: Cost of each operation, in the order of the network.
        spread: Errors on similar networks that were left out of training; None if there are none.
        notes: Warnings about this prediction.
        coverage: The operations and operators that the totals lack, and their share of the work.
        idle_power_w: Watts that the board draws without any work; 0 where that is not known.
        execution: How the network is run: "eager", "graph" or "compiled".
        host: Name of the host that launches it.
        memory_bytes: Estimated device memory that the network needs; None for a list of operations.
        board: The GPU with the figures that it was predicted with; None for a CPU, and for what a client received.
    """

    network: str
    input_shape: InputShape | None
    mode: str
    gpu: str
    clock_mhz: float | None
    predictor: str
    composition: Composition
    time_s: float
    energy_j: float | None
    device_time_s: float
    host_time_s: float
    power_limit_w: float | None
    held_clock_mhz: float | None
    operations: tuple[OperationCost, ...] = field(repr=False)
    spread: NetworkSpread | None = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    coverage: Coverage = Coverage()
    idle_power_w: float = 0.0
    execution: str = "eager"
    host: str = "reference"
    memory_bytes: int | None = None
    board: GPU | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        interval = self._usual_interval
        told = []
        for what, name, unit in QUANTITIES:
            low_high = getattr(interval, name) if interval else None
            about = f" ({si(low_high[0], unit)} to {si(low_high[1], unit)})" if low_high else ""
            value = getattr(self, name)
            told.append(f"{si(value, unit)}{about}" if value is not None else f"{what}: {NOT_MEASURED}")
        incomplete = f"; {self.coverage}" if self.uncovered else ""
        return f"{self.title}: {', '.join(told)}; predictor {self.predictor}{incomplete}"

    @property
    def title(self) -> str:
        """What was predicted, and on which device at which clock, in a line."""
        clock = "" if self.clock_mhz is None else f" at {self.clock_mhz:g} MHz"
        return f"{titled(self.network, self.input_shape)}, {self.mode}, on {self.gpu}{clock}"

    @property
    def power_w(self) -> float | None:
        """Mean power of the board or CPU over an iteration; None where it was not measured."""
        return None if self.energy_j is None else self.energy_j / self.time_s

    @property
    def known_energy_j(self) -> float:
        """Joules per iteration.

        Raises InputError: the device's power was not measured.
        """
        if self.energy_j is None:
            raise energy_not_measured(self.gpu)
        return self.energy_j

    @property
    def known_power_w(self) -> float:
        """Mean power over an iteration.

        Raises InputError: the device's power was not measured.
        """
        return self.known_energy_j / self.time_s

    @property
    def edp_js(self) -> float | None:
        """Energy-delay product; None where energy was not measured."""
        return None if self.energy_j is None else self.energy_j * self.time_s

    @property
    def batch_size(self) -> int | None:
        """Samples of an iteration: the first dimension of the first input; None if there is no input shape."""
        return batch_size_of(self.input_shape)

    @property
    def samples_per_s(self) -> float | None:
        """Throughput in samples per second; None without a batch size."""
        return None if self.batch_size is None else self.batch_size / self.time_s

    @property
    def energy_per_sample_j(self) -> float | None:
        """Joules for each sample; None without a batch size, or where energy was not measured."""
        return None if self.batch_size is None or self.energy_j is None else self.energy_j / self.batch_size

    @property
    def uncovered(self) -> tuple[Uncovered, ...]:
        """Operations that the predictor does not cover, and operators that were dropped; the totals lack them."""
        return self.coverage.uncovered

    @property
    def uncovered_share(self) -> float | None:
        """Share of the network's FLOPs or bytes, whichever is larger, that is in no total; None where unknown."""
        return self.coverage.share

    def tree(self) -> EnergyTree:
        """Seconds and joules by module and operation, forward and backward apart, static and dynamic energy apart.

        The root is the iteration. Time in which the device waits for the host is a part of its own, with the static
        energy of these seconds.
        """
        # Imported here, because most programs ask for totals alone.
        from ...energy import EnergyTree
        from .memory_levels import DYNAMIC, STATIC, iteration_rows

        parts = ({STATIC: cost.static_energy_j, DYNAMIC: cost.dynamic_energy_j} for cost in self.operations)
        rows = iteration_rows(zip(self.operations, parts, strict=True), self.time_s)
        return EnergyTree.of(titled(self.network, self.input_shape), rows, notes=self.notes)

    def by_memory_level(self, gpu: GPU | str | Path | None = None) -> MemoryLevels:
        """Where the joules go below the operation: static, shared memory, L1, L2, DRAM, compute and the rest.

        Raises UnknownNameError: the catalogue has no such GPU. Raises InputError: it is another GPU than the one that
        was predicted, or a CPU.

        Args:
            gpu: The GPU of the prediction, if a client received it and a file describes the GPU; otherwise None.
        """
        # Imported here, because most programs ask for totals alone.
        from .memory_levels import MemoryLevels

        found = find_gpu(gpu or self.board or self.gpu)
        if found.name != self.gpu or self.held_clock_mhz is None:
            raise InputError("this prediction is for another GPU", given=found.name, allowed=self.gpu)
        title, clock_mhz = titled(self.network, self.input_shape), self.held_clock_mhz
        totals = {"time_s": self.time_s, "predicted_j": self.known_energy_j, "warnings": self.notes}
        return MemoryLevels.of(title, self.operations, found, clock_mhz, **totals)

    def interval(self, level: float = 0.9) -> Interval | None:
        """The conformal interval from networks that were left out in training; None where no errors are known.

        The error of each of those networks is divided by its difficulty, which is the error that its operations are
        expected to add up to. The farther operations are from those that were measured, the larger it is. The interval
        is wider at clocks and power caps that were not measured, and its upper end is higher if operations are missing;
        `interval_basis` says by how much.

        Raises InputError: the level is not between 0 and 1, or too high for the number of networks.

        Args:
            level: Share of such networks that should lie within, above 0 and below 1.
        """
        require_level(level)
        if self.spread is None:
            return None
        power_range_w = (self.idle_power_w, math.inf if self.power_limit_w is None else self.power_limit_w)
        return self.spread.interval(level, self.time_s, self.energy_j, self.held_clock_mhz, power_range_w)

    @property
    def interval_basis(self) -> str:
        """The errors that the interval rests on, as a sentence; empty if there is no interval."""
        return "" if self.spread is None else self.spread.basis

    @property
    def far_outside(self) -> bool:
        """Whether much of the device time is in operations that are far from all that were measured."""
        return self.spread is not None and self.spread.far_outside

    def to_dict(self, *, details: bool = True, tree: bool = False) -> dict[str, Any]:
        """The prediction as plain lists and dictionaries; quantities in SI units.

        Args:
            details: Whether to list the operations.
            tree: Whether to add the energy tree, as `EnergyTree.to_nested` has it.
        """
        interval = self._usual_interval
        told: dict[str, Any] = {
            "input_shape": shape_to_json(self.input_shape),
            "interval": None if interval is None else {**interval.to_dict(), "basis": self.interval_basis},
            "uncovered": [*map(str, self.uncovered)],
        }
        value = {name: told[name] if name in told else plain(getattr(self, name)) for name in _TOLD}
        if details:
            value["operations"] = [cost.to_dict() for cost in self.operations]
        if tree:
            value["tree"] = self.tree().to_nested()
        return value

    def supports(self, level: float) -> bool:
        """Whether enough errors are known for an interval of this level."""
        return self.spread is not None and self.spread.supports(level)

    @property
    def _usual_interval(self) -> Interval | None:
        return self.interval(LEVEL) if self.supports(LEVEL) else None

    @property
    def _dearest(self) -> list[OperationCost]:
        """The known operations, the most expensive first."""
        return [cost for cost in by_cost(self.operations) if cost.source != "missing"]

    def _picture(self) -> Picture:
        """Bars: the operations that cost most, in the colour of what bounds them (compute, memory, launch)."""
        what, unit = ("Time", "s") if self.energy_j is None else ("Energy", "J")
        items = []
        for cost in self._dearest[:_DRAWN]:
            value, colour = _spent(cost), _BOUNDS.index(cost.bound_by)
            text = f"{si(value, unit)}, {cost.bound_by}"
            items.append(Bar(short(operation_text(cost.operation)), value, text, colour=colour))
        return Picture(bars(items, f"{what} of the operations of {self.network} on {self.gpu}"))

    def described(self, top: int = 10) -> Description:
        """What a terminal and a notebook show: totals with intervals, what bounds them, and operations.

        Args:
            top: Number of operations, the most expensive; 0 for all.
        """
        held, throttled = self.held_clock_mhz, ""
        if self.clock_mhz is not None and held is not None and held <= 0.99 * self.clock_mhz:
            throttled = f" (held to {held:.0f} MHz by its cap of {self.power_limit_w:g} W)"
        device, host = si(self.device_time_s, "s"), si(self.host_time_s, "s")
        bound = "host" if self.host_time_s > self.device_time_s else "device"
        composed = f"bound by the {bound}: device {device}, host {host}"
        if self.composition == "serial":  # on a CPU
            composed = f"operations {device}, between them {host}"
        costs, whole = self._dearest, _spent(self)
        columns = [
            Column("operation", lambda cost: operation_text(cost.operation), right=False),
            Column("calls", lambda cost: str(cost.count)),
            quantity("device time", "device_time_s", "s"),
            quantity("power", "power_w", "W"),
            quantity("energy", "energy_j", "J"),
            Column("share", lambda cost: f"{100 * _spent(cost) / whole:.1f} %"),
            word("bound by", "bound_by"),
            word("source", "source"),
        ]
        more = []
        if rest := costs[top or len(costs) :]:
            unit, others = "s" if self.energy_j is None else "J", sum(map(_spent, rest))
            more = [f"and {len(rest)} more operations: {si(others, unit)}, {100 * others / whole:.1f} %"]
        parts: list[Grid | str] = [
            totals(self, self._usual_interval, _TOTALS, "per iteration"),
            str(self.coverage),
            f"{composed}; predictor {self.predictor}, composition {self.composition}",
            listing(costs[: top or None], columns, beneath=more),
        ]
        if self.uncovered:
            parts.append("\n".join(["not covered, and not in the totals:", *(f"  {each}" for each in self.uncovered)]))
        notes = [note for note in self.notes if note != str(self.coverage)]
        return Description(f"{self.title}{throttled}", parts, notes)

    def _repr_html_(self) -> str:
        return self.described().to_html(self.tree().plot().svg, after=1)

    def _table(self) -> Table:
        """The operations, most expensive first, and then the operators that were dropped."""
        header = (*IDENTITY, "count", *COLUMNS, "module_paths")
        rows = [
            (
                *identity(cost.operation),
                cost.count,
                *(getattr(cost, name) for name in COLUMNS),
                " ".join(cost.module_paths),
            )
            for cost in by_cost(self.operations)
        ]
        named = dict.fromkeys(header) | {"source": "missing"}
        dropped = (
            named | {"kind": each.name, "count": each.count, "module_paths": " ".join(each.module_paths)}
            for each in self.uncovered
            if each.operation is None
        )
        return Table(header, (*rows, *(row.values() for row in dropped)))


def _spent(on: Prediction | OperationCost) -> float:
    """Joules, or seconds of the device where no energy is known."""
    return (on.device_time_s if on.energy_j is None else on.energy_j) or 0.0
