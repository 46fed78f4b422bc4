"""OperationList: operations in their order, with what follows from them alone kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Self, TypeVar, cast

from .operation import Operation

Derived = TypeVar("Derived")


class OperationList(tuple[Operation, ...]):
    """A tuple of operations that remembers what was derived from it.

    A network is asked about again and again: for features, least times and energies, on every GPU and at every clock
    of a search. What depends on its operations alone is found out once, and goes when the network goes.
    """

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Self:
        """The operations as such a list; the same one if they are one already."""
        return operations if isinstance(operations, cls) else cls(operations)

    @cached_property
    def _derived(self) -> dict[Callable[..., Any], Any]:
        return {}

    def derived(self, make: Callable[[OperationList], Derived]) -> Derived:
        """What a function makes of this list; called once, so its result must not be changed.

        Args:
            make: A function of a module, which stands for what it makes.
        """
        kept = self._derived
        if make not in kept:
            kept[make] = make(self)
        return cast(Derived, kept[make])

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        # What was derived does not travel.
        return type(self), (tuple(self),)
