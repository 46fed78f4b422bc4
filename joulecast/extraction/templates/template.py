"""Template: the calls of a model in one setting, with dimensions that follow from the sizes of its input.

A dimension is a constant or a symbol, and a symbol is one of the sizes, the output dimension of an earlier operation
(by its own shape rule), or a product or sum of other symbols.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from ...errors import InputError
from ...operations.attributes import HALF_PRECISIONS
from ...operations.entry import Dropped
from ...operations.operation import Operation, real_precision
from ...operations.rules import size
from ...system.caches import OPERATION_BYTES, remembered

Dimension = int
"""A dimension: a positive number is a constant, and -1 - i stands for symbol i."""


def symbol(index: int) -> Dimension:
    """The number that stands for symbol i."""
    return -1 - index


class Symbol(NamedTuple):
    """How a dimension follows from others.

    "output": dimension `numbers[1]` of what step `numbers[0]` returns. "product" and "sum" of the dimensions in
    `numbers`, constants among them: heads x batch, or cached and new tokens.
    """

    how: str
    numbers: tuple[int, ...]


class Step(NamedTuple):
    """An operation whose shapes depend on the sizes of the input; `shapes` are in dimensions.

    `is_half` says whether it runs in half precision if the model is requested in half precision.
    """

    kind: str
    shapes: tuple[tuple[Dimension, ...], ...]
    attributes: tuple[tuple[str, Any], ...]
    is_half: bool


class Template(NamedTuple):
    """The calls of a model at all sizes of one regime.

    The first `sizes` symbols are the sizes of the input, and `symbols` are all further ones. `steps` are the distinct
    operations in order of first use; every call is one of these, `calls`, in a module, `paths`.
    """

    sizes: int
    symbols: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    calls: tuple[int, ...]
    paths: tuple[str, ...]
    dropped: tuple[Dropped, ...]

    @classmethod
    def read(cls, row: Sequence[Any]) -> Self:
        """The template that was written as JSON, in which tuples are lists."""
        sizes, symbols, steps, calls, paths, dropped = row
        return cls(
            sizes,
            tuple(Symbol(how, tuple(numbers)) for how, numbers in symbols),
            tuple(
                Step(
                    kind, tuple(map(tuple, shapes)), tuple((name, _hashable(value)) for name, value in attributes), half
                )
                for kind, shapes, attributes, half in steps
            ),
            tuple(calls),
            tuple(paths),
            tuple(Dropped(name, count, tuple(where), reason) for name, count, where, reason, _ in dropped),
        )

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
                how, numbers = self.symbols[-1 - dimension - self.sizes]
                if how == "output":
                    values[dimension] = done[numbers[0]].output_shape[numbers[1]]
                else:
                    values[dimension] = (math.prod if how == "product" else sum)(map(value, numbers))
            return values[dimension]

        # All other operations of a model in half precision stay in the default precision, such as those in fp32.
        full = "default" if precision in HALF_PRECISIONS else precision
        for step in self.steps:
            real = precision if precision in HALF_PRECISIONS and step.is_half else real_precision(step.kind, full)
            shapes = tuple(tuple(map(value, shape)) for shape in step.shapes)
            _refuse_one_value(step.kind, shapes[0], mode)
            done.append(_operation(step, shapes, real, mode))
        return [(done[position], path) for position, path in zip(self.calls, self.paths, strict=True)]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# Networks at two sizes share many operations. Making one takes longer than predicting it, because it is checked.
@remembered(lambda made: OPERATION_BYTES)
def _operation(step: Step, shapes: tuple[tuple[int, ...], ...], precision: str, mode: str) -> Operation:
    return Operation(step.kind, shapes, dict(step.attributes), precision=precision, mode=mode)


def _refuse_one_value(kind: str, shape: tuple[int, ...], mode: str) -> None:
    # PyTorch refuses the variance of a single value, which no shape rule checks.
    if kind == "batch_norm" and mode == "training" and size(shape) == shape[1]:
        raise InputError(
            "batch norm needs more than one value per channel in training",
            given=shape,
            allowed="2 or more",
            hint="use a larger batch, or ask about inference",
        )
