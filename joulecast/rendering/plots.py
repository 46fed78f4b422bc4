"""Plots by matplotlib, and HTML pages that hold them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from html import escape
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


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
figure { margin: 0; overflow-x: auto; } svg { max-width: 100%; min-width: 40rem; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: right; border-bottom: 1px solid #eceef0; white-space: nowrap; }
th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } .quiet { color: #666; }
"""


def html_page(title: str, parts: Iterable[str]) -> str:
    """A page with a title and parts that are HTML already."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def figure(svg: str, label: str) -> str:
    """A picture of matplotlib, with what it shows for those who cannot see it."""
    drawn = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "")
    return f'<figure role="img" aria-label="{escape(label)}">{drawn}</figure>'


def html_rows(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, in which long rows may be scrolled."""
    lines = [("th", header), *(("td", row) for row in rows)]
    text = "".join(f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>" for tag, cells in lines)
    return f'<div class="wide"><table>{text}</table></div>'


def quiet(notes: Iterable[str]) -> str:
    """Notes, each a paragraph in grey."""
    return "\n".join(f'<p class="quiet">{escape(note)}</p>' for note in notes)
