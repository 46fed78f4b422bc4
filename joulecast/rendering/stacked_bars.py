"""Stacked bars as SVG: what totals consist of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ..units import si
from .notebook import drawing

# Neighbours differ in lightness as well as in hue, so that they can be told apart in grey, too.
_COLOURS = ("#8a9299", "#1263b0", "#7fb4e6", "#1c7c54", "#c2570c", "#7d4bb3", "#d9d4c7")
_LETTER, _ROW, _WIDTH, _KEY = 8, 24, 420, 28


@dataclass(frozen=True)
class StackedBar:
    """A bar with a label to its left, and the value of each part, none below zero."""

    name: str
    values: Sequence[float]


def stacked_bars(items: Sequence[StackedBar], parts: Sequence[str], unit: str, title: str) -> str:
    """Bars from zero, from top to bottom, each divided into the same parts: at most seven, in the order of values."""
    most = max((sum(item.values) for item in items), default=0.0) or 1.0
    left = 16 + _LETTER * max((len(item.name) for item in items), default=0)
    drawn, at = [], 0
    for part, colour in zip(parts, _COLOURS, strict=False):
        drawn.append(
            f'<rect x="{at}" y="6" width="12" height="12" fill="{colour}"/>'
            f'<text x="{at + 17}" y="16" fill="currentColor">{escape(part)}</text>'
        )
        at += 34 + _LETTER * len(part)
    for i, item in enumerate(items):
        top, x = _KEY + i * _ROW, float(left)
        drawn.append(
            f'<text x="{left - 8}" y="{top + 15}" text-anchor="end" fill="currentColor">{escape(item.name)}</text>'
        )
        for part, value, colour in zip(parts, item.values, _COLOURS, strict=False):
            wide = _WIDTH * value / most
            tooltip = escape(f"{item.name}, {part}: {si(value, unit)}")
            box = f'<rect x="{x:.1f}" y="{top + 3}" width="{wide:.1f}" height="16" fill="{colour}">'
            drawn.append(f"{box}<title>{tooltip}</title></rect>")
            x += wide
        drawn.append(
            f'<text x="{x + 6:.1f}" y="{top + 15}" fill="currentColor">{escape(si(sum(item.values), unit))}</text>'
        )
    width, height = max(left + _WIDTH + 90, at), _KEY + _ROW * len(items) + 4
    return drawing(width, height, title, drawn)
