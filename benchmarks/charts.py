"""What the charts of these scripts have in common."""

from __future__ import annotations

import io
import re
from typing import Any

from joulecast.rendering.plots import FAINT, INK, STYLE

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
