"""From traces of a model at several sizes to its Template: every dimension as an expression that holds at all of them.

No torch in here. A candidate must hold exactly at every sample; the simplest is taken. Whether it holds elsewhere is
for the maker to check, at sizes that were not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...errors import ExtractionError
from ...networks import Dropped
from ...operations import Operation
from .template import Dimension, Expression, Output, Step, Template, symbol

Values = tuple[int, ...]
"""What a dimension is in each of the samples."""

_DIVISORS = (2, 3, 4, 7, 8, 14, 16, 32)  # strides, windows and patches of the models that there are
_DEEPEST = 3


@dataclass(frozen=True)
class Sample:
    """One trace.

    Args:
        sizes: Of the input.
        calls: Operation and module path of each.
        dropped: What the trace left out.
        half: Which calls run in the half type, where a model is asked to be in one.
    """

    sizes: tuple[int, ...]
    calls: tuple[tuple[Operation, str], ...]
    dropped: tuple[Dropped, ...]
    half: tuple[bool, ...]

    def structure(self) -> object:
        """Everything but the dimensions; traces of one template share it."""
        calls = tuple(
            (op.kind, tuple(map(len, op.input_shapes)), tuple(sorted(op.attributes.items())), op.precision, path)
            for op, path in self.calls
        )
        return calls, self.half, self.dropped

    def but_for_precision(self) -> object:
        """The calls, whatever they run in."""
        return [(op.kind, op.input_shapes, op.attributes, path) for op, path in self.calls], self.dropped


def fit(samples: Sequence[Sample]) -> Template:
    """The template that gives back every sample.

    Raises:
        ExtractionError: The samples differ in more than dimensions, or a dimension follows no expression.
    """
    first = samples[0]
    if any(sample.structure() != first.structure() for sample in samples):
        raise ExtractionError("the operations depend on the sizes, not their dimensions alone", given=_at(samples))
    search = _Search(list(zip(*(sample.sizes for sample in samples), strict=True)))
    steps: list[Step] = []
    positions: dict[tuple[tuple[Operation, ...], bool], int] = {}
    calls = []
    for i, is_half in enumerate(first.half):
        operations = tuple(sample.calls[i][0] for sample in samples)
        key = operations, is_half
        if key not in positions:
            positions[key] = len(steps)
            steps.append(_step(operations, is_half, search, samples))
            search.add_outputs(len(steps) - 1, list(zip(*(op.output_shape for op in operations), strict=True)))
        calls.append((positions[key], first.calls[i][1]))
    return Template(len(first.sizes), tuple(search.symbols), tuple(steps), tuple(calls), first.dropped)


def _step(operations: tuple[Operation, ...], is_half: bool, search: _Search, samples: Sequence[Sample]) -> Step:
    first = operations[0]
    shapes = []
    for i in range(len(first.input_shapes)):
        dimensions = []
        for values in zip(*(operation.input_shapes[i] for operation in operations), strict=True):
            found = search.find(values)
            if found is None:
                raise ExtractionError(
                    f"no expression gives a dimension of {first.kind}", given=f"{values} at {_at(samples)}"
                )
            dimensions.append(found)
        shapes.append(tuple(dimensions))
    return Step(first.kind, tuple(shapes), first.attributes, is_half)


def _at(samples: Sequence[Sample]) -> str:
    return ", ".join("x".join(map(str, sample.sizes)) for sample in samples)


class _Search:
    """Dimensions that are known, and what can be made of them."""

    def __init__(self, sizes: Sequence[Values]) -> None:
        self.symbols: list[Output | Expression] = []
        self._sizes = len(sizes)
        self._known: dict[Values, Dimension | Output] = {}
        for i, values in enumerate(sizes):
            self._known.setdefault(values, symbol(i))

    def add_outputs(self, position: int, output: Sequence[Values]) -> None:
        for axis, values in enumerate(output):
            if len(set(values)) > 1:
                self._known.setdefault(values, Output(position, axis))

    def find(self, values: Values) -> Dimension | None:
        return self._find(values, _DEEPEST)

    def _find(self, values: Values, depth: int) -> Dimension | None:
        if len(set(values)) == 1 and values[0] >= 0:
            return values[0]
        if values in self._known:
            return self._take(values)
        for expression in self._candidates(values, depth):
            self._known[values] = self._new(expression)
            return self._take(values)
        return None

    def _take(self, values: Values) -> Dimension:
        known = self._known[values]
        if isinstance(known, Output):
            self._known[values] = known = self._new(known)
        return known

    def _new(self, definition: Output | Expression) -> Dimension:
        self.symbols.append(definition)
        return symbol(self._sizes + len(self.symbols) - 1)

    def _candidates(self, values: Values, depth: int) -> Iterator[Expression]:
        """Expressions with these values, from simple to involved."""
        atoms = list(self._known)
        for x in atoms:
            if line := _line(x, values):
                yield Expression((self._take(x),), *line)
        for x in atoms:
            for divisor in _DIVISORS:
                for offset in range(divisor):
                    if all((a + offset) // divisor == v for a, v in zip(x, values, strict=True)):
                        yield Expression((self._take(x),), 1, offset, divisor)
        for x in atoms:
            rest = tuple(v - a for a, v in zip(x, values, strict=True))
            if rest in self._known:
                yield Expression((self._take(x), self._take(rest)), is_sum=True)
        for i, x in enumerate(atoms):
            for y in atoms[i:]:
                product = tuple(a * b for a, b in zip(x, y, strict=True))
                ratio = Fraction(values[0], product[0])
                if all(ratio.denominator * v == ratio.numerator * p for p, v in zip(product, values, strict=True)):
                    yield Expression((self._take(x), self._take(y)), ratio.numerator, 0, ratio.denominator)
        if not depth:
            return
        yield from self._shorter(values, atoms, depth - 1)

    def _shorter(self, values: Values, atoms: Sequence[Values], depth: int) -> Iterator[Expression]:
        """A factor or one taken off, and the rest searched for."""
        common = math.gcd(*values)
        if common > 1 and (rest := self._find(tuple(v // common for v in values), depth)) is not None:
            yield Expression((rest,), common)
        for x in atoms:
            if all(v % a == 0 for a, v in zip(x, values, strict=True)):
                quotient = tuple(v // a for a, v in zip(x, values, strict=True))
                if (rest := self._find(quotient, depth)) is not None:
                    yield Expression((self._take(x), rest))
        if min(values) > 1 and (rest := self._find(tuple(v - 1 for v in values), depth)) is not None:
            yield Expression((rest,), 1, 1)


def _line(x: Values, values: Values) -> tuple[int, int] | None:
    """Factor and offset with values = factor x + offset at all samples."""
    low, high = x.index(min(x)), x.index(max(x))
    if x[low] == x[high]:
        return None
    factor, rest = divmod(values[high] - values[low], x[high] - x[low])
    offset = values[low] - factor * x[low]
    if rest or factor <= 0 or any(factor * a + offset != v for a, v in zip(x, values, strict=True)):
        return None
    return factor, offset
