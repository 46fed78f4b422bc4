"""Operations in lists: as users give them, as text, as rows of a table, and with what was derived from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar, cast

from ..errors import InputError
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
        """The result of a function of a module, computed of this list once, so it must not be changed."""
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


def operation_text(operation: Operation) -> str:
    """A short text that tells the operations of a network apart."""
    shapes = ["x".join(map(str, shape)) for shape in operation.input_shapes]
    out = "x".join(map(str, operation.output_shape))
    names: dict[str, Any] = {"kernel_size": "k", "stride": "s", "groups": "g"}
    details = " ".join(
        f"{short}{operation.attributes[name]}"
        for name, short in names.items()
        if name in operation.attributes and operation.attributes[name] not in (1, None)
    )
    inputs = f"{len(shapes)} inputs" if len(shapes) > 3 else ", ".join(shapes)
    change = out if set(shapes) == {out} else f"{inputs} -> {out}"
    gradients = "" if operation.gradients == "all" else f" gradients: {operation.gradients}"
    return f"{operation.kind} {change}" + (f" {details}" if details else "") + f" {operation.precision}{gradients}"


IDENTITY = ("kind", "input_shapes", "attributes", "precision", "mode")
"""Columns that identify an operation."""

WORK = ("flops", "bytes_read", "bytes_written", "parameters")
"""Columns with the work of one call of an operation; each is named like the attribute of `Operation`."""


def identity(operation: Operation) -> tuple[str, ...]:
    """The values of `IDENTITY`, with shapes and attributes as JSON."""
    value = operation.to_dict()
    shapes, attributes = json.dumps(value["input_shapes"]), json.dumps(value["attributes"])
    return operation.kind, shapes, attributes, operation.precision, operation.mode


def mode_of(operations: Sequence[Operation]) -> str:
    """The mode that all operations share. Raises InputError: there are operations of both modes, or none at all."""
    modes = sorted({operation.mode for operation in operations})
    if len(modes) != 1:
        raise InputError(
            "operations to predict share one mode",
            given=", ".join(modes) or "no operations",
            allowed="one operation or more, of one mode",
            hint="ask once for each mode",
        )
    return modes[0]


def checked_operations(operations: Iterable[Operation]) -> list[Operation]:
    """Check that all items are operations, and return them as a list.

    Raises InputError: it is no list of operations.
    """
    listed = list(operations) if isinstance(operations, Iterable) and not isinstance(operations, str) else [operations]
    others = [each for each in listed if not isinstance(each, Operation)]
    if others or isinstance(operations, Operation):
        raise InputError(
            "operations are a list of joulecast.Operation",
            given=repr((others or listed)[0])[:200],
            allowed='such as [Operation("relu", [(32, 64, 56, 56)])]',
            hint="Operation.from_dict(...) makes one of a dictionary",
        )
    return listed
