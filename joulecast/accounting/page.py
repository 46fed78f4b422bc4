"""Writes an accounting as one HTML file without references to other files: pictures, the tree of modules, and notes."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..errors import InputError
from ..rendering.notebook import drawn_into
from .figures import save_pngs, svgs
from .result import Accounting
from .text import COLUMNS, parts_table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
figure { margin: 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.8rem 0.15rem 0; text-align: right; border-bottom: 1px solid #eceef0; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } .quiet { color: #666; }
"""
_TITLES = {
    "stages": "Stages",
    "modules": "Modules, repeated layers added up",
    "top": "Largest parts",
    "power": "Power over time",
}
_DEEPEST = 4  # Levels of the tree in the table.


@drawn_into.register(Accounting)
def save(accounting: Accounting, path: Path) -> Path:
    """Write an accounting; see `Accounting.save`.

    Raises:
        InputError: The path is neither a folder nor a name that ends in .html.
        MissingDependencyError: matplotlib is not installed.
    """
    if path.is_dir():
        save_pngs(accounting, path)
    elif path.suffix.lower() == ".html" and path.parent.is_dir():
        path.write_text(page(accounting), encoding="utf-8")
    else:
        raise InputError(
            "the accounting cannot be saved to this path",
            given=str(path),
            allowed="a name that ends in .html in a folder that exists, or a folder for PNG files",
            hint="create the folder, or choose another name",
        )
    return path


def page(accounting: Accounting) -> str:
    """The accounting as the text of an HTML file.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    title = escape(accounting.title)
    parts = [f"<h1>{title}</h1>", f"<p>{escape(str(accounting))}. {escape(accounting.basis)}</p>"]
    parts += [f'<p class="quiet">{escape(note)}</p>' for note in accounting.notes]
    for name, svg in svgs(accounting).items():
        drawn = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "")
        parts.append(f'<h2>{_TITLES[name]}</h2><figure role="img" aria-label="{_TITLES[name]}">{drawn}</figure>')
    parts += ["<h2>Tree</h2>", _table(accounting)]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _table(accounting: Accounting) -> str:
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in ("part", *COLUMNS)) + "</tr>"]
    for level, name, cells in parts_table(accounting.tree(), accounting.duration_s, _DEEPEST):
        first = f'<td style="padding-left:{1.2 * level}rem">{escape(name)}</td>'
        lines.append(f"<tr>{first}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'
