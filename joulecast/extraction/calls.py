"""Calls of PyTorch's operators, in the form in which they are converted to operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..operations.rules import Shape

Bound = Mapping[str, Any]
"""Name of an argument in the operator's schema -> its value, and "<output>" -> the result."""

Converted = tuple[str, list[Shape], dict[str, Any]] | None
"""Kind, input shapes and attributes of an operation; None if the call does no work."""


def shape_of(tensor: Any) -> Shape:
    """The shape of a tensor; for a complex tensor, the shape of its real view."""
    shape = tuple(tensor.shape)
    return (*shape, 2) if tensor.dtype.is_complex else shape


def first_of(bound: Bound) -> Any:
    """The first argument, whose name differs between an operator and its in-place form."""
    return next(iter(bound.values()))


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor, not a number."""
    return hasattr(value, "shape")


def plain(value: Any) -> Any:
    """An argument as the value of an attribute: lists become tuples."""
    return tuple(value) if isinstance(value, list | tuple) else value


def result_of(bound: Bound) -> Any:
    """The first tensor that an operator returns."""
    result = bound["<output>"]
    return result if is_tensor(result) else result[0]
