"""Arguments that several commands share, and how to read and print them."""

from __future__ import annotations

import re

from ..errors import InputError

SI_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """Read a shape such as "32,3,224,224" or "32x3x224x224".

    Raises:
        InputError: The text is no list of positive integers.
    """
    if text is None:
        return None
    parts = re.split(r"\s*[,x]\s*", text.strip(" ()[]"))
    if not all(re.fullmatch(r"\d+", part) for part in parts) or any(int(part) < 1 for part in parts):
        raise InputError("a shape is a list of positive integers", given=repr(text), allowed="such as 32,3,224,224")
    return tuple(map(int, parts))


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
    return f"{value:.3g} {unit}" if value else f"0 {unit}"


def table(header: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Columns as wide as they need to be; those in `right` are aligned to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
