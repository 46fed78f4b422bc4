"""Shapes and attributes of an operation, checked and in a single form, so that equal operations compare equal."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from ..checked import shown
from ..errors import InputError, unknown_name
from .attributes import REQUIRED
from .kind import Kind
from .rules import Shape, Shapes

LARGEST = 2**53
"""Largest number of anything that can be asked for. Floating-point numbers are exact up to it."""


def require_positive_integer(name: str, value: object) -> None:
    """Require that an argument is an integer from 1 to `LARGEST`. Raises InputError: it is not."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise InputError(f"{name} is a positive integer", given=shown(value), allowed=f"1 to {LARGEST:,}")


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
    raise InputError("a shape is a list of positive integers", given=repr(shape), allowed="such as [32, 3, 224, 224]")


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
