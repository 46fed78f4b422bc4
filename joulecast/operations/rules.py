"""Shape and FLOP rules that several kinds of operations share: pure functions for rows of the table of kinds.

Each rule takes the input shapes `x` and all attributes `a` of an operation, including those with default values. FLOP
and product rules take the output shape as well. Shape rules raise InputError if inputs and attributes do not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Attributes = Mapping[str, Any]


class Product(NamedTuple):
    """A batch of matrix products [rows, reduction] x [reduction, columns]."""

    batch: int
    rows: int
    columns: int
    reduction: int


def size(shape: Shape) -> int:
    """Number of elements of a tensor of this shape."""
    return math.prod(shape)


def fits(takes: str, shapes: Shapes) -> bool:
    """Whether shapes are those that a text describes, such as "[..., M, K], [..., K, N]".

    A name stands for a size, the same one wherever it stands; a number for itself; and "..." for any dimensions. "or"
    separates several descriptions.
    """
    return any(described.agrees(shapes) for described in _described(takes))


class _Described(NamedTuple):
    """Shapes as a text describes them: of each the names before "..." and after it, and whether it has this part.

    Names that stand once, and are no numbers, need not be compared.
    """

    shapes: tuple[tuple[list[str], list[str], bool], ...]
    compares: bool

    def agrees(self, shapes: Shapes) -> bool:
        """Whether shapes are these."""
        sizes: dict[str, int] = {}
        for (first, last, has_more), shape in zip(self.shapes, shapes, strict=True):
            between = len(shape) - len(first) - len(last)
            if between < 0 or (between and not has_more):
                return False
            if self.compares:
                ends = (*shape[: len(first)], *shape[len(first) + between :])
                for name, n in zip((*first, *last), ends, strict=True):
                    if sizes.setdefault(name, int(name) if name.isdecimal() else n) != n:
                        return False
        return True


@cache
def _described(takes: str) -> list[_Described]:
    described = []
    for text in takes.split(" or "):
        parts = [each.partition("...") for each in re.findall(r"\[(.*?)\]", text)]
        shapes = tuple((re.findall(r"\w+", first), re.findall(r"\w+", last), bool(m)) for first, m, last in parts)
        names = [name for first, last, _ in shapes for name in (*first, *last)]
        described.append(_Described(shapes, len({*names}) < len(names) or any(map(str.isdecimal, names))))
    return described


def same(x: Shapes, a: Attributes) -> Shape:
    """The output has the shape of the first input."""
    return x[0]


def broadcast(*shapes: Shape) -> Shape:
    """The shape that tensors of these shapes broadcast to. Raises InputError: they do not broadcast."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise InputError(
                "these shapes do not broadcast",
                given=", ".join(map(str, shapes)),
                allowed="sizes that are equal or 1 in each dimension, counted from the last",
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def broadcast_inputs(x: Shapes, a: Attributes) -> Shape:
    """The output has the shape that the inputs broadcast to."""
    return broadcast(*x)


def per_output_element(count: int) -> Callable[[Shapes, Attributes, Shape], int]:
    """FLOP rule: this number of FLOPs for each element of the output."""
    return lambda x, a, out: count * size(out)


def per_input_element(count: int) -> Callable[[Shapes, Attributes, Shape], int]:
    """FLOP rule: this number of FLOPs for each element of the first input."""
    return lambda x, a, out: count * size(x[0])


def require_multiple(what: str, number: int, divisor: int) -> None:
    """Require that an integer is a multiple of another. Raises InputError: it is not."""
    if number % divisor:
        raise InputError(f"{what} do not divide", given=f"{number} over {divisor}", allowed=f"a multiple of {divisor}")


def require_at_most(what: str, number: int, most: int) -> None:
    """Require that an integer is not above another. Raises InputError: it is."""
    if number > most:
        raise InputError(f"{what} is too large", given=number, allowed=f"up to {most}")


def dimension_of(shape: Shape, dim: int) -> int:
    """A dimension as a number from 0; negative dimensions count from the end. Raises InputError: there is none such."""
    rank = len(shape)
    if not -rank <= dim < rank:
        raise InputError(
            "the input has no such dimension", given=f"dim={dim} of {shape}", allowed=f"{-rank} to {rank - 1}"
        )
    return dim % rank


def same_along_dimension(x: Shapes, a: Attributes) -> Shape:
    """The output has the shape of the first input, which has the dimension `dim`."""
    dimension_of(x[0], a["dim"])
    return x[0]


def per_dimension(value: Any, length: int) -> tuple[int, ...]:
    """An attribute such as kernel_size as one integer per spatial dimension."""
    result = (value,) * length if isinstance(value, int) else tuple(value)
    if len(result) != length:
        raise InputError(
            f"an attribute needs {length} values, one per spatial dimension",
            given=value,
            allowed=f"one integer, or a list of {length}",
        )
    return result


def visible_pairs(queries: Any, keys: Any, causal: Any, window: Any = None) -> Any:
    """Number of pairs of a query and a key that it sees, in one head of one sequence; integers, or arrays of one shape.

    If causal, and there are several queries and as many keys or more, a query sees no later key: the last query stands
    at the position of the last key. The window is the number of keys that a query sees at most, including its own; None
    for all.
    """
    least, most = (min, max) if isinstance(queries, int) and isinstance(keys, int) else (np.minimum, np.maximum)
    seen = keys if window is None else least(keys, window)
    # Each query sees one key more than the query before it, until the window is full.
    growing = most(seen - keys + queries, 0)
    hidden = queries * seen - growing * (keys - queries + 1 + seen) // 2 - (queries - growing) * seen
    return queries * seen - hidden * (causal & (queries > 1) & (queries <= keys))
