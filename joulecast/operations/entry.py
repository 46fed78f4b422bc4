"""Entry: an operation of a network, with how often and in which modules it is called."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Self

from ..errors import InputError
from .dropped import short_text
from .operation import EXAMPLE, Operation


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
        known = calls.keys() == set(paths) and max(calls.values()) > 1
        counts = tuple(calls[path] for path in paths) if known else ()
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
        return cls(
            Operation.from_dict(bare),
            value.get("count", 1),
            tuple(map(short_text, value.get("module_paths", ()))),
            tuple(value.get("module_counts", ())),
        )


_OF_AN_ENTRY = frozenset({"count", "module_paths", "module_counts"})
