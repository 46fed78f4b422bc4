"""Turns numbers of users and of files into checked values: of the right type, finite, and within a range."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from .errors import InputError

_LARGEST = 1.7976931348623157e308  # of a float


def is_number(value: Any, low: float = -math.inf, high: float = math.inf, types: Any = Real) -> bool:
    """Whether a value is a number of these types within a range; true and false are none."""
    return isinstance(value, types) and not isinstance(value, bool) and bool(low <= value <= high)


def number(value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Check that a value from a file is a finite number within a range, and return it as a float.

    Raises TypeError: it is not a finite number. ValueError: it is out of the range.
    """
    # An integer of 400 digits is no float; comparing it is exact, where converting it would overflow.
    if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:
        raise TypeError(f"a finite number is expected, not {shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{value:g} is out of range: {low:g} to {high:g}")
    return float(value)


def in_range(
    name: str, value: Any, low: float = 0.0, high: float = math.inf, *, above: bool = False, whole: bool = False
) -> float:
    """Check a number of a user's question, and return it as a float. Raises InputError: it is out of the range.

    `above`: Whether it has to be above `low`. `whole`: Whether it has to be an integer.
    """
    known: Any = value if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    number = float(known) if -_LARGEST <= known <= _LARGEST else math.nan
    if not low <= number <= high or (above and number == low) or (whole and number != int(number)):
        least = f"above {low:g}" if above else f"{low:g} or more" if high == math.inf else f"{low:g}"
        allowed = least + ("" if high == math.inf else f" to {high:g}") + (", an integer" if whole else "")
        raise InputError(
            f"{name} is out of range", given=shown(value), allowed=allowed, hint=f"give another value of {name}"
        )
    return number


def integer(value: Any, low: int = 0, high: int = 2**63 - 1) -> int:
    """Check that a value from a file is an integer within a range. Raises TypeError or ValueError: it is not."""
    if type(value) is not int:
        raise TypeError(f"an integer is expected, not {shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{shown(value)} is out of range: {low} to {high}")
    return value


def name(value: Any) -> str:
    """Check that a value from a file is a name: 1 to 200 characters that print.

    Raises TypeError or ValueError: it is not.
    """
    found = text(value, 200)
    if not (found and found.isprintable()):
        raise ValueError(f"a name is expected, not {shown(value)}")
    return found


def text(value: Any, most: int = 10_000) -> str:
    """Check that a value from a file is a text of a limited length. Raises TypeError or ValueError: it is not."""
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, not {shown(value)}")
    if len(value) > most:
        raise ValueError(f"a text of {len(value):,} characters is longer than {most:,}")
    return value


def shown(value: Any) -> str:
    """A value as it appears in messages: at most 60 characters, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "an integer of more than 30 digits"  # printing one of 5,000 digits is an error of Python
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, str | bytes):
        value = value[:80]
    if isinstance(value, list | tuple | dict | set) and len(value) > 20:
        return f"{type(value).__name__} of {len(value):,} values"
    try:
        return repr(value)[:60]
    except (ValueError, RecursionError):  # a long integer within it, or a list that contains itself
        return type(value).__name__
