"""What settings of recipes must be, and how those that are not are refused."""

from __future__ import annotations

import math

from ...errors import InputError

Range = tuple[float, float]


def require_integer(name: str, value: object, least: int) -> None:
    """Refuse what is no integer, or too small a one.

    Raises:
        InputError: So it is.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise out_of_range(name, value, f"an integer from {least}")


def require_float(name: str, value: object, low: float = 0.0, high: float = math.inf) -> None:
    """Refuse what is no number with a point between two bounds, both included.

    Raises:
        InputError: So it is.
    """
    if not isinstance(value, float) or not low <= value <= high:
        raise out_of_range(name, value, f"{low} to {high}" if math.isfinite(high) else f"from {low}")


def require_share(name: str, value: object) -> None:
    """Refuse what is no share above 0.

    Raises:
        InputError: So it is.
    """
    if not isinstance(value, float) or not 0 < value <= 1:
        raise out_of_range(name, value, "above 0.0, at most 1.0")


def require_within(name: str, value: object, kind: type, bounds: Range) -> None:
    """Refuse what is not of a kind, an integer or a decimal number, between two bounds, both included.

    Raises:
        InputError: So it is.
    """
    low, high = bounds
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:  # type: ignore[operator]
        words = "an integer" if kind is int else "a decimal number"
        raise out_of_range(name, value, f"{words} from {low:g} to {high:g}")


def out_of_range(name: str, value: object, allowed: str) -> InputError:
    """The error for a setting."""
    return InputError(f"{name} of a recipe is out of range", given=repr(value), allowed=allowed)
