"""A sweep as one self-contained HTML file: picture, choices, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..units import si
from .choice import Choice, incomplete_notes
from .figures import svg
from .objectives import OBJECTIVES
from .sweep import Sweep

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


def page(sweep: Sweep) -> str:
    """Render a sweep as a self-contained HTML page.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    drawn = svg(sweep, titled=False).replace(' xmlns="http://www.w3.org/2000/svg"', "")
    job = escape(sweep.job)
    best = sweep.best_of_each()
    words = OBJECTIVES[sweep.objective].words
    parts = [
        f"<h1>{job}</h1>",
        f"<p>{len(sweep)} predictions per iteration. Left out: {_left_out(sweep)}</p>" if sweep.left_out else "",
        f'<figure role="img" aria-label="Energy, time and energy-delay product of {job}">{drawn}</figure>',
        f"<h2>Least {escape(words)} of each GPU</h2>",
        _table(best, sweep.objective),
        "<h2>Pareto front of time and energy</h2>",
        _table(sweep.pareto(), sweep.objective),
        _notes(best),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{job}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _left_out(sweep: Sweep) -> str:
    return "; ".join(f"{escape(out.gpu)} in {escape(out.precision)} ({escape(out.reason)})" for out in sweep.left_out)


def _table(rows: Sequence[Choice], objective: str) -> str:
    extra = objective not in ("energy", "time", "edp")
    header = ["GPU", "precision", "batch", "clock", "time", "power", "energy", "EDP"]
    header += [OBJECTIVES[objective].words] if extra else []
    lines = [_line("th", [*header, "known by"])]
    for row in rows:
        cells = [
            row.alias,
            row.precision,
            "" if row.batch_size is None else str(row.batch_size),
            f"{row.clock_mhz:g} MHz",
            si(row.time_s, "s"),
            si(row.power_w, "W"),
            si(row.energy_j, "J"),
            si(row.edp_js, "Js"),
            *([OBJECTIVES[objective].text(row.value)] if extra else []),
            "measurements" if row.measured else "data sheet",
        ]
        lines.append(_line("td", cells))
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _line(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _notes(rows: Iterable[Choice]) -> str:
    rows = list(rows)
    measured = [note for row in rows if row.measured for note in row.notes]
    notes = dict.fromkeys([*incomplete_notes(rows), *measured])
    unmeasured = sum(not row.measured for row in rows)
    if unmeasured:
        notes[f"{unmeasured} choices are on GPUs of which nothing was measured"] = None
    return "".join(f'<p class="quiet">{escape(note)}</p>' for note in notes)
