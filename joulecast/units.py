"""Formats quantities with three digits and an SI prefix.

One convention holds everywhere, bytes included: 1 GB is 10^9 bytes, so a board that is sold with 24 GB (2^30 each) has
25.8 GB. Numbers without a unit are written in full, never with an exponent.
"""

from __future__ import annotations

import math

SI_PREFIXES = (
    *((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")),
    *((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p")),
)

NOT_MEASURED = "not measured"
"""What texts say of a quantity of a device that no sensor has measured."""


def si(value: float | None, unit: str) -> str:
    """A quantity with three digits and an SI prefix: "21.4 ms"; a dash where it is missing."""
    if value is None:
        return "-"
    for factor, prefix in SI_PREFIXES:
        if abs(value) >= factor * 0.9995:
            return (
                f"{value / factor:.3g} {prefix}{unit}"
                if abs(value / factor) < 999.5
                else f"{value / factor:.0f} {prefix}{unit}"
            )
    return f"{value:.3g} {unit}"


def number(value: float | None, digits: int = 3) -> str:
    """A number in full, rounded to so many digits if it has decimals: "99,490", "0.0000106"; a dash where missing."""
    if value is None:
        return "-"
    after = digits - 1 - math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    text = f"{value:,.{max(0, after)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 operation", "1,200 operations"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def scaled(value: float, unit: str) -> tuple[float, str]:
    """A factor and the prefixed unit that make a value at least 1: 0.002 s -> (1e-3, "ms")."""
    for factor, prefix in SI_PREFIXES:
        if abs(value) >= factor:
            return factor, f"{prefix}{unit}"
    return 1.0, unit


def duration(time_s: float) -> str:
    """A time of seconds to years in the unit that people say: "3.2 h"."""
    for seconds, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if time_s >= 2 * seconds:
            return f"{number(time_s / seconds)} {unit}"
    return si(time_s, "s")
