"""The difference between two networks: which operations only one of them has, and which are called more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..rendering.answers import Plain
from ..rendering.notebook import document, table
from ..units import si
from .operation import Operation
from .operation_list import operation_text


@dataclass(frozen=True)
class NetworkDiff(Plain):
    """Difference between two networks, the first and the second. Its text has one line per operation that differs.

    Args:
        added: Operations that only the second network has, with their counts.
        removed: Operations that only the first network has, with their counts.
        changed: Operations of both, with the count in the first and in the second network.
        flops: FLOPs of both; a multiply-add is two.
    """

    names: tuple[str, str]
    added: tuple[tuple[Operation, int], ...]
    removed: tuple[tuple[Operation, int], ...]
    changed: tuple[tuple[Operation, int, int], ...]
    calls: tuple[int, int]
    flops: tuple[int, int]

    @property
    def flops_difference(self) -> int:
        """FLOPs of the second network minus those of the first."""
        return self.flops[1] - self.flops[0]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        sign = "-" if self.flops_difference < 0 else "+"
        lines = [
            f"{self.names[0]} -> {self.names[1]}: {self.calls[0]} -> {self.calls[1]} calls, "
            f"{sign}{si(abs(self.flops_difference), 'FLOP')} ({_ratio(*self.flops)})",
            *(f"- {count} x {operation}" for operation, count in self.removed),
            *(f"~ {before} -> {after} x {operation}" for operation, before, after in self.changed),
            *(f"+ {count} x {operation}" for operation, count in self.added),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            *([operation_text(operation), str(count), ""] for operation, count in self.removed),
            *([operation_text(operation), str(before), str(after)] for operation, before, after in self.changed),
            *([operation_text(operation), "", str(count)] for operation, count in self.added),
        ]
        listed = table(["operation", f"calls in {self.names[0]}", f"in {self.names[1]}"], rows, frozenset({1, 2}))
        return document(str(self).splitlines()[0], listed if rows else "")

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain lists and dictionaries."""
        return {
            "names": list(self.names),
            "added": [{**operation.to_dict(), "count": count} for operation, count in self.added],
            "removed": [{**operation.to_dict(), "count": count} for operation, count in self.removed],
            "changed": [{**op.to_dict(), "counts": [before, after]} for op, before, after in self.changed],
            "calls": list(self.calls),
            "flops": list(self.flops),
        }


def _ratio(before: int, after: int) -> str:
    return f"{after / before - 1:+.1%}" if before else "from none"
