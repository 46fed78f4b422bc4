"""Self-contained HTML files: a title, pictures and tables, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

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
