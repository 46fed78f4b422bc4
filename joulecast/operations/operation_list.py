"""Operations in lists: as users give them, as text, as rows of a table, and with what was derived from them.

Operations that differ only in their sizes are counted together, as rows and columns of sizes: of the time to count one
alone, nearly all is spent in Python between short calculations. The rules of a kind are arithmetic with sizes, so they
work on arrays of sizes as on integers. The texts that identify such operations also differ only in their sizes, so
digests are made together as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import compress
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .attributes import COUNT, REQUIRED, SHAPE
from .kind import Counted
from .kinds import KINDS
from .operation import Operation, compact_json, digest_of

Derived = TypeVar("Derived")


class Deriving:
    """A value that caches what functions compute from it."""

    @cached_property
    def _derived(self) -> dict[Callable[..., Any], Any]:
        return {}

    def derived(self, make: Callable[[Any], Derived]) -> Derived:
        """The result of a function of a module, computed of this value once, so it must not be changed."""
        if make not in self._derived:
            self._derived[make] = make(self)
        return cast(Derived, self._derived[make])


class OperationList(tuple[Operation, ...], Deriving):
    """A tuple of operations.

    A search predicts the same network on many GPUs and at many clocks. Values that depend on its operations alone are
    computed once, and are freed together with the network.
    """

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Self:
        """Convert operations to an OperationList; one that is given is returned unchanged."""
        return operations if isinstance(operations, cls) else cls(operations)

    def some(self, which: NDArray[np.bool_]) -> OperationList:
        """The operations at a mask of shape (operations,): one list for all GPUs, as much is derived of it as well."""
        if which.all():
            return self
        return self._some.setdefault(which.tobytes(), OperationList(compress(self, which)))

    @cached_property
    def _some(self) -> dict[bytes, OperationList]:
        return {}

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


# Operations that are counted together.

_MANY = 16  # From this number on, computing together is quicker than computing one after the other.
_SIZE = "\0"  # Stands for a size in the text of operations.
_MOST_ELEMENTS = 2.0**29
"""Elements of all tensors of an operation. FLOPs grow with the product of two tensors at most, so those of this many
elements fit into 64 bits. Python's integers hold any number."""


@dataclass(frozen=True)
class Group:
    """Operations of one kind, precision and mode, with equal ranks and equal attributes but for sizes of tensors.

    `places` are their indices in the list that the group was found in. `rows` has all sizes of each operation: those in
    attributes, by the name of the attribute, those of the inputs, those of the output, and the number of parameters.
    """

    places: Sequence[int]
    operations: Sequence[Operation]
    rows: Sequence[Sequence[int]]

    @classmethod
    def of(cls, places: Sequence[int], operations: Sequence[Operation]) -> Group:
        """A group of operations that are known to be alike."""
        names = _size_attributes(operations[0].kind)
        return cls(places, operations, [_sizes(operation, names) for operation in operations])

    def digests(self) -> Iterator[str]:
        """The digest of each operation; see `Operation.digest`."""
        first = self.operations[0]
        described = first.to_dict()
        attributes, shapes = described["attributes"], described["input_shapes"]
        for name in _size_attributes(first.kind):
            listed = isinstance(attributes[name], list)
            attributes[name] = [_SIZE] * len(attributes[name]) if listed else _SIZE
        described["input_shapes"] = [[_SIZE] * len(shape) for shape in shapes]
        # The output and the number of parameters at the end of each row follow from the rest, and are not written.
        written = len(self.rows[0]) - len(first.output_shape) - 1
        text = compact_json(described).replace("%", "%%").replace(compact_json(_SIZE), "%d")
        return (digest_of(text % tuple(row[:written])) for row in self.rows)


def alike_groups(operations: OperationList) -> tuple[Group, ...]:
    """The groups of operations that are alike, in the order of their first operations; those of a few are left out."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, operation in enumerate(operations if len(operations) >= _MANY else ()):
        alike.setdefault(_likeness(operation), []).append(place)
    large = [places for places in alike.values() if len(places) >= _MANY]
    return tuple(Group.of(places, [operations[place] for place in places]) for places in large)


def digests_of(operations: OperationList) -> list[str]:
    """The digests of operations; see `Operation.digest`. Those that are alike are computed together, and stored."""
    # A cached property looks its value up in the instance's dictionary.
    unknown = OperationList(operation for operation in operations if "digest" not in vars(operation))
    groups = (operations if len(unknown) == len(operations) else unknown).derived(alike_groups)
    for group in groups:
        for operation, digest in zip(group.operations, group.digests(), strict=True):
            vars(operation)["digest"] = digest
    return [operation.digest for operation in operations]


class AlikeOperations(Counted):
    """The operations of a group as one, in which every size, and what is computed of it, has the shape (operations,).

    Raises OverflowError: one has more parameters than a 64-bit integer can hold.
    """

    def __init__(self, group: Group) -> None:
        first = group.operations[0]
        self.kind, self.row, self.precision, self.mode = first.kind, first.row, first.precision, first.mode
        columns: Iterator[Any] = iter(np.array(group.rows, np.int64).T)

        def taken(like: Any) -> Any:
            return tuple(map(taken, like)) if isinstance(like, tuple) else next(columns)

        sizes = {name: taken(first.attributes[name]) for name in _size_attributes(first.kind)}
        self.attributes = {**first.attributes, **sizes}
        self.input_shapes = taken(first.input_shapes)
        self.output_shape = taken(first.output_shape)
        self.parameters = next(columns)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Which operations are small enough to be counted in 64 bits, shape (operations,)."""
        tensors = [*self.input_shapes, self.output_shape, (self.parameters,)]
        elements = sum(math.prod(np.asarray(side, float) for side in shape) for shape in tensors)
        return np.asarray(elements < _MOST_ELEMENTS)

    @property
    def _broadcasts(self) -> bool:
        out, inputs = self.output_shape, self._differentiated
        others = [shape for shape in inputs if len(shape) == len(out)]
        wider = len(others) < len(inputs)
        differ = [np.not_equal(a, b) for shape in others for a, b in zip(shape, out, strict=True)]
        return reduce(np.logical_or, differ, wider)

    def _whole(self, amount: float) -> int:
        return cast(int, np.round(amount))


def _likeness(operation: Operation) -> tuple[Any, ...]:
    """A value that is equal for operations of one group."""
    kind, attributes = operation.kind, operation.attributes
    return (
        kind,
        operation.precision,
        operation.mode,
        len(operation.output_shape),
        *map(len, operation.input_shapes),
        *compress(attributes.values(), _are_no_sizes(kind)),
        *[len(attributes[name]) for name in _shape_attributes(kind)],
    )


def _sizes(operation: Operation, names: Sequence[str]) -> list[int]:
    """A row of `Group`, for the names of `_size_attributes`."""
    row: list[int] = []
    for name in names:
        value = operation.attributes[name]
        row += value if isinstance(value, tuple) else (value,)
    for shape in operation.input_shapes:
        row += shape
    row += operation.output_shape
    row.append(operation.parameters)
    return row


@cache
def _size_attributes(kind: str) -> tuple[str, ...]:
    """The attributes of a kind that are sizes of tensors, such as out_channels, and shapes, in the order of names."""
    rows = KINDS[kind].attributes
    counts = {name for name, row in rows.items() if row.values is COUNT and row.default is REQUIRED}
    return tuple(sorted({*counts, *_shape_attributes(kind)}))


@cache
def _are_no_sizes(kind: str) -> tuple[bool, ...]:
    """Whether each attribute of a kind is none of `_size_attributes`, in the order in which operations have them."""
    return tuple(name not in _size_attributes(kind) for name in KINDS[kind].attributes)


@cache
def _shape_attributes(kind: str) -> tuple[str, ...]:
    """The attributes of a kind that are shapes."""
    return tuple(name for name, row in KINDS[kind].attributes.items() if row.values is SHAPE)
