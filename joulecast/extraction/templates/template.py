"""Template: the calls of a model in one setting, with dimensions that follow from the sizes of its input.

A dimension is a constant or a symbol, and a symbol is one of the sizes, the output dimension of an earlier operation
(by its own shape rule), or a product or sum of other symbols.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ...errors import InputError
from ...operations.attributes import HALF_PRECISIONS
from ...operations.dropped import Dropped
from ...operations.operation import Operation, real_precision
from ...operations.rules import size
from ...system.caches import OPERATION_BYTES, remembered
from .layers import folded, unfolded

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
