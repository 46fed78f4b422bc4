"""Checks of the settings of recipes: type and range."""

from __future__ import annotations

import math

from ...errors import InputError

Range = tuple[float, float]


def require_integer(name: str, value: object, least: int) -> None:
    """Require that a setting is an integer of at least `least`.

    Args:
        name: Name of the setting, for the message.
        value: Its value.
        least: Smallest allowed value.

    Raises:
        InputError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise out_of_range(name, value, f"an integer from {least}")


def require_float(name: str, value: object, low: float = 0.0, high: float = math.inf) -> None:
    """Require that a setting is a decimal number (a float, not an integer) between two bounds, both included.

    Args:
        name: Name of the setting, for the message.
        value: Its value.
        low: Smallest allowed value.
        high: Largest allowed value.

    Raises:
        InputError: It is not.
    """
    if not isinstance(value, float) or not low <= value <= high:
        raise out_of_range(name, value, f"{low} to {high}" if math.isfinite(high) else f"from {low}")


def require_share(name: str, value: object) -> None:
    """Require that a setting is a decimal number above 0 and at most 1.

    Args:
        name: Name of the setting, for the message.
        value: Its value.

    Raises:
        InputError: It is not.
    """
    if not isinstance(value, float) or not 0 < value <= 1:
        raise out_of_range(name, value, "above 0.0, at most 1.0")


def require_within(name: str, value: object, kind: type, bounds: Range) -> None:
    """Require that a setting is a number of a type between two bounds, both included.

    Args:
        name: Name of the setting, for the message.
        value: Its value.
        kind: int for an integer, float for a decimal number.
        bounds: Smallest and largest allowed value.

    Raises:
        InputError: It is not.
    """
    low, high = bounds
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:  # type: ignore[operator]
        words = "an integer" if kind is int else "a decimal number"
        raise out_of_range(name, value, f"{words} from {low:g} to {high:g}")


def out_of_range(name: str, value: object, allowed: str) -> InputError:
    """The error for a setting that is out of range.

    Args:
        name: Name of the setting.
        value: Its value.
        allowed: The allowed values, in words.
    """
    return InputError(f"{name} of a recipe is out of range", given=repr(value), allowed=allowed)
