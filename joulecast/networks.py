"""Network: what a model consists of, operations with their counts and module paths, and what was left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .errors import InputError
from .inputs import InputShape, shape_from_json, shape_to_json
from .operations import Operation, real_precision


@dataclass(frozen=True)
class Entry:
    """An operation of a network: how often it runs, and in which modules."""

    operation: Operation
    count: int = 1
    module_paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise InputError("a count is a positive integer", given=repr(self.count))

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read an operation with its count (1 where it is left out) and module paths.

        Raises:
            InputError: Not such an object, or an operation that cannot be.
        """
        if not isinstance(value, Mapping):
            raise InputError("an operation is an object", given=repr(value)[:200])
        bare = {name: item for name, item in value.items() if name not in ("count", "module_paths")}
        return cls(Operation.from_json(bare), value.get("count", 1), tuple(value.get("module_paths", ())))


BOOKKEEPING = "bookkeeping on one integer"
"""Reason for dropping what costs nothing worth a mention: batch norm counts its batches."""


@dataclass(frozen=True)
class Dropped:
    """Work that was seen in a model and is no operation of its network."""

    name: str
    count: int
    module_paths: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Network:
    """What a model consists of at one input shape: operations with counts and module paths.

    Args:
        entries: The unique operations, in order of first use.
        name: What to call it.
        input_shape: The shape that it was extracted at: of one input, of several, or by name; None for a list of
            operations.
        mode: inference or training; all operations share it.
        dropped: What the whitelist or the extraction left out.
    """

    entries: tuple[Entry, ...]
    name: str = "network"
    input_shape: InputShape | None = None
    mode: str = "inference"
    dropped: tuple[Dropped, ...] = ()

    def __post_init__(self) -> None:
        if not self.entries:
            raise InputError("a network needs at least one operation", given=self.name)
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

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def calls(self) -> int:
        """Number of operator calls, repeats counted."""
        return sum(entry.count for entry in self.entries)

    @property
    def flops(self) -> int:
        """FLOPs of all operations; a multiply-add is two."""
        return sum(entry.count * entry.operation.flops for entry in self.entries)

    def replace(self, *, mode: str, precision: str | None = None) -> Network:
        """The same network in another mode, and in another precision where one is asked for."""
        counts: dict[Operation, tuple[int, tuple[str, ...]]] = {}
        for entry in self.entries:
            kind = entry.operation.kind
            real = None if precision is None else real_precision(kind, precision)
            operation = entry.operation.replace(mode=mode, precision=real)
            count, paths = counts.get(operation, (0, ()))
            counts[operation] = (count + entry.count, paths + entry.module_paths)
        entries = tuple(Entry(operation, count, paths) for operation, (count, paths) in counts.items())
        return Network(entries, name=self.name, input_shape=self.input_shape, mode=mode, dropped=self.dropped)

    def to_json(self) -> dict[str, Any]:
        """The network as plain lists and dictionaries."""
        return {
            "name": self.name,
            "input_shape": shape_to_json(self.input_shape),
            "mode": self.mode,
            "operations": [
                {**entry.operation.to_json(), "count": entry.count, "module_paths": list(entry.module_paths)}
                for entry in self.entries
            ],
            "dropped": [
                {"name": d.name, "count": d.count, "module_paths": list(d.module_paths), "reason": d.reason}
                for d in self.dropped
            ],
        }

    @classmethod
    def from_json(cls, value: object, *, name: str = "network") -> Self:
        """Read what `to_json` wrote, or a bare list of operations with counts.

        Raises:
            InputError: The value is no network, or holds an operation that cannot be; says which.
        """
        if isinstance(value, list):
            value = {"operations": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("operations"), list):
            raise InputError("a network is a list of operations, or an object with a list under 'operations'")
        entries = []
        for position, item in enumerate(value["operations"]):
            try:
                entries.append(Entry.from_json(item))
            except InputError as error:
                raise InputError(
                    f"operation {position + 1} of {name}: {error.what}",
                    given=error.given,
                    allowed=error.allowed,
                    hint=error.hint,
                ) from error
        return cls(
            tuple(entries),
            name=value.get("name", name),
            input_shape=shape_from_json(value.get("input_shape")),
            mode=value.get("mode", entries[0].operation.mode if entries else "inference"),
            dropped=tuple(
                Dropped(d["name"], d["count"], tuple(d["module_paths"]), d["reason"]) for d in value.get("dropped", ())
            ),
        )

    def save(self, path: str | Path) -> None:
        """Write the network as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a network from a JSON file.

        Raises:
            InputError: The file cannot be read or holds no network.
        """
        path = Path(path)
        try:
            value = json.loads(path.read_text())
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InputError("this network file cannot be read", given=str(path), hint=str(error)) from error
        return cls.from_json(value, name=path.stem)
