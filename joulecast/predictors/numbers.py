"""Numbers out of JSON that may come from anywhere: numbers, or an error now instead of when somebody predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


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
