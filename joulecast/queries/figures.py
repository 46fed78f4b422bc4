"""Sweeps as pictures: energy, time and energy-delay product against the clock, and the Pareto front."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..plotting import ACCENT, FAINT, INK, OTHER, STYLE, pyplot

if TYPE_CHECKING:
    from .choice import Choice
    from .sweep import Sweep


def draw(sweep: Sweep, path: Path) -> Path:
    """Draw a sweep into a file.

    Raises:
        InputError: The file is neither PNG nor SVG.
        MissingDependencyError: matplotlib is not installed.
    """
    if path.suffix not in (".png", ".svg"):
        raise InputError("a plot of a sweep is a PNG or an SVG", given=str(path), allowed=".png, .svg")
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        _front(axes[0], sweep)
        _against_clock(axes[1], sweep)
        figure.savefig(path)
        plt.close(figure)
    return path


def _front(axes: Any, sweep: Sweep) -> None:
    front = sweep.pareto()
    axes.scatter([1e3 * row.time_s for row in sweep], [row.energy_j for row in sweep], s=4, color=FAINT)
    axes.plot([1e3 * row.time_s for row in front], [row.energy_j for row in front], "o-", ms=3, color=ACCENT)
    axes.set(xscale="log", yscale="log", xlabel="time (ms)", ylabel="energy (J)")


def _against_clock(axes: Any, sweep: Sweep) -> None:
    best = sweep.best()
    rows: list[Choice] = [
        row for row in sweep if (row.gpu, row.precision, row.batch_size) == (best.gpu, best.precision, best.batch_size)
    ]
    axes.plot([row.clock_mhz for row in rows], [row.energy_j for row in rows], color=ACCENT)
    axes.plot([best.clock_mhz], [best.energy_j], "o", color=OTHER)
    axes.set_title(f"{best.gpu}, {best.precision}", color=INK)
    axes.set(xlabel="clock (MHz)", ylabel="energy (J)")
