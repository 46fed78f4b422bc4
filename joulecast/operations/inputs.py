"""Inputs of a model: their shapes and types, by position or by name. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

from ..checked import is_number, shown
from ..errors import InputError, unknown_name
from ..rendering.answers import plain
from .attributes import REQUIRED
from .kind import Kind
from .rules import Shape, Shapes

# Shapes and attributes of an operation, checked and in a single form, so that equal operations compare equal.

LARGEST = 2**53
"""Largest number of anything that can be asked for. Floating-point numbers are exact up to it."""


def require_positive_integer(name: str, value: object) -> None:
    """Require that an argument is an integer from 1 to `LARGEST`. Raises InputError: it is not."""
    if not is_number(value, 1, LARGEST, int):
        raise InputError(
            f"{name} is a positive integer",
            given=shown(value),
            allowed=f"1 to {LARGEST:,}",
            hint=f"give another {name}",
        )


def normalized_shape(shape: object) -> Shape:
    """A list or tuple of integers, of numpy's too, as a tuple of positive integers.

    Raises InputError: it is anything else.
    """
    if isinstance(shape, list | tuple):
        if all(type(n) is int and n > 0 for n in shape):
            return tuple(shape)
        # numpy's integers are not of type int.
        if all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) > 0 for n in shape):
            return tuple(map(int, shape))
    raise InputError(
        "a shape is a list of positive integers",
        given=repr(shape),
        allowed="such as [32, 3, 224, 224]",
        hint="shapes of several inputs stand in a list, also that of a single one: [(32, 64)]"
        if isinstance(shape, Integral)
        else None,
    )


def _plain_value(value: Any) -> Any:
    """An attribute as a hashable value: lists become tuples.

    Raises InputError: it holds something else than plain values.
    """
    if isinstance(value, list | tuple):
        return tuple(_plain_value(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    raise InputError(
        "an attribute is a number, a text, a truth value, or a list of those",
        given=repr(value)[:100],
        allowed='such as 3, 0.5, "gelu", True or [1, 2]',
    )


def _shortest_form(name: str, value: Any, spatial: int) -> Any:
    """Replace a value that is the same in every spatial dimension by a single one: a kernel of (3, 3) becomes 3.

    Lists of dimensions and normalized shapes are left as they are.
    """
    if name in ("normalized_shape", "dim") or not isinstance(value, tuple) or len(set(value)) != 1:
        return value
    if len(value) not in (1, spatial):
        return value  # the shape rule refuses it
    return value if isinstance(value[0], bool) else value[0]  # a flag has no dimensions


def full_attributes(kind: str, row: Kind, shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes of an operation: those that are given, checked, and the defaults of the others.

    Raises UnknownNameError: the kind has no attribute of a given name. Raises InputError: a required attribute is
    missing, or a value is out of its range.
    """
    unknown = given.keys() - row.attributes.keys()
    if unknown:
        raise unknown_name(f"attribute of {kind}", sorted(unknown)[0], row.attributes)
    missing = [
        name for name, attribute in row.attributes.items() if name not in given and attribute.default is REQUIRED
    ]
    if missing:
        raise InputError(
            f"a {kind} needs more attributes", given=dict(given) or "none", hint=f"add {', '.join(missing)}"
        )
    # All dimensions but batch and channels are spatial where the kind takes any number of them.
    spatial = len(shapes[0]) - 2 if row.spatial is None else row.spatial
    full = {}
    for name, attribute in row.attributes.items():
        default = attribute.default
        value = given[name] if name in given else default(shapes) if callable(default) else default
        plain = _plain_value(value)
        if name == "normalized_shape" and isinstance(plain, int):
            plain = (plain,)
        full[name] = _shortest_form(name, plain, spatial)
        # The value is checked as it was given: a list of two sizes is not allowed where one size is.
        if not attribute.values.holds(plain):
            raise InputError(
                f"{name} of a {kind} is out of its range",
                given=repr(value)[:100],
                allowed=attribute.values.text,
                hint="give a value in this range"
                + ("" if default is REQUIRED else ", or leave it out for its default"),
            )
    return full


InputShape = Shape | tuple[Shape, ...] | Mapping[str, Shape]
"""The shape of a single input, the shapes of several inputs, or a mapping from name to shape."""

_ALLOWED = "a shape such as (32, 3, 224, 224), a list of shapes, a dictionary of name and shape; or example tensors"


@dataclass(frozen=True)
class Input:
    """One input tensor, batch first; without the name of a type such as "int64" it has the type of the parameters."""

    shape: Shape
    dtype: str | None = None

    @classmethod
    def of(cls, value: Any) -> Self:
        """Read a shape, or the shape and type of an example tensor, whose values are not used. Raises InputError."""
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return cls(normalized_shape(tuple(map(int, value.shape))), str(value.dtype).removeprefix("torch."))
        if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
            raise InputError("this is not an input", given=repr(value)[:100], allowed=_ALLOWED)
        return cls(normalized_shape(tuple(value)))


@dataclass(frozen=True)
class Inputs:
    """All inputs of one call of a model: positional ones, and pairs of name and input."""

    positional: tuple[Input, ...] = ()
    named: tuple[tuple[str, Input], ...] = ()

    @classmethod
    def of(cls, value: Any) -> Self:
        """Read the input shapes that a user gives: one shape, a list, or a dictionary; or example tensors.

        Raises InputError.
        """
        if value is None:
            raise InputError("a model needs the shape of its input", given="none", allowed=_ALLOWED)
        if isinstance(value, Inputs):
            return cls(value.positional, value.named)
        if isinstance(value, Mapping):
            if not value or not all(isinstance(name, str) for name in value):
                raise InputError(
                    "inputs by name are a dictionary of names and shapes",
                    given=repr(value)[:100],
                    allowed='such as {"input_ids": (8, 128)}',
                )
            return cls(named=tuple((name, Input.of(item)) for name, item in value.items()))
        if isinstance(value, list | tuple) and value and not all(isinstance(item, Integral) for item in value):
            if any(isinstance(item, int | float | str) for item in value):
                raise InputError("a shape is a list of positive integers", given=repr(value)[:100], allowed=_ALLOWED)
            return cls(tuple(map(Input.of, value)))
        return cls((Input.of(value),))

    @property
    def all(self) -> tuple[Input, ...]:
        """Every input, positional ones first."""
        return (*self.positional, *(item for _, item in self.named))

    @property
    def shape(self) -> InputShape:
        """The shapes in the simplest form: one shape, a tuple of shapes, or a dictionary if any input has a name."""
        if self.named:
            unnamed = {str(i): item.shape for i, item in enumerate(self.positional)}
            return {**unnamed, **{name: item.shape for name, item in self.named}}
        if len(self.positional) == 1:
            return self.positional[0].shape
        return tuple(item.shape for item in self.positional)

    def to_list(self) -> list[Any]:
        """The inputs as plain lists and dictionaries; two different inputs never have the same JSON."""
        return [
            [[list(item.shape), item.dtype] for item in self.positional],
            {name: [list(item.shape), item.dtype] for name, item in self.named},
        ]

    @classmethod
    def of_list(cls, value: Any) -> Self:
        """Read what `to_list` wrote."""
        positional, named = value
        return cls(
            tuple(Input(tuple(shape), dtype) for shape, dtype in positional),
            tuple((name, Input(tuple(shape), dtype)) for name, (shape, dtype) in named.items()),
        )


def parse_shapes(texts: list[str] | None) -> Any:
    """Read shapes from the command line: one, several, or several with names ("input_ids=8,128"). Raises InputError."""
    if not texts:
        return None
    named = [text.partition("=") for text in texts if "=" in text]
    if not named:
        shapes = [parse_shape(text) for text in texts]
        return shapes[0] if len(shapes) == 1 else shapes
    if len(named) < len(texts) or len({name for name, _, _ in named}) < len(named):
        raise InputError(
            "inputs go by name or by position", given=" ".join(texts), allowed="each name once, or no names"
        )
    return {name.strip(): parse_shape(text) for name, _, text in named}


def parse_shape(text: str) -> tuple[int, ...]:
    """Read a shape such as "32,3,224,224" or "32x3x224x224".

    Raises InputError: it is not a list of positive integers.
    """
    parts = re.split(r"\s*[,x]\s*", text.strip(" ()[]"))
    if not all(re.fullmatch(r"\d+", part) for part in parts) or any(int(part) < 1 for part in parts):
        raise InputError("a shape is a list of positive integers", given=repr(text), allowed="such as 32,3,224,224")
    return tuple(map(int, parts))


def shape_to_json(shape: InputShape | None) -> Any:
    """Shapes as JSON: a list of integers, a list of such lists, or an object from name to list."""
    return plain(shape)


def shape_from_json(value: Any) -> InputShape | None:
    """Read what `shape_to_json` wrote. Raises InputError: the value is anything else."""
    return None if value is None else Inputs.of(value).shape


def batch_size_of(input_shape: InputShape | None) -> int | None:
    """Batch size: the first dimension of the first input; None where there is none."""
    first = () if input_shape is None else Inputs.of(input_shape).all[0].shape
    return first[0] if first else None


def shape_text(shape: InputShape | None) -> str:
    """Shapes as a text such as "32 x 3 x 224 x 224" or "input_ids 8 x 128, attention_mask 8 x 128"."""
    inputs = Inputs() if shape is None else Inputs.of(shape)
    pairs = (*(("", item) for item in inputs.positional), *inputs.named)
    return ", ".join(f"{name} {' x '.join(map(str, item.shape))}".strip() for name, item in pairs)


def titled(name: str, shape: InputShape | None) -> str:
    """Name and input shapes of a network, for a heading; the name alone if there is no shape."""
    return f"{name} {shape_text(shape)}".rstrip()
