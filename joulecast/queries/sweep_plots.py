"""Sweeps as pictures that Jupyter shows, and as PNG, SVG and HTML files."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..rendering.notebook import Picture, as_picture, drawn_into
from .figures import png, svg
from .page import page
from .sweep import Sweep


@as_picture.register(Sweep)
def sweep_picture(sweep: Sweep) -> Picture:
    """Energy, time and energy-delay product against the clock.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    return Picture(svg(sweep))


@drawn_into.register(Sweep)
def draw(sweep: Sweep, path: Path) -> Path:
    """Draw a sweep into a file; see `Sweep.plot`.

    Raises:
        InputError: The file is no PNG, SVG or HTML, or lies in no folder.
        MissingDependencyError: matplotlib is not installed.
    """
    ending = path.suffix.lower()
    if not path.parent.is_dir():
        raise InputError("the folder of this plot is not there", given=str(path.parent), hint="make it first")
    if ending == ".html":
        path.write_text(page(sweep), encoding="utf-8")
    elif ending == ".svg":
        path.write_text(svg(sweep), encoding="utf-8")
    elif ending == ".png":
        png(sweep, path)
    else:
        raise InputError(
            "a plot of a sweep is a PNG, an SVG or an HTML file", given=str(path), allowed=".png .svg .html"
        )
    return path
