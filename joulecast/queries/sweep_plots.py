"""Drawing sweeps for Jupyter, and into PNG, SVG and HTML files."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..rendering.notebook import Picture, as_picture, check_folder, drawn_into
from .figures import png, svg
from .page import page
from .sweep import Sweep


@as_picture.register(Sweep)
def sweep_picture(sweep: Sweep) -> Picture:
    """Draw energy, time and energy-delay product against the clock.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    return Picture(svg(sweep))


@drawn_into.register(Sweep)
def draw(sweep: Sweep, path: Path) -> Path:
    """Draw a sweep into a file, as `Sweep.plot` does.

    Raises:
        InputError: The path has another ending, or its folder does not exist.
        MissingDependencyError: matplotlib is not installed.
    """
    ending = path.suffix.lower()
    check_folder(path)
    if ending == ".html":
        path.write_text(page(sweep), encoding="utf-8")
    elif ending == ".svg":
        path.write_text(svg(sweep), encoding="utf-8")
    elif ending == ".png":
        png(sweep, path)
    else:
        raise InputError(
            "a sweep can be drawn into a PNG, SVG or HTML file only", given=str(path), allowed=".png .svg .html"
        )
    return path
