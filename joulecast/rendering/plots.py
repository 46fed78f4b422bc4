"""The style of plots, and access to matplotlib where it is installed."""

from __future__ import annotations

import io
import re
from typing import Any

from ..errors import MissingDependencyError, with_extra

INK, FAINT, ACCENT, OTHER = "#222222", "#999999", "#1b6ca8", "#d1793b"
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "figure.dpi": 120}

COLOURS = ("#1b6ca8", "#d1793b", "#2f8f6b", "#8a5aa5", "#b8405e", "#8a7a2f")
"""Colours that can be told apart with all common kinds of colour blindness, and in grey by their order."""

QUIET = "#d4d8dc"
CHART_STYLE = {
    **STYLE,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#eceef0",
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "font.family": "sans-serif",
    "savefig.dpi": 160,
    # Text is stored as text, not as outlines: files are smaller, and programs can read it.
    "svg.fonttype": "none",
    "svg.hashsalt": "joulecast",
}


def svg_of(figure: Any) -> str:
    """A figure of matplotlib as SVG that names no address at all but its own namespace."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    # The document type and the metadata contain addresses that some viewers fetch.
    drawn = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
    drawn = drawn.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    return drawn.strip() + "\n"


def pyplot() -> Any:
    """The module matplotlib.pyplot, drawing into files. Raises MissingDependencyError: matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingDependencyError("plots need matplotlib", hint=with_extra("train")) from error
    return plt
