"""Template: the calls of a model in one setting, with dimensions that follow from the sizes of its input.

A dimension is a constant or a symbol, and a symbol is one of the sizes, the output dimension of an earlier operation
(by its own shape rule), or a product or sum of other symbols.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from ...errors import InputError
from ...operations.attributes import HALF_PRECISIONS
from ...operations.entry import Dropped
from ...operations.operation import Operation, real_precision
from ...operations.rules import size
from ...system.caches import OPERATION_BYTES, remembered

# Calls of layers that follow each other: most models repeat a few, which are traced and stored only once.

Call = tuple[Any, str]
"""An operation, or its number in a template, and the path of its module."""

BACKWARD = "(backward)"
"""Path of calls that belong to no module: additions of gradients."""

_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_LONGEST_PERIOD = 8  # layers until the pattern of different layers repeats; Gemma 3 has 6


@cache
def _split(path: str) -> tuple[str, int, str] | None:
    """What stands before the first number of a path, the number, and what stands after it; None without a number."""
    found = _LAYER.search(path)
    return (path[: found.start()], int(found[0]), path[found.end() :]) if found else None


def shifted(calls: Sequence[Call], by: int) -> list[Call]:
    """The same calls, this many layers later."""
    return [(what, f"{at[0]}{at[1] + by}{at[2]}" if (at := _split(path)) else path) for what, path in calls]


def layers_of(calls: Sequence[Call]) -> list[list[Call]]:
    """Consecutive calls of one layer; calls outside of layers are lists of their own."""
    return [list(group) for _, group in itertools.groupby(calls, lambda call: (_split(call[1]) or ("", None))[:2])]


def folded(calls: Sequence[Call]) -> list[list[Any]]:
    """Calls as lists for a file: [operation, path], or [times, layers, calls] for those that repeat.

    Repeated calls start over that many layers later each time.
    """
    groups, found, i = layers_of(calls), [], 0
    while i < len(groups):
        times, period = max((_repeats(groups, i, period), -period) for period in range(1, _LONGEST_PERIOD + 1))
        period = -period
        block = [call for group in groups[i : i + period] for call in group]
        if times > 1:
            found.append([times, period, [list(call) for call in block]])
            i += times * period
        else:
            found += [list(call) for call in groups[i]]
            i += 1
    return found


def _repeats(groups: Sequence[list[Call]], start: int, period: int) -> int:
    """How often the layers from one on follow each other, with rising numbers; 1 where they do not."""
    times = 1
    if any(_split(group[0][1]) is None for group in groups[start : start + period]):
        return times
    while (later := groups[(at := start + times * period) : at + period]) and len(later) == period:
        if any(group != shifted(first, times * period) for first, group in zip(groups[start:], later, strict=False)):
            break
        times += 1
    return times


def unfolded(items: Sequence[Sequence[Any]]) -> Iterator[Call]:
    """The calls that `folded` wrote."""
    for item in items:
        if len(item) == 2:
            yield item[0], item[1]
        else:
            times, period, block = item
            for turn in range(times):
                yield from shifted([(what, path) for what, path in block], turn * period)


class Stack:
    """The layers of a language model, of which a few stand for all: some at the start, one period, some at the end.

    Raises ValueError: the model has no more layers than these.
    """

    def __init__(self, layers: int, settings: Mapping[str, Any], period: int) -> None:
        self.first, self.period = 1 + int(settings.get("first_k_dense_replace", 0)), period
        self.last = 1 + (layers - self.first - 1) % period
        self.times = (layers - self.first - self.last) // period
        if self.times < 2:
            raise ValueError(layers)

    @property
    def short(self) -> int:
        """Number of layers of the model that is traced."""
        return self.first + self.period + self.last

    def deepened(self, short: Sequence[Call], longer: Sequence[Call] = ()) -> list[Call]:
        """The calls of the whole model, from those of the short one, and in training of one with a period more.

        Raises ValueError: the two differ in more than the layers of a period.
        """
        if longer and self._repeated(short, longer, 2) != list(longer):
            raise ValueError("its layers differ")
        return self._repeated(short, longer, self.times)

    def _repeated(self, short: Sequence[Call], longer: Sequence[Call], times: int) -> list[Call]:
        """The short model's calls with its period repeated this often."""
        start, end = self._bounds(short)
        block = short[start:end]
        calls = list(short[:start])
        for turn in range(times):
            calls += shifted(block, turn * self.period)
        # The additions of gradients do not say which layer they belong to, and come after all of them.
        backward, in_longer = ([call for call in each if call[1] == BACKWARD] for each in (short, longer))
        at = next((i for i, (a, b) in enumerate(zip(backward, in_longer, strict=False)) if a != b), len(backward))
        added = in_longer[at : at + len(in_longer) - len(backward)]
        rest = shifted(short[end:], (times - 1) * self.period)
        after = next((i for i, call in enumerate(rest) if call[1] == BACKWARD), len(rest))
        return [
            *(*calls, *rest[:after]),
            *(*backward[:at], *(added * (times - 1)), *backward[at:]),
            *(call for call in rest[after:] if call[1] != BACKWARD),
        ]

    def _bounds(self, calls: Sequence[Call]) -> tuple[int, int]:
        """Where the calls of the period start and end."""
        numbers = [at[1] if (at := _split(path)) else None for _, path in calls]
        end = self.first + self.period
        inside = [i for i, number in enumerate(numbers) if number is not None and self.first <= number < end]
        after = [i for i, number in enumerate(numbers) if number == end]
        return inside[0], after[0]


Dimension = int
"""A dimension: a positive number is a constant, and -1 - i stands for symbol i."""


def symbol(index: int) -> Dimension:
    """The number that stands for symbol i."""
    return -1 - index


@dataclass(frozen=True)
class Output:
    """A dimension of the output of an earlier operation: its place in the template's list, and an axis."""

    position: int
    axis: int


@dataclass(frozen=True)
class Product:
    """A product of a constant and dimensions, such as heads x batch, or batch x tokens."""

    factor: int
    dimensions: tuple[Dimension, ...]

    def of(self, values: Sequence[int]) -> int:
        """Its value, from those of its dimensions."""
        return self.factor * math.prod(values)


@dataclass(frozen=True)
class Sum:
    """A sum of dimensions, such as cached and new tokens."""

    dimensions: tuple[Dimension, ...]

    def of(self, values: Sequence[int]) -> int:
        """Its value, from those of its dimensions."""
        return sum(values)


Symbol = Output | Product | Sum


@dataclass(frozen=True)
class Step:
    """An operation whose shapes depend on the sizes of the input; `shapes` are in dimensions.

    `is_half` says whether it runs in half precision if the model is requested in half precision.
    """

    kind: str
    shapes: tuple[tuple[Dimension, ...], ...]
    attributes: Mapping[str, Any] = field(hash=False)
    is_half: bool


@dataclass(frozen=True)
class Template:
    """The calls of a model at all sizes of one regime.

    The first `sizes` symbols are the sizes of the input, and `symbols` are all further ones. `steps` are the distinct
    operations in order of first use, and `calls` the step and module path of every call.
    """

    sizes: int
    symbols: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    calls: tuple[tuple[int, str], ...]
    dropped: tuple[Dropped, ...]

    def operations(self, sizes: Sequence[int], mode: str, precision: str) -> list[tuple[Operation, str]]:
        """Every call with its module path, in order, at sizes in the order of the template.

        Raises InputError: the model does not run at these sizes.
        """
        values: dict[Dimension, int] = {symbol(i): n for i, n in enumerate(sizes)}
        done: list[Operation] = []

        def value(dimension: Dimension) -> int:
            if dimension >= 0:
                return dimension
            if dimension not in values:
                found = self.symbols[-1 - dimension - self.sizes]
                if isinstance(found, Output):
                    values[dimension] = done[found.position].output_shape[found.axis]
                else:
                    values[dimension] = found.of([value(inner) for inner in found.dimensions])
            return values[dimension]

        # All other operations of a model in half precision stay in the default precision, such as those in fp32.
        full = "default" if precision in HALF_PRECISIONS else precision
        for step in self.steps:
            real = precision if precision in HALF_PRECISIONS and step.is_half else real_precision(step.kind, full)
            shapes = tuple(tuple(map(value, shape)) for shape in step.shapes)
            _refuse_one_value(step.kind, shapes[0], mode)
            done.append(_operation(step, shapes, real, mode))
        return [(done[position], path) for position, path in self.calls]

    def to_dict(self) -> dict[str, Any]:
        """The template as short plain lists, because it is parsed when a process first needs the model."""
        return {
            "sizes": self.sizes,
            "symbols": list(map(_symbol_to_json, self.symbols)),
            "steps": [[s.kind, [list(shape) for shape in s.shapes], dict(s.attributes), s.is_half] for s in self.steps],
            "calls": folded(self.calls),
            "dropped": [[d.name, d.count, list(d.module_paths), d.reason] for d in self.dropped],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            value["sizes"],
            tuple(map(_symbol_from_json, value["symbols"])),
            tuple(
                Step(
                    kind,
                    tuple(map(tuple, shapes)),
                    {key: tuple(item) if isinstance(item, list) else item for key, item in attributes.items()},
                    is_half,
                )
                for kind, shapes, attributes, is_half in value["steps"]
            ),
            tuple(unfolded(value["calls"])),
            tuple(Dropped(name, count, tuple(paths), reason) for name, count, paths, reason in value["dropped"]),
        )


# Networks at two sizes share many operations. Making one takes longer than predicting it, because it is checked.
@remembered(lambda made: OPERATION_BYTES)
def _operation(step: Step, shapes: tuple[tuple[int, ...], ...], precision: str, mode: str) -> Operation:
    return Operation(step.kind, shapes, step.attributes, precision=precision, mode=mode)


def _symbol_to_json(symbol: Symbol) -> list[Any]:
    match symbol:
        case Output(position, axis):
            return ["out", position, axis]
        case Product(factor, dimensions):
            return ["product", factor, list(dimensions)]
        case Sum(dimensions):
            return ["sum", list(dimensions)]


def _symbol_from_json(value: Sequence[Any]) -> Symbol:
    match value:
        case ["out", position, axis]:
            return Output(position, axis)
        case ["product", factor, dimensions]:
            return Product(factor, tuple(dimensions))
        case ["sum", dimensions]:
            return Sum(tuple(dimensions))
    raise ValueError(value)


def _refuse_one_value(kind: str, shape: tuple[int, ...], mode: str) -> None:
    # PyTorch refuses the variance of a single value, which no shape rule checks.
    if kind == "batch_norm" and mode == "training" and size(shape) == shape[1]:
        raise InputError(
            "batch norm needs more than one value per channel in training",
            given=shape,
            allowed="2 or more",
            hint="use a larger batch, or ask about inference",
        )
