"""An icicle chart as SVG: nested boxes, each as wide as its share of its parent's value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from ..rendering.notebook import COLOURS

_WIDTH, _ROW, _DEEPEST = 960, 26, 8
_NARROWEST = 1.0  # Pixels; narrower boxes are not drawn.
_LETTER = 7.0  # Approximate width of a letter in pixels.


@dataclass(frozen=True)
class Box:
    """A box with those below it.

    Args:
        label: Text inside the box, shown if there is room.
        tooltip: Text that is shown while the pointer is over the box.
        value: Value that its width represents, in any unit; at least the sum of its children's values.
        children: Boxes of the next row, from left to right.
    """

    label: str
    tooltip: str
    value: float
    children: tuple[Box, ...] = ()


def icicle(root: Box, title: str) -> str:
    """Draw a box with all below it, at most eight rows deep."""
    placed = list(_placed(root, 0.0, float(_WIDTH), 0))
    height = (1 + max(row for _, _, _, row in placed)) * _ROW
    drawn = "".join(_drawn(*each) for each in placed)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" style="max-width:100%;font-family:system-ui,sans-serif;font-size:12px">'
        f"<title>{escape(title)}</title>{drawn}</svg>"
    )


def _placed(box: Box, left: float, width: float, row: int) -> Iterator[tuple[Box, float, float, int]]:
    yield box, left, width, row
    if row + 1 == _DEEPEST or not box.value:
        return
    for child in box.children:
        wide = width * child.value / box.value
        if wide >= _NARROWEST:
            yield from _placed(child, left, wide, row + 1)
        left += wide


def _drawn(box: Box, left: float, width: float, row: int) -> str:
    room = int((width - 8) / _LETTER)
    label = box.label if len(box.label) <= room else f"{box.label[: room - 1]}…" if room > 3 else ""
    text = f'<text x="{left + 4:.1f}" y="{row * _ROW + 17}" fill="#fff">{escape(label)}</text>' if label else ""
    # White edges separate neighbours. Colours distinguish rows and do not represent values.
    return (
        f'<g><title>{escape(box.tooltip)}</title><rect x="{left:.1f}" y="{row * _ROW}" width="{width:.1f}" '
        f'height="{_ROW}" fill="{COLOURS[row % len(COLOURS)]}" stroke="#fff" stroke-width="0.5"/>{text}</g>'
    )
