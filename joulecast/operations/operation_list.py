"""OperationList: a sequence of operations that caches values computed from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Self, TypeVar, cast

from .operation import Operation

Derived = TypeVar("Derived")


class OperationList(tuple[Operation, ...]):
    """A tuple of operations that caches what functions compute from it.

    A search predicts the same network on many GPUs and at many clocks. Values that depend on its operations alone are
    computed once, and are freed together with the network.
    """

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Self:
        """Convert operations to an OperationList; one that is given is returned unchanged."""
        return operations if isinstance(operations, cls) else cls(operations)

    @cached_property
    def _derived(self) -> dict[Callable[..., Any], Any]:
        return {}

    def derived(self, make: Callable[[OperationList], Derived]) -> Derived:
        """The result of a function of this list. The function is called once, so its result must not be changed.

        Args:
            make: Function that is defined in a module; it is the key under which its result is cached.
        """
        cached = self._derived
        if make not in cached:
            cached[make] = make(self)
        return cast(Derived, cached[make])

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
        # Cached values are not pickled.
        return type(self), (tuple(self),)
