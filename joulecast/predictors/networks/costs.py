"""The cost of each operation of a network; and work that no total contains: operations and operators without a cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...errors import UncoveredError
from ...operations.entry import Entry
from ...operations.operation import Operation
from ...units import si
from ..operation_predictions import Source

if TYPE_CHECKING:
    from ...operations.network import Network

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

    @property
    def static_energy_j(self) -> float | None:
        """Its share of the board's static energy."""
        return None if self.energy_j is None else max(0.0, self.energy_j - (self.dynamic_energy_j or 0.0))

    @property
    def forward_fraction(self) -> float:
        """The share of the forward pass in the cost of a training operation.

        It is the share of FLOPs, or of bytes if these decide the time: a third for a product with both gradients, and
        two of five passes over memory for a ReLU.
        """
        operation = self.operation
        if not operation.has_backward:
            return 0.0 if operation.gradients == "recomputed" else 1.0
        forward = operation.replace(mode="inference")
        if self.bound_by == "memory" or not operation.flops:
            part, whole = (each.bytes_read + each.bytes_written for each in (forward, operation))
        else:
            part, whole = forward.executed_flops, operation.executed_flops
        return min(1.0, part / whole) if whole else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The operation with its count and modules, as `Entry.to_dict` has it, and what it costs in SI units."""
        return {**self.entry.to_dict(), **{name: getattr(self, name) for name in COLUMNS}}


def by_cost(costs: Iterable[OperationCost]) -> list[OperationCost]:
    """Operations by their energy, or by their time where no energy is known; the most expensive first."""
    listed = list(costs)
    if any(cost.energy_j is not None for cost in listed):
        return sorted(listed, key=lambda cost: -(cost.energy_j or 0.0))
    return sorted(listed, key=lambda cost: -(cost.device_time_s or 0.0))


MOST_UNCOVERED_SHARE = 0.2
"""Share of a network's FLOPs or bytes, whichever is larger, that may be uncovered before there is no total."""

INCOMPLETE = "INCOMPLETE"
"""The first word of every message about a total that lacks some work."""

# Training costs about three forward passes: the backward pass has two products, one for each gradient.
_TRAINING_PER_FORWARD = 3
_SHOWN, _SHOWN_MODULES = 3, 2
_LEAST_SHOWN = 1e-4


@dataclass(frozen=True)
class Uncovered:
    """One operation or operator that is in no total.

    Args:
        name: The operation as `repr` writes it, or the operator of PyTorch, such as "aten.topk".
        operation: The operation; None where no operation stands for the work.
        count: Calls per iteration.
        module_paths: The modules that call it.
        reason: Why it is not covered.
        flops: FLOPs of all calls in the network's mode, a multiply-add is two; None where that is not known.
        moved_bytes: Bytes that all calls read and write; None where that is not known.
    """

    name: str
    operation: Operation | None
    count: int
    module_paths: tuple[str, ...]
    reason: str
    flops: int | None
    moved_bytes: int | None

    def __str__(self) -> str:
        paths = ", ".join(path or "(model)" for path in self.module_paths[:_SHOWN_MODULES])
        more = len(self.module_paths) - _SHOWN_MODULES
        where = f" in {paths}{f' and {more} more' if more > 0 else ''}" if paths else ""
        moved = "" if self.moved_bytes is None else f", {si(self.moved_bytes, 'B')} moved"
        return f"{self.count} x {self.name} ({self.reason}{moved}){where}"


@dataclass(frozen=True)
class Coverage:
    """The uncovered operations of a network, and their share of its work.

    Args:
        uncovered: The uncovered operations and operators, those that move most bytes first.
        flops_share: Share of the network's FLOPs that is uncovered, 0 to 1; None where that is not known.
        bytes_share: Share of the bytes that the network reads and writes, 0 to 1; None where that is not known.
    """

    uncovered: tuple[Uncovered, ...] = ()
    flops_share: float | None = 0.0
    bytes_share: float | None = 0.0

    @classmethod
    def of(cls, network: Network, sources: Sequence[Source] = (), predictor: str = "") -> Coverage:
        """The coverage of a network, by how the cost of each operation is known; no sources if all are covered.

        The name of the predictor stands in the reasons.
        """
        if "missing" not in sources and not network.uncounted:
            return _ALL_COVERED
        reason, times = f"not covered by {predictor}", _TRAINING_PER_FORWARD if network.mode == "training" else 1
        missing = [
            Uncovered(repr(entry.operation), entry.operation, entry.count, entry.module_paths, reason, *_work(entry))
            for entry, source in zip(network, sources, strict=False)
            if source == "missing"
        ]
        dropped = []
        for each in network.uncounted:
            flops, moved = (None, None) if (of := each.work) is None else (times * of.flops, times * of.moved_bytes)
            dropped.append(Uncovered(each.name, None, each.count, each.module_paths, each.reason, flops, moved))
        listed = zip(*map(_work, network), strict=True)
        shares = []
        for what, whole in zip(("flops", "moved_bytes"), listed, strict=True):
            lacking, beside = ([getattr(each, what) for each in some] for some in (missing, dropped))
            unknown = None in (*lacking, *beside)
            shares.append(None if unknown else (sum(lacking) + sum(beside)) / max(1, sum(whole) + sum(beside)))
        return cls(tuple(sorted((*missing, *dropped), key=lambda each: -(each.moved_bytes or 0))), *shares)

    def __bool__(self) -> bool:
        return bool(self.uncovered)

    @property
    def share(self) -> float | None:
        """The larger of both shares; None if one of them is not known."""
        if self.flops_share is None or self.bytes_share is None:
            return None
        return max(self.flops_share, self.bytes_share)

    @property
    def share_text(self) -> str:
        """Both shares in words; that of FLOPs is left out if it is zero."""
        if self.flops_share is None or self.bytes_share is None:
            return "an unknown share of the work"
        flops = f"{percent(self.flops_share)} of the FLOPs and " if self.flops_share else ""
        return f"{flops}{percent(self.bytes_share)} of the bytes"

    def __str__(self) -> str:
        """One line that names the uncovered operations and their share; empty if everything is covered."""
        if not self.uncovered:
            return ""
        return f"{INCOMPLETE}: {self.share_text} are in no total, because nothing covers {self._shown}"

    def refuse_too_much(self, name: str, *, strict: bool = False) -> None:
        """Refuse a network of this name if more than `MOST_UNCOVERED_SHARE` of its work is not covered.

        Raises UncoveredError: more is not; or, in strict mode, anything is not.
        """
        if strict and self.uncovered:
            raise UncoveredError(
                f"{len(self.uncovered)} operations of {name} are not covered: {self.share_text}",
                given=self._shown,
                allowed="a strict prediction covers everything",
                hint=f"{self._what_helps()}; without strict they are left out of the totals and listed",
            )
        if self.share is not None and self.share > MOST_UNCOVERED_SHARE:
            raise UncoveredError(
                f"too much of {name} is not covered for a total: {self.share_text}",
                given=self._shown,
                allowed=f"up to {percent(MOST_UNCOVERED_SHARE)} of either",
                hint=f"{self._what_helps()}; or leave it out on purpose: "
                "dataclasses.replace(joulecast.extract(model, input_shape), dropped=())",
            )

    @property
    def _shown(self) -> str:
        more = len(self.uncovered) - _SHOWN
        return "; ".join(map(str, self.uncovered[:_SHOWN])) + (f"; and {more} more" if more > 0 else "")

    def _what_helps(self) -> str:
        operator = next((each.name for each in self.uncovered if each.operation is None), None)
        if operator is None:
            return "choose another precision, GPU or predictor"
        return f'say which kind an operator is: joulecast.extract(model, input_shape, operators={{"{operator}": kind}})'


_ALL_COVERED = Coverage()


def _work(entry: Entry) -> tuple[int, int]:
    """FLOPs and bytes of all calls of an operation."""
    operation, count = entry.operation, entry.count
    return count * operation.flops, count * (operation.bytes_read + operation.bytes_written)


def percent(share: float) -> str:
    """A share of 0 to 1 as text in percent; a tiny share is written as "below 0.01 %"."""
    if 0 < share < _LEAST_SHOWN:
        return f"below {100 * _LEAST_SHOWN:g} %"
    if 0 < share < 0.001:
        return f"{100 * share:.2f} %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
