"""Small charts as SVG, in the text colour of their surroundings, for Jupyter, files and the service's page.

They contain no scripts, style sheets or external resources, so that notebooks show them even where not trusted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..errors import InputError
from ..units import si
from .described import FONT

COLOURS = ("#1263b0", "#c2570c", "#1c7c54", "#7d4bb3")
"""Colours that can be told apart with all common kinds of colour blindness, on white and on black."""

_SPREAD = 30.0  # Ratio of the largest to the smallest of dots from which on an axis is logarithmic.
_TITLE = 24  # Height of the title in pixels.
_LETTER = 8  # Width of a character: at most this many pixels.


@dataclass(frozen=True)
class Picture:
    """A picture that Jupyter shows."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to an SVG file, to an HTML file that contains it, or to a PNG file.

        Raises InputError: the path has another ending, or its folder does not exist. Raises MissingDependencyError:
        matplotlib, which writes PNG, is not installed.
        """
        path = checked_path(path, [".svg", ".png", ".html"], "a picture")
        if path.suffix.lower() == ".png":
            from .plots import write_png

            write_png(self.svg, path)
            return path
        start = "" if path.suffix.lower() == ".svg" else '<!doctype html><meta charset="utf-8"><title>joulecast</title>'
        path.write_text(start + self.svg, encoding="utf-8")
        return path


def checked_path(path: str | Path, endings: Sequence[str], what: str) -> Path:
    """A path to write a file to. Raises InputError: it has another ending, or is in no folder."""
    path = Path(path)
    if path.suffix.lower() not in endings or not path.parent.is_dir():
        raise InputError(
            f"{what} cannot be written to this path",
            given=str(path),
            allowed=f"a name that ends in {', '.join(endings)}, in a folder that exists",
            hint="create the folder, or choose another name",
        )
    return path


def short(text: str, most: int = 40) -> str:
    """A text, shortened to fit beside a bar."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# Parts of pictures as SVG.


def words(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    """A text that begins, ends, or has its middle at a point; `more` are further attributes of the element."""
    place = f'x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}"'
    return f'<text {place}{more} fill="currentColor">{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, tooltip: str = "") -> str:
    """A filled rectangle, and the text that a browser shows for it."""
    place = f'x="{round(x, 1)}" y="{round(y, 1)}" width="{round(width, 1)}" height="{round(height, 1)}"'
    title = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return f'<rect {place} fill="{colour}">{title}</rect>'


def drawing(width: float, height: float, title: str, drawn: Iterable[str]) -> str:
    """What was drawn as SVG, below its title."""
    wide, high = max(width, _LETTER * len(title)), height + _TITLE
    headline = words(0, -8, title, more=' font-weight="bold"')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-_TITLE} {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" style="max-width:100%;{FONT}"><title>{escape(title)}</title>'
        f"{headline}{''.join(drawn)}</svg>"
    )


@dataclass(frozen=True)
class Bar:
    """A bar of a chart with a label to its left, and a text at its end.

    The whisker is from low to high, in the unit of the value; None for no whisker. The colour is an index into
    `COLOURS`.
    """

    name: str
    value: float
    text: str
    low_high: tuple[float, float] | None = None
    colour: int = 0


@dataclass(frozen=True)
class StackedBar:
    """A bar with a label to its left, and the value of each part, none below zero."""

    name: str
    values: Sequence[float]


# Neighbours differ in lightness as well as in hue, so that they can be told apart in grey, too.
_COLOURS = ("#8a9299", "#1263b0", "#7fb4e6", "#1c7c54", "#c2570c", "#7d4bb3", "#d9d4c7")
_ROW = 24


def bars(items: Sequence[Bar], title: str) -> str:
    """Bars from zero, one below the other, as SVG."""
    most = max(((item.low_high[1] if item.low_high else item.value) for item in items), default=0.0) or 1.0
    left, width, drawn = _left_of(items), 300, []
    for i, item in enumerate(items):
        middle, end = i * _ROW + _ROW // 2, left + width * item.value / most
        drawn += [
            words(left - 8, middle + 4, item.name, "end"),
            box(left, middle - 6, end - left, 12, COLOURS[item.colour]),
        ]
        if item.low_high:
            low, high = (left + width * value / most for value in item.low_high)
            drawn.append(
                f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" '
                'stroke="currentColor" fill="none"/>'
            )
            end = max(end, high)
        drawn.append(words(end + 6, middle + 4, item.text))
    return drawing(left + width + 170, _ROW * len(items) + 4, title, drawn)


def stacked_bars(items: Sequence[StackedBar], parts: Sequence[str], unit: str, title: str) -> str:
    """Bars from zero, from top to bottom, each divided into the same parts: at most seven, in the order of values."""
    most = max((sum(item.values) for item in items), default=0.0) or 1.0
    left, width, drawn, keys = _left_of(items), 420, [], 0
    for part, colour in zip(parts, _COLOURS, strict=False):
        drawn += [box(keys, 6, 12, 12, colour), words(keys + 17, 16, part)]
        keys += 34 + _LETTER * len(part)
    for i, item in enumerate(items):
        top, end = 28 + i * _ROW, float(left)
        drawn.append(words(left - 8, top + 15, item.name, "end"))
        for part, value, colour in zip(parts, item.values, _COLOURS, strict=False):
            tooltip = f"{item.name}, {part}: {si(value, unit)}"
            drawn.append(box(end, top + 3, width * value / most, 16, colour, tooltip))
            end += width * value / most
        drawn.append(words(end + 6, top + 15, si(sum(item.values), unit)))
    return drawing(max(left + width + 90, keys), 28 + _ROW * len(items) + 4, title, drawn)


def _left_of(items: Sequence[Bar | StackedBar]) -> int:
    """Where bars begin, to the right of their names."""
    return 16 + _LETTER * max((len(item.name) for item in items), default=0)


@dataclass(frozen=True)
class Line:
    """A line of a chart, or dots if its points, from left to right, are not joined.

    One of them may be marked by its index.
    """

    name: str
    points: Sequence[tuple[float, float]]
    marked: int | None = None
    joined: bool = True


def lines_over(lines: Sequence[Line], x: tuple[str, str], y: tuple[str, str], title: str) -> str:
    """Lines over one axis, from zero up, as SVG. An axis along which dots differ much is logarithmic.

    The lines, at least one, are not empty; `x` and `y` are the titles of the axes, and the units of their values.
    """
    left, top, width, height = 88, 8, 380, 170
    (x_name, x_unit), (y_name, y_unit) = x, y
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    dotted = not all(line.joined for line in lines)
    log_x, log_y = (dotted and max(values) > _SPREAD * min(values) > 0 for values in (xs, ys))
    least_x, most_x, least_y, most_y = min(xs), max(xs), min(ys) if log_y else 0.0, max(ys)

    def share_of(value: float, least: float, most: float, logarithmic: bool) -> float:
        if logarithmic:
            value, least, most = math.log(value), math.log(least), math.log(most)
        return (value - least) / ((most - least) or 1.0)

    def at(across: float, up: float) -> tuple[float, float]:
        share = share_of(across, least_x, most_x, log_x)
        return left + width * share, top + height * (1 - share_of(up, least_y, most_y, log_y))

    bottom, drawn = top + height + 16, []
    for value in (least_y, math.sqrt(least_y * most_y) if log_y else most_y / 2, most_y):
        _, below = at(least_x, value)
        drawn.append(f'<path d="M{left} {below:.1f}H{left + width}" stroke="currentColor" opacity=".15"/>')
        drawn.append(words(left - 6, below + 4, si(value, y_unit), "end"))
    for value, anchor in ((least_x, "start"), (most_x, "end")):
        text = si(value, x_unit) if x_unit != "MHz" else f"{value:g} MHz"
        drawn.append(words(at(value, most_y)[0], bottom, text, anchor))
    middle = top + height / 2
    drawn.append(words(left + width / 2, bottom, f"{x_name}, logarithmic" if log_x else x_name, "middle"))
    drawn.append(words(14, middle, y_name, "middle", f' transform="rotate(-90 14 {middle})"'))
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        placed = [at(*point) for point in line.points]
        if line.joined:
            path = " ".join(f"{across:.1f},{down:.1f}" for across, down in placed)
            drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        dots = placed if not line.joined else [] if line.marked is None else [placed[line.marked]]
        radius = 4 if line.joined else 2.5
        drawn += [
            *(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius}" fill="{colour}"/>' for across, down in dots),
            box(left + width + 16, top + 18 * i, 10, 10, colour),
            words(left + width + 32, top + 18 * i + 10, line.name),
        ]
    return drawing(left + width + 200, max(top + height + 24, top + 18 * len(lines)), title, drawn)


Points = Sequence[tuple[float, float]]


def front_picture(all_of_them: tuple[str, Points], front: Points, x: str, title: str) -> Picture:
    """Ways as dots, and their Pareto front as a line, in seconds of what `x` names and joules of the same."""
    lines = [Line(*all_of_them, joined=False), Line("Pareto front", front)]
    return Picture(lines_over(lines, (x, "s"), (x.replace("time", "energy"), "J"), title))


_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


def one_below_the_other(drawn: Sequence[str]) -> Picture:
    """Several drawings as one picture."""
    sizes = [tuple(map(float, found.groups())) for each in drawn if (found := _SIZE.search(each))]
    tops = [sum(height for _, height in sizes[:place]) for place in range(len(sizes) + 1)]
    wide = max(width for width, _ in sizes)
    placed = (each.replace("<svg ", f'<svg y="{top}" ', 1) for each, top in zip(drawn, tops, strict=False))
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tops[-1]}" width="{wide}" '
        f'height="{tops[-1]}" style="max-width:100%">{"".join(placed)}</svg>'
    )
