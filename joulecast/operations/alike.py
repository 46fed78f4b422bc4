"""Operations that differ in their sizes alone, as columns, so that the rules of their kind count all of them at once.

Counting FLOPs and bytes of one operation takes 20 us, nearly all of it spent in Python between short calculations. The
rules are arithmetic with sizes, so they do for arrays of sizes what they do for integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .attributes import COUNT, REQUIRED, SHAPE
from .counted import Counted
from .kinds import KINDS
from .operation import Operation

_MOST_ELEMENTS = 2.0**29
"""Elements of all tensors of an operation. FLOPs grow with the product of two tensors at most, so those of this many
elements fit into 64 bits. Python's integers hold any number."""


class AlikeOperations(Counted):
    """Operations of one kind, precision and mode, with equal ranks and equal attributes but for numbers of elements.

    Every size is an array of shape (operations,), and so is everything that is computed from sizes.

    Args:
        operations: At least one; see `alike_groups`.

    Raises:
        OverflowError: One has more parameters than a 64-bit integer can hold.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        first = operations[0]
        self.kind, self.precision, self.mode = first.kind, first.precision, first.mode
        counts, shapes = _sizes_in_attributes(first.kind)
        columns: Iterator[Any] = iter(np.array([_flat(one, counts, shapes) for one in operations], np.int64).T)

        def taken(shape: Sequence[int]) -> tuple[int, ...]:
            return tuple(next(columns) for _ in shape)

        self.input_shapes = tuple(map(taken, first.input_shapes))
        self.output_shape = taken(first.output_shape)
        self.parameters = next(columns)
        self.attributes = {
            **first.attributes,
            **{name: next(columns) for name in counts},
            **{name: taken(first.attributes[name]) for name in shapes},
        }

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Which operations are small enough to be counted in 64 bits, shape (operations,)."""
        tensors = [*self.input_shapes, self.output_shape, (self.parameters,)]
        elements = sum(math.prod(np.asarray(side, float) for side in shape) for shape in tensors)
        return np.asarray(elements < _MOST_ELEMENTS)

    @property
    def _broadcasts(self) -> bool:
        out = self.output_shape
        others = [shape for shape in self.input_shapes if len(shape) == len(out)]
        wider = len(others) < len(self.input_shapes)
        differ = [np.not_equal(a, b) for shape in others for a, b in zip(shape, out, strict=True)]
        return reduce(np.logical_or, differ, wider)

    def _whole(self, amount: float) -> int:
        return cast(int, np.round(amount))


def alike_groups(operations: Sequence[Operation]) -> list[list[int]]:
    """Groups of operations that `AlikeOperations` takes, as indices into the operations."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, operation in enumerate(operations):
        groups.setdefault(_likeness(operation), []).append(place)
    return list(groups.values())


def _likeness(operation: Operation) -> tuple[Any, ...]:
    """A value that is equal for operations of one group."""
    kind, attributes = operation.kind, operation.attributes
    _, shapes = _sizes_in_attributes(kind)
    return (
        kind,
        operation.precision,
        operation.mode,
        len(operation.output_shape),
        *map(len, operation.input_shapes),
        *(attributes[name] for name in _fixed_attributes(kind)),
        *(len(attributes[name]) for name in shapes),
    )


def _flat(operation: Operation, counts: Sequence[str], shapes: Sequence[str]) -> list[int]:
    """All sizes of an operation in one row, in the order in which `AlikeOperations` takes them out again."""
    attributes = operation.attributes
    return [
        *chain.from_iterable(operation.input_shapes),
        *operation.output_shape,
        operation.parameters,
        *(attributes[name] for name in counts),
        *chain.from_iterable(attributes[name] for name in shapes),
    ]


@cache
def _sizes_in_attributes(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The attributes of a kind that are sizes of tensors, such as out_channels: numbers, and shapes."""
    rows = KINDS[kind].attributes
    counts = tuple(name for name, row in rows.items() if row.values is COUNT and row.default is REQUIRED)
    return counts, tuple(name for name, row in rows.items() if row.values is SHAPE)


@cache
def _fixed_attributes(kind: str) -> tuple[str, ...]:
    """The attributes of a kind that are the same for all operations of a group."""
    counts, shapes = _sizes_in_attributes(kind)
    return tuple(name for name in KINDS[kind].attributes if name not in (*counts, *shapes))
