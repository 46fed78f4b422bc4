"""Numbers out of JSON that may come from anywhere: numbers, or an error now instead of when somebody predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def number(value: Any) -> float:
    """A finite number.

    Raises:
        TypeError: It is something else.
    """
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{str(value)[:40]!r} where a number must be")
    return float(value)


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers by name.

    Raises:
        TypeError: One is something else.
    """
    return {str(name): number(value) for name, value in values.items()}


def number_array(values: Any, dimensions: int = 1) -> NDArray[np.float64]:
    """Finite numbers in lists, or a text with one after the other.

    Raises:
        TypeError, ValueError: They are something else, or lists within lists to another depth.
    """
    found = np.array(values.split() if isinstance(values, str) else values, dtype=float)
    if found.ndim != dimensions or not np.isfinite(found).all():
        raise TypeError(f"{str(values)[:40]!r} where {dimensions} dimensions of numbers must be")
    return found


def sorted_errors(values: Any) -> NDArray[np.float64]:
    """Absolute errors, smallest first; possibly none.

    Raises:
        TypeError, ValueError: They are something else.
    """
    found = number_array(values)
    if len(found) and (found[0] < 0 or np.any(np.diff(found) < 0)):
        raise ValueError("errors that are negative or not in order")
    return found


def errors_to_text(errors: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
    """Errors as text that `sorted_errors` reads: thousands of them, one to a line, would be most of an entry."""
    return {quantity: " ".join(f"{error:.4g}" for error in values) for quantity, values in errors.items()}
