"""Checks many numbers in JSON from any source, so that a wrong one causes an error on loading and not later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checked import number as number  # of this module, too
from ...errors import ZooError

_MOST_TEXT = 200


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Check that all values of a mapping from a file are finite numbers, and return name -> float.

    Raises TypeError: a value is not a finite number.
    """
    return {str(name): number(value) for name, value in values.items()}


def number_array(values: Any, dimensions: int = 1) -> NDArray[np.float64]:
    """An array of finite numbers, from nested lists or from a text of numbers separated by spaces.

    Raises TypeError, ValueError: a value is not a finite number, or the number of dimensions is another.
    """
    found = np.array(values.split() if isinstance(values, str) else values, dtype=float)
    if found.ndim != dimensions or not np.isfinite(found).all():
        raise TypeError(f"finite numbers in {dimensions} dimensions are expected, not {str(values)[:40]!r}")
    return found


def sorted_errors(values: Any) -> NDArray[np.float64]:
    """Absolute errors from a file, in ascending order; there may be none.

    Raises TypeError, ValueError: they are not numbers, not ascending, or negative.
    """
    found = number_array(values)
    if len(found) and (found[0] < 0 or np.any(np.diff(found) < 0)):
        raise ValueError("errors must not be negative, and must ascend")
    return found


def errors_to_text(errors: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
    """Errors as text that `sorted_errors` reads. As JSON lists with one number on a line, they would fill an entry."""
    return {quantity: " ".join(f"{error:.4g}" for error in values) for quantity, values in errors.items()}


def require_features(found: object, known: Sequence[str], of: object) -> None:
    """Require that the names of a stored predictor's features, in a file of this name, are those of this version.

    Raises ZooError: they are others, in another order, or something else.
    """
    if found != list(known):
        raise ZooError(
            "this zoo entry was trained with other features than this version computes",
            given=f"{of}: {str(found)[:_MOST_TEXT]}",
            allowed=f"{len(known)} features: {', '.join(known)[:_MOST_TEXT]}",
            hint="train it again",
        )
