"""Calls of PyTorch's operators, as conversions to kinds of operations see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..operations.rules import Shape

Bound = Mapping[str, Any]
"""Arguments of an operator call by their names in its schema, and its result as "<output>"; tensors as they are."""

Converted = tuple[str, list[Shape], dict[str, Any]] | None
"""Kind, input shapes and attributes; None where nothing is done."""


def shape_of(tensor: Any) -> Shape:
    """The shape of a tensor; of a complex one, that of its real view."""
    shape = tuple(tensor.shape)
    return (*shape, 2) if tensor.dtype.is_complex else shape


def first_of(bound: Bound) -> Any:
    """The first argument, whose name differs between an operator and its in-place form."""
    return next(iter(bound.values()))


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor, not a number."""
    return hasattr(value, "shape")


def plain(value: Any) -> Any:
    """An argument as attributes have it: lists as tuples."""
    return tuple(value) if isinstance(value, list | tuple) else value


def result_of(bound: Bound) -> Any:
    """The first tensor that an operator returns."""
    result = bound["<output>"]
    return result if is_tensor(result) else result[0]
