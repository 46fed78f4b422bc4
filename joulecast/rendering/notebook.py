"""Tables and small charts for Jupyter as HTML and SVG, in the text colour of their surroundings.

They contain no scripts, style sheets or external resources, so that notebooks show them even where not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from pathlib import Path

from ..errors import InputError
from ..units import si

COLOURS = ("#1263b0", "#c2570c", "#1c7c54", "#7d4bb3")
"""Colours that can be told apart with all common kinds of colour blindness, on white and on black."""

_FONT = "font-family:system-ui,sans-serif;font-size:13px"
_QUIET = "opacity:.7"
_LETTER = 8  # Width of a character: at most this many pixels.


@dataclass(frozen=True)
class Picture:
    """A picture that Jupyter shows."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to an SVG file, or to an HTML file that contains it.

        Raises:
            InputError: The path has another ending, or its folder does not exist.
        """
        path = Path(path)
        check_folder(path)
        if path.suffix.lower() not in (".svg", ".html"):
            raise InputError(
                "this picture can be written to an SVG or HTML file", given=str(path), allowed=".svg .html"
            )
        start = "" if path.suffix.lower() == ".svg" else '<!doctype html><meta charset="utf-8"><title>joulecast</title>'
        path.write_text(start + self.svg, encoding="utf-8")
        return path


def check_folder(path: Path) -> None:
    """Refuse a file to be written whose folder does not exist.

    Raises:
        InputError: There is no such folder.
    """
    if not path.parent.is_dir():
        raise InputError(
            "the folder for this plot does not exist", given=str(path.parent), hint="create the folder first"
        )


@singledispatch
def as_html(value: object) -> str:
    """A value as HTML for Jupyter. Functions for classes of values are registered by other modules.

    Raises:
        TypeError: No function is registered for this class.
    """
    raise TypeError(f"no function is registered that shows a {type(value).__name__}")


@singledispatch
def as_picture(value: object) -> Picture:
    """A value as a picture for Jupyter, by a registered function as in `as_html`.

    Raises:
        TypeError: No function is registered for this class.
    """
    raise TypeError(f"no function is registered that draws a {type(value).__name__}")


@singledispatch
def drawn_into(value: object, path: Path) -> Path:
    """Draw a value into a file whose ending sets the format, by a registered function as in `as_html`.

    Raises:
        TypeError: No function is registered for this class.
    """
    raise TypeError(f"no function is registered that draws a {type(value).__name__} into {path.name}")


def document(headline: str, *parts: str) -> str:
    """Join parts below a headline."""
    return f'<div style="{_FONT};max-width:60rem"><p><strong>{escape(headline)}</strong></p>{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """A table of texts; columns in `right` are right-aligned."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        sides = ("right" if i in right else "left" for i in range(len(texts)))
        return "".join(
            f'<{tag} style="text-align:{side};padding:2px 12px 2px 0">{escape(text)}</{tag}>'
            for side, text in zip(sides, texts, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', header)}</tr></thead><tbody>{body}</tbody></table>"


def notes(texts: Iterable[str]) -> str:
    """Notes, one per line."""
    return "".join(f'<p style="{_QUIET};margin:2px 0">{escape(text)}</p>' for text in texts)


def short(text: str, most: int = 40) -> str:
    """A text, shortened to fit beside a bar."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, with its range where it is known.

    Args:
        name: Label to the left of the bar.
        value: Length of the bar.
        text: Label at the end of the bar.
        low_high: Ends of the whisker, in the unit of the value; None for no whisker.
        colour: Index into `COLOURS`.
    """

    name: str
    value: float
    text: str
    low_high: tuple[float, float] | None = None
    colour: int = 0


def bars(items: Sequence[Bar], title: str) -> str:
    """Bars from zero, one below the other, as SVG."""
    most = max(((item.low_high[1] if item.low_high else item.value) for item in items), default=0.0) or 1.0
    left, width, row = 16 + _LETTER * max((len(item.name) for item in items), default=0), 300, 22
    lines = []
    for i, item in enumerate(items):
        middle = i * row + row // 2
        end = left + width * item.value / most
        lines += [
            f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end" fill="currentColor">{escape(item.name)}</text>',
            f'<rect x="{left}" y="{middle - 6}" width="{end - left:.1f}" height="12" fill="{COLOURS[item.colour]}"/>',
        ]
        if item.low_high:
            low, high = (left + width * value / most for value in item.low_high)
            lines.append(
                f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" '
                'stroke="currentColor" fill="none"/>'
            )
            end = max(end, high)
        lines.append(f'<text x="{end + 6:.1f}" y="{middle + 4}" fill="currentColor">{escape(item.text)}</text>')
    return _svg(left + width + 170, row * len(items) + 4, title, lines)


@dataclass(frozen=True)
class Line:
    """A line of a chart: points from left to right, and the index of the marked point."""

    name: str
    points: Sequence[tuple[float, float]]
    marked: int


def lines_over(lines: Sequence[Line], x_unit: str, y_unit: str, title: str) -> str:
    """Lines over one axis, from zero up, as SVG."""
    left, top, width, height = 64, 8, 380, 170
    xs = [x for line in lines for x, _ in line.points]
    most_x, least_x, most_y = max(xs), min(xs), max(y for line in lines for _, y in line.points)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + width * (x - least_x) / ((most_x - least_x) or 1.0), top + height * (1 - y / (most_y or 1.0))

    drawn = []
    for share in (0.0, 0.5, 1.0):
        _, y = at(least_x, share * most_y)
        drawn += [
            f'<path d="M{left} {y:.1f}H{left + width}" stroke="currentColor" opacity=".15"/>',
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="currentColor">'
            f"{si(share * most_y, y_unit)}</text>",
        ]
    for x, anchor in ((least_x, "start"), (most_x, "end")):
        drawn.append(
            f'<text x="{at(x, 0)[0]:.1f}" y="{top + height + 16}" text-anchor="{anchor}" fill="currentColor">'
            f"{x:g} {escape(x_unit)}</text>"
        )
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line.points))
        x, y = at(*line.points[line.marked])
        drawn += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
            f'<rect x="{left + width + 16}" y="{top + 18 * i}" width="10" height="10" fill="{colour}"/>',
            f'<text x="{left + width + 32}" y="{top + 18 * i + 10}" fill="currentColor">{escape(line.name)}</text>',
        ]
    return _svg(left + width + 200, top + height + 24, title, drawn)


def _svg(width: int, height: int, title: str, drawn: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" style="max-width:100%;{_FONT}"><title>{escape(title)}</title>{"".join(drawn)}</svg>'
    )
