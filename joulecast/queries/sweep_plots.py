"""Drawing sweeps for Jupyter, and into PNG, SVG and HTML files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ..errors import InputError
from ..rendering.notebook import Picture, as_picture, check_folder, drawn_into
from ..rendering.pages import figure, html_page, html_rows, quiet
from ..units import si
from .choice import Choice, incomplete_notes
from .figures import png, svg
from .objectives import OBJECTIVES
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


def page(sweep: Sweep) -> str:
    """Render a sweep as a self-contained HTML page: picture, choices, and the Pareto front.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    best = sweep.best_of_each()
    left_out = "; ".join(f"{out.gpu} in {out.precision} ({out.reason})" for out in sweep.left_out)
    parts = [
        f"<p>{len(sweep)} predictions per iteration. Left out: {escape(left_out)}</p>" if left_out else "",
        figure(svg(sweep, titled=False), f"Energy, time and energy-delay product of {sweep.job}"),
        f"<h2>Least {escape(OBJECTIVES[sweep.objective].words)} of each GPU</h2>",
        _table(best, sweep.objective),
        "<h2>Pareto front of time and energy</h2>",
        _table(sweep.pareto(), sweep.objective),
        quiet(_notes(best)),
    ]
    return html_page(sweep.job, parts)


def _table(rows: Sequence[Choice], objective: str) -> str:
    extra = objective not in ("energy", "time", "edp")
    header = ["GPU", "precision", "batch", "clock", "time", "power", "energy", "EDP"]
    header += [OBJECTIVES[objective].words] if extra else []
    cells = (
        [
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
        for row in rows
    )
    return html_rows([*header, "known by"], cells)


def _notes(rows: Sequence[Choice]) -> Iterator[str]:
    measured = [note for row in rows if row.measured for note in row.notes]
    yield from dict.fromkeys([*incomplete_notes(rows), *measured])
    if unmeasured := sum(not row.measured for row in rows):
        yield f"{unmeasured} choices are on GPUs of which nothing was measured"
