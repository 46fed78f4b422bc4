"""Plots by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..errors import needing

INK, FAINT, ACCENT, OTHER = "#222222", "#999999", "#1b6ca8", "#d1793b"
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "figure.dpi": 120}


_HINT = "pip install matplotlib; or draw an answer into a .svg or .html file, which needs nothing"


def pyplot() -> Any:
    """The module matplotlib.pyplot, drawing into files. Raises MissingDependencyError: matplotlib is not installed."""
    with needing("PNG files and plots of measurements need matplotlib", _HINT):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    return plt


@contextmanager
def saved(path: Path, rows: int, columns: int, style: Mapping[str, Any] = STYLE, **how: Any) -> Iterator[Any]:
    """Yield axes to draw into, and save their figure at the end. Raises MissingDependencyError: see `pyplot`."""
    plt = pyplot()
    with plt.rc_context(style):
        figure, axes = plt.subplots(rows, columns, layout="constrained", **how)
        yield axes
        figure.savefig(path)
        plt.close(figure)


# Our own SVG pictures as PNG, drawn by matplotlib: rectangles, circles, lines and texts are all that they contain.

_DPI, _PIXELS_PER_INCH = 192, 96.0
_STEP = re.compile(r"([MLHVhv])([^MLHVhv]*)")
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def write_png(svg: str, path: Path) -> None:
    """Draw a picture of `pictures.py` or an energy tree into a PNG file, on white."""
    plt = pyplot()
    root = ElementTree.fromstring(svg)  # noqa: S314 (written by this library a moment ago)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    figure = plt.figure(figsize=(width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(left, left + width), ylim=(top + height, top))
    axis.axis("off")
    _draw_all(axis, root, 0.0)
    figure.savefig(path, dpi=_DPI, facecolor="white")
    plt.close(figure)


def _draw_all(axis: Any, parent: ElementTree.Element, below: float) -> None:
    """Draw all elements in a picture; those of pictures in it lie lower by some pixels."""
    for element in parent:
        inner = element.attrib.get("viewBox")
        if inner is None:
            _draw(axis, element, below)
        further = 0.0 if inner is None else float(element.attrib["y"]) - float(inner.split()[1])
        _draw_all(axis, element, below + further)


def _draw(axis: Any, element: ElementTree.Element, below: float) -> None:
    from matplotlib.patches import Circle, Rectangle
    from matplotlib.transforms import Affine2D

    given = element.attrib
    # What comes later covers what came before.
    order = len(axis.patches) + len(axis.lines) + len(axis.texts)
    style: dict[str, Any] = {
        "zorder": order,
        "alpha": float(given.get("opacity", 1)),
        "transform": Affine2D().translate(0, below) + axis.transData,
    }
    x, y = float(given.get("x", 0)), float(given.get("y", 0))
    match element.tag.rpartition("}")[2]:
        case "rect":
            edge: dict[str, Any] = {"edgecolor": _colour(given.get("stroke", "none")), "linewidth": 0.5}
            face = _colour(given["fill"])
            axis.add_patch(
                Rectangle((x, y), float(given["width"]), float(given["height"]), facecolor=face, **edge, **style)
            )
        case "circle":
            centre = (float(given["cx"]), float(given["cy"]))
            axis.add_patch(Circle(centre, float(given["r"]), color=_colour(given["fill"]), **style))
        case "polyline":
            _line(axis, [tuple(map(float, point.split(","))) for point in given["points"].split()], given, style)
        case "path":
            for points in _moves(given["d"]):
                _line(axis, points, given, style)
        case "text":
            anchor = _ANCHORS[given.get("text-anchor", "start")]
            weight = given.get("font-weight", "normal")
            colour = _colour(given.get("fill", "currentColor"))
            text = element.text or ""
            # Pixels of the page are 1/96 inch, points of a font 1/72.
            turned = re.match(r"rotate\((-?\d+)", given.get("transform", ""))
            angle = -float(turned[1]) if turned else 0.0
            where = {"ha": anchor, "va": "baseline", "rotation": angle, "rotation_mode": "anchor"}
            axis.text(x, y, text.replace("$", r"\$"), color=colour, weight=weight, size=9, **where, **style)


def _line(axis: Any, points: list[Any], given: dict[str, str], style: dict[str, Any]) -> None:
    width = 0.75 * float(given.get("stroke-width", 1))
    axis.plot(*zip(*points, strict=True), color=_colour(given["stroke"]), linewidth=width, **style)


def _moves(path: str) -> Iterator[list[tuple[float, float]]]:
    """The lines of a path that consists of moves, horizontals, verticals and straight lines."""
    points: list[tuple[float, float]] = []
    for step, text in _STEP.findall(path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
        x, y = points[-1] if points else (0.0, 0.0)
        if step == "M":
            if len(points) > 1:
                yield points
            points = []
        ends = {"H": (numbers[0], y), "h": (x + numbers[0], y), "V": (x, numbers[0]), "v": (x, y + numbers[0])}
        points.append(ends.get(step) or (numbers[0], numbers[1]))
    yield points


def _colour(name: str) -> str:
    return INK if name == "currentColor" else name
