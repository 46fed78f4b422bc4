"""Records operations with their paths, and says what operations cost by how tensors lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...operations.entry import Entry
from ...operations.network import Network
from ...operations.operation import Operation
from ...operations.rules import size

Shape = tuple[int, ...]

TRANSPOSED, JOINED = "transposed", "joined"
_ELEMENT_CYCLES: Mapping[str, float] = {TRANSPOSED: 1.8, JOINED: 1.5}
"""Last name of a path -> cycles of a multiprocessor for each element that a kernel of PyTorch writes there."""


def strided_cycles(network: Network, sms: int) -> Mapping[Operation, float]:
    """Cycles that operations take to address elements that do not lie side by side in memory; others are missing."""
    found = {}
    for entry in network:
        cycles = _ELEMENT_CYCLES.get(entry.module_paths[0].rpartition(".")[2] if entry.module_paths else "")
        if cycles is not None:
            found[entry.operation] = cycles * size(entry.operation.output_shape) / sms
    return found


@dataclass(frozen=True)
class Layers:
    """The operations that were recorded so far."""

    precision: str
    # Operation -> path of the module of each of its calls.
    calls: dict[Operation, list[str]] = field(default_factory=dict)

    @property
    def wide(self) -> Layers:
        """The same operations, to record more in fp32."""
        return replace(self, precision="fp32")

    def add(self, path: str, kind: str, *shapes: Shape, each: int = 1, **attributes: object) -> None:
        """Record an operation, `each` times, in the module at a path."""
        operation = Operation(kind, shapes, attributes, precision=self.precision)
        self.calls.setdefault(operation, []).extend([path] * each)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The recorded operations with their paths."""
        return tuple(Entry.at(operation, paths) for operation, paths in self.calls.items())


def parameters_of(network: Network) -> int:
    """Number of parameters. A module counts once, even if its inputs have several shapes."""
    weights = {(path, entry.operation.parameters) for entry in network for path in entry.by_module}
    return sum(parameters for _, parameters in weights)
