"""Network: the operations of a model with their counts and module paths, and the work that they do not cover."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..checked import integer
from ..errors import InputError, located, printable
from ..rendering.answers import Plain, Table, Tabular
from ..rendering.described import Column, Description, Grid, listing
from ..system.regular_files import MOST_JSON_BYTES, read_json
from ..system.whole_files import whole_file
from ..units import counted, number, si
from .attributes import ELEMENT_BYTES
from .entry import Dropped, Entry, merged, reading, short_text
from .inputs import InputShape, shape_from_json, shape_to_json, titled
from .operation import EXAMPLE, Operation, real_precision
from .operation_list import IDENTITY, WORK, Deriving, OperationList, identity, operation_text

# The difference between two networks: which operations only one of them has, and which are called more often.


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
        (before, after), sign = self.flops, "-" if self.flops_difference < 0 else "+"
        ratio = f"{after / before - 1:+.1%}" if before else "from none"
        lines = [
            f"{self.names[0]} -> {self.names[1]}: {self.calls[0]} -> {self.calls[1]} calls, "
            f"{sign}{si(abs(self.flops_difference), 'FLOP')} ({ratio})",
            *(f"- {count} x {operation}" for operation, count in self.removed),
            *(f"~ {before} -> {after} x {operation}" for operation, before, after in self.changed),
            *(f"+ {count} x {operation}" for operation, count in self.added),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        differ = [*((op, n, "") for op, n in self.removed), *self.changed, *((op, "", n) for op, n in self.added)]
        rows = [[operation_text(operation), str(before), str(after)] for operation, before, after in differ]
        listed = Grid(["operation", f"calls in {self.names[0]}", f"in {self.names[1]}"], rows, {1, 2})
        return Description(str(self).splitlines()[0], [listed] if rows else []).to_html()

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


class ParameterBytes(NamedTuple):
    """Bytes of a model's parameters.

    Args:
        stored: Bytes of all parameters in the types that they are stored in; shared ones count once.
        learned: Bytes of those that are learned, and so of their gradients.
        casts: Bytes of the copies in half precision that autocast holds beside them.
    """

    stored: int
    learned: int
    casts: int = 0

    def beside(self, calls: Iterable[tuple[Operation, str]]) -> Self | None:
        """These bytes, or None if they follow from the operations of a model's calls.

        Some parameters belong to no operation: Llama 4's experts are operands of products, and a table of positions is
        only added. Others belong to several, such as GPT-2's embedding, which is its last layer as well. Up to 5 % more
        or less than the operations have, such as that table, are ignored.
        """
        counted = sum(op.parameters * ELEMENT_BYTES[op.precision] for op, _ in set(calls))
        follows = not self.casts and self.stored == self.learned and abs(self.stored - counted) <= 0.05 * counted
        return None if follows else self


@dataclass(frozen=True)
class Network(Tabular, Plain, Deriving):
    """Operations of a model at one input shape, with their counts and module paths.

    Args:
        entries: The distinct operations, in order of first use.
        name: Name of the network.
        input_shape: Shape of the input at which it was extracted, batch first; several shapes, or a mapping from name
            to shape, for several inputs; None for a list of operations.
        mode: "inference" or "training"; all operations share it.
        dropped: Operator calls that no operation represents.
        assumptions: Assumptions about values of the input, in words.
        channels_last: Whether images lie in memory with their channels last (`torch.channels_last`).
        parameter_bytes: Bytes of parameters where some are frozen, shared, in no operation, or cast by autocast; None
            where all are stored in the precision of their operations, and learned in training.
    """

    entries: tuple[Entry, ...] = field(repr=False)
    name: str = "network"
    input_shape: InputShape | None = None
    mode: str = "inference"
    dropped: tuple[Dropped, ...] = ()
    assumptions: tuple[str, ...] = ()
    channels_last: bool = False
    parameter_bytes: ParameterBytes | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.name.isprintable():  # as of a file whose name has a line break
            object.__setattr__(self, "name", printable(self.name))
        if not self.entries:
            raise InputError(
                "a network needs at least one operation",
                given=self.name,
                hint="extract a model, or list at least one operation",
            )
        if not isinstance(self.channels_last, bool):
            raise InputError(
                "channels_last says whether images lie with their channels last",
                given=repr(self.channels_last)[:200],
                allowed="true or false",
            )
        modes = {entry.operation.mode for entry in self.entries}
        if modes != {self.mode}:
            raise InputError(
                "the operations of a network share its mode", given=", ".join(sorted(modes)), allowed=self.mode
            )

    @classmethod
    def of(cls, operations: Iterable[tuple[Operation, int]], *, name: str = "network") -> Self:
        """A network from pairs of operation and count; equal operations are put together."""
        counts: dict[Operation, int] = {}
        for operation, count in operations:
            counts[operation] = counts.get(operation, 0) + Entry(operation, count).count
        mode = next(iter(counts)).mode if counts else "inference"
        return cls(tuple(Entry(operation, count) for operation, count in counts.items()), name=name, mode=mode)

    @classmethod
    def of_calls(cls, calls: Iterable[tuple[Operation, str]], **fields: Any) -> Self:
        """A network from its single calls in their order, each with the path of its module, and its other fields."""
        paths: dict[Operation, list[str]] = {}
        for operation, path in calls:
            paths.setdefault(operation, []).append(path)
        return cls(tuple(Entry.at(operation, where) for operation, where in paths.items()), **fields)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def operations(self) -> OperationList:
        """The unique operations, in the order of the entries."""
        return OperationList(entry.operation for entry in self.entries)

    def __getstate__(self) -> dict[str, Any]:
        # What was computed of it is not pickled; other processes compute what they need.
        return {name: value for name, value in vars(self).items() if name != "_derived"}

    @cached_property
    def uncounted(self) -> tuple[Dropped, ...]:
        """Dropped work whose cost is not negligible. No total contains it."""
        return tuple(dropped for dropped in self.dropped if not dropped.is_exempt)

    @property
    def calls(self) -> int:
        """Number of operator calls, including repeats."""
        return sum(entry.count for entry in self.entries)

    @property
    def flops(self) -> int:
        """FLOPs of all operations; a multiply-add is two."""
        return sum(entry.count * entry.operation.flops for entry in self.entries)

    def replace(self, *, mode: str, precision: str | None = None) -> Network:
        """The same network in another mode, and in another precision if one is given."""

        def changed(entry: Entry) -> Operation | None:
            operation = entry.operation
            if mode == "inference" and operation.gradients == "recomputed":
                return None  # The backward of training runs it again.
            real = None if precision is None else real_precision(operation.kind, precision)
            return operation.replace(mode=mode, precision=real)

        return self.changed(changed, mode=mode, parameter_bytes=None if precision else self.parameter_bytes)

    def with_attention_by(self, library: str) -> Network:
        """The same network with attention computed by a library such as "cudnn", which its assumptions name.

        The library is a value of the attribute `implementation` of attention. Raises InputError: there is none such.
        """
        said = f"attention is computed by {library}"
        return self.changed(
            lambda e: (
                e.operation.with_attributes(implementation=library) if e.operation.kind == "attention" else e.operation
            ),
            assumptions=tuple(dict.fromkeys((*self.assumptions, said))),
        )

    def changed(self, change: Callable[[Entry], Operation | None], **others: Any) -> Network:
        """The same network with other operations in place of its own, and without those that become None."""
        changed = ((entry, change(entry)) for entry in self.entries)
        entries = merged(replace(entry, operation=other) for entry, other in changed if other is not None)
        return replace(self, entries=entries, **others)

    def diff(self, other: Network) -> NetworkDiff:
        """Compare with another network: operations that it adds, removes, or calls another number of times."""
        before, after = ({e.operation: e.count for e in network} for network in (self, other))
        return NetworkDiff(
            names=(self.name, other.name),
            added=tuple((op, n) for op, n in after.items() if op not in before),
            removed=tuple((op, n) for op, n in before.items() if op not in after),
            changed=tuple((op, n, after[op]) for op, n in before.items() if after.get(op, n) != n),
            calls=(self.calls, other.calls),
            flops=(self.flops, other.flops),
        )

    def __str__(self) -> str:
        return (
            f"{titled(self.name, self.input_shape)}, {self.mode}: {len(self)} operations, "
            f"{counted(self.calls, 'call')}, {si(self.flops, 'FLOP')}"
        )

    def described(self, top: int = 10) -> Description:
        """What a terminal and a notebook show: operations, and what was dropped and assumed.

        Args:
            top: Number of operations, those with most FLOPs in all; 0 for all in the order of their first use.
        """

        def modules(entry: Entry) -> str:
            paths = ", ".join(path or "(model)" for path in entry.module_paths[:2])
            return paths + (f", ... ({len(entry.module_paths)})" if len(entry.module_paths) > 2 else "")

        columns = [
            Column("operation", lambda entry: operation_text(entry.operation), right=False),
            Column("calls", lambda entry: str(entry.count)),
            Column("FLOPs", lambda entry: si(entry.operation.flops, "FLOP")),
            Column("bytes", lambda entry: si(_moved(entry), "B")),
            Column("FLOP/B", lambda entry: number(entry.operation.flops / _moved(entry)) if _moved(entry) else "-"),
            Column("modules", modules, right=False),
        ]
        entries = self.entries if not top else sorted(self, key=lambda e: -e.count * e.operation.flops)
        moved = sum(entry.count * _moved(entry) for entry in self)
        counts = f"{counted(len(self), 'operation')}, {counted(self.calls, 'call')}, {si(self.flops, 'FLOP')}"
        said = [f"{counts}, {si(moved, 'B')} moved"]
        said += [f"dropped: {d.count} x {d.name} ({d.reason}) in {', '.join(d.module_paths[:3])}" for d in self.dropped]
        said += [f"assumed: {assumption}" for assumption in self.assumptions]
        parts: list[Grid | str] = [listing(entries, columns, top), "(FLOPs and bytes per call)", "\n".join(said)]
        return Description(f"{titled(self.name, self.input_shape)}, {self.mode}", parts)

    def _repr_html_(self) -> str:
        return self.described().to_html()

    def _table(self) -> Table:
        rows = []
        for entry in self:
            work = (getattr(entry.operation, name) for name in WORK)
            rows.append((*identity(entry.operation), entry.count, *work, " ".join(entry.module_paths)))
        return Table((*IDENTITY, "count", *WORK, "module_paths"), rows)

    def to_dict(self) -> dict[str, Any]:
        """The network as plain lists and dictionaries."""
        return {
            "name": self.name,
            "input_shape": shape_to_json(self.input_shape),
            "mode": self.mode,
            "operations": [entry.to_dict() for entry in self.entries],
            "dropped": [dropped.to_dict() for dropped in self.dropped],
            "assumptions": list(self.assumptions),
            **({"channels_last": True} if self.channels_last else {}),
            **({"parameter_bytes": self.parameter_bytes._asdict()} if self.parameter_bytes else {}),
        }

    @classmethod
    def from_dict(cls, value: object, *, name: str = "network") -> Self:
        """Read what `to_dict` wrote, or a bare list of operations with counts.

        Raises:
            InputError: The value is not a network, or contains an operation that cannot exist; the message says which.
        """
        if isinstance(value, list):
            value = {"operations": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("operations"), list):
            raise InputError(
                "a network is a list of operations, or an object with a list under 'operations'",
                given=type(value).__name__,
                allowed=f"such as [{EXAMPLE}]",
            )
        known = ["operations", *cls.__dataclass_fields__]
        known.remove("entries")
        if extra := [str(key) for key in value if key not in known]:
            raise InputError(f"{name} has no such keys", given=", ".join(sorted(extra)), allowed=", ".join(known))
        entries = []
        with reading(name, "what Network.to_dict returns"):
            for position, item in enumerate(value["operations"]):
                try:
                    entries.append(Entry.from_dict(item))
                except InputError as error:
                    raise located(error, f"operation {position + 1} of {name}") from error
            sizes = value.get("parameter_bytes")
            return cls(
                tuple(entries),
                name=short_text(value.get("name", name)),
                input_shape=shape_from_json(value.get("input_shape")),
                mode=value.get("mode", entries[0].operation.mode if entries else "inference"),
                dropped=tuple(map(Dropped.from_dict, value.get("dropped", ()))),
                assumptions=tuple(map(short_text, value.get("assumptions", ()))),
                channels_last=value.get("channels_last", False),
                parameter_bytes=None if sizes is None else ParameterBytes(**{k: integer(n) for k, n in sizes.items()}),
            )

    def save(self, path: str | Path) -> None:
        """Write the network as JSON: as a whole, or not at all if this is killed or the disk is full."""
        with whole_file(Path(path)) as unfinished:
            unfinished.write_text(json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a network from a JSON file.

        Raises:
            InputError: The file cannot be read, or does not contain a network.
        """
        path = Path(path)
        return cls.from_dict(read_json(path, MOST_JSON_BYTES, "this network file"), name=path.stem)


def _moved(entry: Entry) -> int:
    """Bytes that a call reads and writes."""
    return entry.operation.bytes_read + entry.operation.bytes_written
