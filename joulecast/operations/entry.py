"""Entry: an operation of a network, with how often and in which modules it is called."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from numbers import Integral
from typing import Any, Self

from ..checked import integer, text
from ..errors import InputError, printable
from .attributes import ELEMENT_BYTES
from .operation import EXAMPLE, Operation
from .rules import size

# Dropped work: operator calls of a model that no operation represents. They count as not covered, never as zero.

BOOKKEEPING = "bookkeeping on one integer"
"""Reason for dropping work of negligible cost, such as the batches that batch norm counts."""

SHAPE_ARITHMETIC = "made from shapes alone"
"""Reason for dropping positions and masks that depend on shapes alone, not on the input's values or a parameter."""

EXEMPT: frozenset[str] = frozenset(
    f"aten.{name}"
    for name in (
        *("arange", "linspace", "eye", "zeros", "ones", "full", "zero", "fill"),
        *("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"),
        "_local_scalar_dense",
    )
)
"""Operators that are dropped without a warning: they fill a tensor with a constant, or read a single number."""


def is_exempt(name: str, reason: str) -> bool:
    """Whether the cost of an operator that is dropped for this reason is negligible."""
    return name in EXEMPT or reason in (BOOKKEEPING, SHAPE_ARITHMETIC)


_LONGEST_TEXT = 1000


def short_text(value: object) -> str:
    """A name, path or reason of a network file as a printable text. Raises TypeError or ValueError: it is none."""
    return printable(text(value, _LONGEST_TEXT))


@contextmanager
def reading(what: str, allowed: str) -> Iterator[None]:
    """Read a value of a file or client. Raises InputError: a part has the wrong type, or is missing."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"a value of {what} has the wrong type, or is missing",
            given=f"{type(error).__name__}: {error}"[:200],
            allowed=allowed,
        ) from error


@dataclass(frozen=True)
class DroppedWork:
    """Amount of dropped work, estimated from its tensors: the forward, summed over all calls.

    Args:
        flops: FLOPs if PyTorch has a formula for them (torch.utils.flop_counter; a multiply-add is two); otherwise 0.
        moved_bytes: Bytes of inputs and outputs. Each tensor counts once per call.
        parameter_bytes: Bytes of the inputs that are parameters. Each parameter counts once in all.
        output_bytes: Bytes of the outputs, which stay in memory for the backward in training.
        largest_bytes: Bytes of inputs and outputs of the largest call, without parameters.
    """

    flops: int
    moved_bytes: int
    parameter_bytes: int
    output_bytes: int
    largest_bytes: int

    def plus(self, other: DroppedWork) -> DroppedWork:
        """The sum of both, and the larger of the two largest calls."""
        added = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return DroppedWork(**{**added, "largest_bytes": max(self.largest_bytes, other.largest_bytes)})

    @classmethod
    def of(cls, operation: Operation, element_bytes: int) -> Self:
        """The work of the forward of one call of an operation that is dropped."""
        forward = operation.replace(mode="inference")
        scale = element_bytes / ELEMENT_BYTES[operation.precision]
        moved = round(scale * (forward.bytes_read + forward.bytes_written))
        return cls(
            flops=forward.flops,
            moved_bytes=moved,
            parameter_bytes=operation.parameters * element_bytes,
            output_bytes=size(operation.output_shape) * element_bytes,
            largest_bytes=(operation.input_size + size(operation.output_shape)) * element_bytes,
        )


@dataclass(frozen=True)
class Dropped:
    """Calls of a model that no operation of its network represents, for the stated reason.

    Args:
        name: Name of the operator, such as "aten.topk", or the operation kind of the call.
        module_paths: Paths of the modules that call it, without repeats.
        work: Amount of work; None if its cost is negligible, or if it is not known, as in files of earlier versions and
            in templates.
    """

    name: str
    count: int
    module_paths: tuple[str, ...]
    reason: str
    work: DroppedWork | None = None

    @property
    def is_exempt(self) -> bool:
        """Whether its cost is negligible, so that a network without it still counts as covered."""
        return is_exempt(self.name, self.reason)

    def to_dict(self) -> dict[str, Any]:
        """The dropped work as plain lists and dictionaries."""
        value = {"name": self.name, "count": self.count, "module_paths": list(self.module_paths), "reason": self.reason}
        return value if self.work is None else {**value, "work": asdict(self.work)}

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """Read what `to_dict` wrote, of this version or an earlier one. Raises InputError: it is no such object."""
        with reading("what was dropped", "name, count and reason; module_paths and work may be left out"):
            work = value.get("work")
            return cls(
                short_text(value["name"]),
                integer(value["count"]),
                tuple(map(short_text, value.get("module_paths", ()))),
                short_text(value["reason"]),
                None if work is None else DroppedWork(**{name: integer(amount) for name, amount in work.items()}),
            )


class DroppedTally:
    """Sums dropped work by name and reason."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], list[tuple[str, DroppedWork | None]]] = {}

    def add(self, name: str, reason: str, path: str, work: DroppedWork | None) -> None:
        """Count one call of an operator or kind in a module; the work is None if it is not known."""
        self._calls.setdefault((name, reason), []).append((path, work))

    def listed(self) -> tuple[Dropped, ...]:
        """All dropped work, in order of first use."""
        listed = []
        for (name, reason), calls in self._calls.items():
            known = [work for _, work in calls if work is not None]
            work = functools.reduce(DroppedWork.plus, known) if len(known) == len(calls) else None
            listed.append(Dropped(name, len(calls), tuple(dict.fromkeys(path for path, _ in calls)), reason, work))
        return tuple(listed)


@dataclass(frozen=True)
class Entry:
    """An operation of a network, with the number of calls in all modules together, and the paths of these modules.

    `module_counts` has the number of calls in each of these modules; it is empty if each calls it once, or if it is not
    known.
    """

    operation: Operation
    count: int = 1
    module_paths: tuple[str, ...] = ()
    module_counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            if isinstance(self.count, bool) or not isinstance(self.count, Integral) or self.count < 1:
                raise InputError("a count is a positive integer", given=repr(self.count), allowed="1 or more")
            object.__setattr__(self, "count", int(self.count))  # for numpy's integers
        if self.module_counts and (
            len(self.module_counts) != len(self.module_paths) or sum(self.module_counts) != self.count
        ):
            raise InputError(
                "the counts of the modules do not add up",
                given=repr(self.module_counts),
                allowed=f"{len(self.module_paths)} counts, {self.count} in all",
            )

    @classmethod
    def at(cls, operation: Operation, paths: Sequence[str]) -> Self:
        """Make an entry from the module path of every single call."""
        if len(set(paths)) == len(paths):  # as of nearly all operations; counting takes longer than all the rest
            return cls(operation, len(paths), tuple(paths))
        counts = Counter(paths)
        return cls(operation, len(paths), tuple(counts), tuple(counts.values()))

    @property
    def by_module(self) -> Mapping[str, int]:
        """Module path -> number of calls. If unknown, the innermost module around all calls gets them all."""
        if self.module_counts:
            return dict(zip(self.module_paths, self.module_counts, strict=True))
        if len(self.module_paths) == self.count:
            return dict.fromkeys(self.module_paths, 1)
        levels = zip(*(path.split(".") for path in self.module_paths), strict=False)
        common = itertools.takewhile(lambda level: len(set(level)) == 1, levels)
        return {".".join(level[0] for level in common): self.count}

    def plus(self, other: Entry) -> Entry:
        """Merge two entries of the same operation."""
        paths = tuple(dict.fromkeys((*self.module_paths, *other.module_paths)))
        calls = Counter(self.by_module) + Counter(other.by_module)
        counted = calls.keys() == set(paths) and max(calls.values()) > 1
        counts = tuple(calls[path] for path in paths) if counted else ()
        return Entry(self.operation, self.count + other.count, paths, counts)

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain lists and dictionaries."""
        return dict(self._json)

    @cached_property
    def _json(self) -> dict[str, Any]:
        # Computed once, because a service writes the same networks again and again.
        value = {**self.operation.to_dict(), "count": self.count, "module_paths": list(self.module_paths)}
        return {**value, "module_counts": list(self.module_counts)} if self.module_counts else value

    @classmethod
    def from_dict(cls, value: object) -> Self:
        """Read an operation with its count (1 where it is left out) and module paths.

        Raises InputError: it is no such object.
        """
        if not isinstance(value, Mapping):
            raise InputError("an operation is an object", given=repr(value)[:200], allowed=f"such as {EXAMPLE}")
        bare = {name: item for name, item in value.items() if name not in _OF_AN_ENTRY}
        with reading("an operation", f"such as {EXAMPLE}"):
            paths, counts = value.get("module_paths", ()), value.get("module_counts", ())
            return cls(Operation.from_dict(bare), value.get("count", 1), tuple(map(short_text, paths)), tuple(counts))


def merged(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries of which those of equal operations are put together."""
    by_operation: dict[Operation, Entry] = {}
    for entry in entries:
        before = by_operation.get(entry.operation)
        by_operation[entry.operation] = entry if before is None else before.plus(entry)
    return tuple(by_operation.values())


_OF_AN_ENTRY = frozenset({"count", "module_paths", "module_counts"})
