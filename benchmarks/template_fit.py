"""Fits a template to traces of a model at several sizes: each dimension follows from the sizes of the input."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from joulecast.errors import ExtractionError
from joulecast.extraction.templates.store import OUTPUT_SIZE, Dimension, Step, Symbol, Template, symbol
from joulecast.operations.entry import Dropped
from joulecast.operations.operation import Operation

Values = tuple[int, ...]
"""The value of a dimension in each of the samples."""


@dataclass(frozen=True)
class Sample:
    """One trace at sizes of the input, one per symbol.

    `half` says which calls run in half precision if the model is requested in half precision.
    """

    sizes: tuple[int, ...]
    calls: tuple[tuple[Operation, str], ...]
    dropped: tuple[Dropped, ...]
    half: tuple[bool, ...]

    def structure(self) -> object:
        """Everything except the dimensions. It is the same for all traces of a template."""
        calls = tuple(
            (op.kind, tuple(map(len, op.input_shapes)), _attributes(op), op.precision, path) for op, path in self.calls
        )
        return calls, self.half, self.dropped

    def but_for_precision(self) -> object:
        """The calls without their precisions."""
        return [(op.kind, op.input_shapes, op.attributes, path) for op, path in self.calls], self.dropped


def fit(samples: Sequence[Sample]) -> Template:
    """The template that reproduces every sample.

    Raises ExtractionError: the samples differ in more than dimensions, or no symbol fits a dimension.
    """
    first = samples[0]
    if any(sample.structure() != first.structure() for sample in samples):
        raise ExtractionError(
            "the operations depend on the sizes, not their dimensions alone",
            given=_at(samples),
            hint="this regime gets no template, and torch answers for it",
        )
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
        calls.append(positions[key])
    paths = tuple(path for _, path in first.calls)
    return Template(len(first.sizes), tuple(search.symbols), tuple(steps), tuple(calls), paths, first.dropped)


def _step(operations: tuple[Operation, ...], is_half: bool, search: _Search, samples: Sequence[Sample]) -> Step:
    first = operations[0]

    def dimensions(shapes: Iterable[Sequence[int]]) -> tuple[Dimension, ...]:
        found = []
        for values in zip(*shapes, strict=True):
            dimension = search.find(values)
            if dimension is None:
                raise ExtractionError(
                    f"no product or sum gives a dimension of {first.kind}",
                    given=f"{values} at {_at(samples)}",
                    hint="this regime gets no template, and torch answers for it",
                )
            found.append(dimension)
        return tuple(found)

    shapes = tuple(dimensions(op.input_shapes[i] for op in operations) for i in range(len(first.input_shapes)))
    attributes = first.written_attributes
    if isinstance(attributes.get(OUTPUT_SIZE), tuple):
        attributes[OUTPUT_SIZE] = dimensions(op.attributes[OUTPUT_SIZE] for op in operations)
    return Step(first.kind, shapes, tuple(sorted(attributes.items())), is_half)


def _attributes(operation: Operation) -> object:
    """All attributes, but without the numbers of the one that consists of dimensions."""
    return tuple(
        (name, len(value) if name == OUTPUT_SIZE and isinstance(value, tuple) else value)
        for name, value in sorted(operation.attributes.items())
    )


def _at(samples: Sequence[Sample]) -> str:
    return ", ".join("x".join(map(str, sample.sizes)) for sample in samples)


class _Search:
    """The known dimensions, and the symbols that can be built from them."""

    def __init__(self, sizes: Sequence[Values]) -> None:
        self.symbols: list[Symbol] = []
        self._sizes = len(sizes)
        self._known: dict[Values, Dimension | Symbol] = {}
        for i, values in enumerate(sizes):
            self._known.setdefault(values, symbol(i))

    def add_outputs(self, position: int, output: Sequence[Values]) -> None:
        """Add the output of an operation, whose dimensions can be inputs of later operations."""
        for axis, values in enumerate(output):
            if len(set(values)) > 1:
                self._known.setdefault(values, Symbol("output", (position, axis)))

    def find(self, values: Values) -> Dimension | None:
        """The dimension that has these values, or None."""
        if len(set(values)) == 1:
            return values[0]
        if values not in self._known:
            made = next(self._products_and_sums(values), None)
            if made is None:
                return None
            self._known[values] = self._new(made)
        return self._take(values)

    def _take(self, values: Values) -> Dimension:
        dimension = self._known[values]
        if isinstance(dimension, Symbol):
            self._known[values] = dimension = self._new(dimension)
        return dimension

    def _new(self, definition: Symbol) -> Dimension:
        self.symbols.append(definition)
        return symbol(self._sizes + len(self.symbols) - 1)

    def _products_and_sums(self, values: Values) -> Iterator[Symbol]:
        """All symbols with these values, from simple to complex."""
        columns = list(self._known)
        for x in columns:
            if factor := _factor(x, values):
                yield Symbol("product", (factor, self._take(x)))
        for x in columns:
            rest = tuple(v - a for a, v in zip(x, values, strict=True))
            if rest in self._known:
                yield Symbol("sum", (self._take(x), self._take(rest)))
            elif len(set(rest)) == 1 and rest[0] > 0:
                yield Symbol("sum", (self._take(x), rest[0]))
        for x, y in itertools.combinations_with_replacement(columns, 2):
            if factor := _factor(tuple(a * b for a, b in zip(x, y, strict=True)), values):
                yield Symbol("product", (factor, self._take(x), self._take(y)))


def _factor(x: Values, values: Values) -> int | None:
    """The integer by which x is multiplied in all samples; None if there is none."""
    factor = values[0] // x[0]
    return factor if all(factor * a == v for a, v in zip(x, values, strict=True)) else None
