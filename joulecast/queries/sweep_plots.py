"""Sweeps as pictures: energy, time and energy-delay product against the clock, the Pareto front, and pages in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..rendering.notebook import Picture, as_picture, check_folder, drawn_into
from ..rendering.plots import (
    CHART_STYLE,
    COLOURS,
    FAINT,
    INK,
    QUIET,
    figure,
    html_page,
    html_rows,
    pyplot,
    quiet,
    svg_of,
)
from ..units import scaled, si
from .choice import Choice, incomplete_notes
from .objectives import OBJECTIVES
from .sweep import Sweep

Curve = Sequence[Choice]

_QUANTITIES: tuple[tuple[str, str, str, Callable[[Any], float]], ...] = (
    ("energy", "Energy", "J", lambda row: row.energy_j),
    ("time", "Time", "s", lambda row: row.time_s),
    ("edp", "Energy-delay product", "Js", lambda row: row.edp_js),
)


def svg(sweep: Sweep, titled: bool = True) -> str:
    """Draw a sweep as SVG. Apart from the SVG namespace the text contains no web address.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    plt = pyplot()
    with plt.rc_context(CHART_STYLE):
        figure = _figure(plt, sweep, titled)
        drawn = svg_of(figure)
        plt.close(figure)
    return drawn


def png(sweep: Sweep, path: Path) -> None:
    """Draw a sweep into a PNG file. Raises MissingDependencyError: matplotlib is not installed."""
    plt = pyplot()
    with plt.rc_context(CHART_STYLE):
        figure = _figure(plt, sweep)
        figure.savefig(path)
        plt.close(figure)


def _figure(plt: Any, sweep: Sweep, titled: bool = True) -> Any:
    curves = sweep.curves()
    if len(curves) == 1:
        figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.5), layout="constrained")
    else:
        figure, grid = plt.subplots(2, 2, figsize=(10.5, 7.8), layout="constrained")
        _front(grid[0, 0], sweep, curves)
        axes = (grid[0, 1], grid[1, 0], grid[1, 1])
    for axis, (_, title, unit, value) in zip(axes, _QUANTITIES, strict=True):
        _against_clock(axis, curves, title, unit, value)
    where = f", {curves[0][0].alias}" if len(curves) == 1 else ""
    if titled:
        figure.suptitle(f"{sweep.job}{where}", x=0.01, ha="left", fontsize=11)
    if len(curves) > 1:
        _legend(figure, curves, sweep)
    return figure


def _name(row: Choice, curves: Sequence[Curve]) -> str:
    """Name of a curve: the GPU, and its precision and batch size where these differ between curves."""
    parts = [row.alias]
    if len({curve[0].precision for curve in curves}) > 1:
        parts.append(row.precision)
    if len({curve[0].batch_size for curve in curves}) > 1:
        parts.append(f"batch {row.batch_size}")
    return " ".join(parts)


def _legend(figure: Any, curves: Sequence[Curve], sweep: Sweep) -> None:
    from matplotlib.lines import Line2D

    shown = curves[: len(COLOURS)]
    handles = [
        Line2D([], [], color=colour, lw=2, label=_name(curve[0], curves))
        for colour, curve in zip(COLOURS, shown, strict=False)
    ]
    if len(curves) > len(shown):
        handles.append(Line2D([], [], color=QUIET, lw=2, label=f"{len(curves) - len(shown)} others"))
    handles.append(Line2D([], [], color=INK, lw=0, marker="o", ms=5, label="least over the clocks"))
    handles.append(Line2D([], [], color=INK, lw=0, marker="|", ms=8, label="default clock"))
    words = OBJECTIVES[sweep.objective].words
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=5,
        frameon=False,
        title=f"by least {words}, best first" if len(shown) > 1 else None,
        alignment="left",
        title_fontsize=9,
    )


def _front(axis: Any, sweep: Sweep, curves: Sequence[Curve]) -> None:
    """Energy over time: each curve is a GPU over its clocks."""
    front = sweep.pareto()
    time_scale, time_unit = scaled(min(row.time_s for row in sweep), "s")
    energy_scale, energy_unit = scaled(min(row.energy_j for row in sweep), "J")
    for place, curve in reversed(list(enumerate(curves))):
        emphasised = place < len(COLOURS)
        axis.plot(
            [row.time_s / time_scale for row in curve],
            [row.energy_j / energy_scale for row in curve],
            color=COLOURS[place] if emphasised else QUIET,
            lw=1.6 if emphasised else 1.0,
            zorder=3 if emphasised else 1,
        )
    axis.plot(
        [row.time_s / time_scale for row in front],
        [row.energy_j / energy_scale for row in front],
        color=INK,
        lw=0.8,
        ls=(0, (2, 2)),
        marker="o",
        ms=2.5,
        zorder=4,
        label="Pareto front",
    )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel=f"time ({time_unit})",
        ylabel=f"energy ({energy_unit})",
        title="Energy and time: down and left is better",
    )
    _plain_ticks(axis.xaxis)
    _plain_ticks(axis.yaxis)
    axis.legend(frameon=False, loc="upper left" if len(curves) > 1 else "best")


def _against_clock(axis: Any, curves: Sequence[Curve], title: str, unit: str, value: Callable[[Choice], float]) -> None:
    scale, scaled_unit = scaled(min(value(row) for curve in curves for row in curve), unit)
    for place, curve in reversed(list(enumerate(curves))):
        emphasised = place < len(COLOURS)
        colour = COLOURS[place] if emphasised else QUIET
        clocks, values = [row.clock_mhz for row in curve], [value(row) / scale for row in curve]
        axis.plot(clocks, values, color=colour, lw=1.6 if emphasised else 0.8, zorder=3 if emphasised else 1)
        if emphasised:
            least = min(range(len(values)), key=values.__getitem__)
            axis.plot(clocks[least], values[least], "o", ms=5, color=colour, mec="white", mew=0.8, zorder=5)
            _mark_default(axis, curve, value, scale, colour)
    if len(curves) == 1:
        _single(axis, curves[0], value, scale, unit)
    else:
        axis.set_yscale("log")
        _plain_ticks(axis.yaxis)
    axis.set(xlabel="clock (MHz)", title=f"{title} ({scaled_unit})")


def _mark_default(axis: Any, curve: Curve, value: Callable[[Choice], float], scale: float, colour: str) -> None:
    for row in curve:
        if row.clock_mhz == row.default_clock_mhz:
            axis.plot(row.clock_mhz, value(row) / scale, "|", ms=9, mew=1.6, color=colour, zorder=4)


def _single(axis: Any, curve: Curve, value: Callable[[Choice], float], scale: float, unit: str) -> None:
    """Mark the default clock and the optimum of the only curve, with its values."""
    best = min(curve, key=value)
    axis.set_ylim(0, 1.12 * max(value(row) for row in curve) / scale)
    for row in curve:
        if row.clock_mhz == row.default_clock_mhz:
            axis.annotate(
                "default",
                (row.clock_mhz, value(row) / scale),
                xytext=(0, 8),
                textcoords="offset points",
                ha="right" if _share(row, curve) > 0.9 else "center",
                fontsize=8,
                color=FAINT,
            )
    axis.annotate(
        f"{best.clock_mhz:g} MHz, {si(value(best), unit)}",
        (best.clock_mhz, value(best) / scale),
        xytext=(0, -16),
        textcoords="offset points",
        ha="center" if 0.25 < _share(best, curve) < 0.75 else "right" if _share(best, curve) >= 0.75 else "left",
        fontsize=8.5,
    )


def _share(row: Choice, curve: Curve) -> float:
    """Position of a row on the range of clocks: 0 at the lowest, 1 at the highest."""
    return (row.clock_mhz - curve[0].clock_mhz) / max(curve[-1].clock_mhz - curve[0].clock_mhz, 1.0)


def _plain_ticks(axis: Any) -> None:
    """Label the ticks of a logarithmic axis with plain numbers instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    ratio = high / max(low, 1e-300)
    digits = (1.0,) if ratio > 1000 else (1.0, 2.0, 5.0) if ratio > 10 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


@as_picture.register(Sweep)
def sweep_picture(sweep: Sweep) -> Picture:
    """Draw energy, time and energy-delay product against the clock.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    return Picture(svg(sweep))


@drawn_into.register(Sweep)
def draw(sweep: Sweep, path: Path) -> Path:
    """Draw a sweep into a file, as `Sweep.plot` does."""
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
