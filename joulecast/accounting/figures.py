"""Draws an accounting as stages, modules, largest parts and power over time, and writes the page that holds it all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..energy import Node
from ..energy.node import PHASES
from ..errors import InputError
from ..rendering.notebook import drawn_into
from ..rendering.plots import CHART_STYLE, COLOURS, INK, QUIET, figure, html_page, pyplot, quiet, svg_of
from ..units import scaled
from .events import Events
from .result import Accounting
from .shares import NO_MODULE, counters_of
from .text import COLUMNS, parts_table

_DEPTHS = (1, 2, 3)
_MOST_BARS = 12
_BANDS = 8  # Number of parts with a colour of their own; all others are grey.
_PHASE_COLOURS: Mapping[str, str] = dict(zip((*PHASES[:3], "other"), COLOURS, strict=False))
_BAND_COLOURS = (*COLOURS, "#5b7f95", "#a3a14a")
Drawn = TypeVar("Drawn")


def drawn(accounting: Accounting, finish: Callable[[str, Any], Drawn]) -> dict[str, Drawn]:
    """Draw all pictures of an accounting.

    Args:
        accounting: The accounting. Power over time is drawn where it was measured.
        finish: Function from a name and matplotlib's figure to what is kept of it.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    plt = pyplot()
    kept = {}
    with plt.rc_context(CHART_STYLE):
        for name, draw in _DRAW.items():
            picture = draw(plt, accounting)
            if picture is not None:
                kept[name] = finish(name, picture)
                plt.close(picture)
    return kept


def _value(accounting: Accounting) -> tuple[Callable[[Any], float], str, str]:
    """The quantity that bars show, its name and its unit: joules if they were measured, otherwise seconds."""
    if accounting.known:
        return (lambda share: float(share.energy_j)), "energy", "J"
    return (lambda share: float(share.time_s)), "time", "s"


def _stages(plt: Any, accounting: Accounting) -> Any:
    value, quantity, unit = _value(accounting)
    rows = [*accounting.stages().items(), ("unattributed", accounting.unattributed)]
    values = [value(share) for _, share in rows]
    figure, axis = plt.subplots(figsize=(7.5, 0.6 + 0.45 * len(rows)), layout="constrained")
    colours = [_PHASE_COLOURS.get(name, QUIET) for name, _ in rows]
    _bars(axis, [name for name, _ in rows], values, colours, sum(values), unit)
    axis.set_title(f"{quantity.capitalize()} of each stage")
    return figure


def _modules(plt: Any, accounting: Accounting) -> Any:
    """Modules at three depths, with repeated layers added up, and forward and backward stacked."""
    value, quantity, unit = _value(accounting)
    levels = {depth: _at_depth(accounting, depth, value) for depth in _DEPTHS}
    counts = [max(1, len(levels[depth])) for depth in _DEPTHS]
    figure, axes = plt.subplots(
        len(_DEPTHS),
        1,
        figsize=(7.5, 1.6 + 0.34 * sum(counts)),
        layout="constrained",
        gridspec_kw={"height_ratios": counts},
        sharex=True,
    )
    most = max((sum(parts.values()) for level in levels.values() for parts in level.values()), default=0.0)
    scale, shown_unit = scaled(most or 1.0, unit)
    for axis, (depth, level) in zip(axes, levels.items(), strict=True):
        names = list(level)
        left = np.zeros(len(names))
        for phase, colour in _PHASE_COLOURS.items():
            widths = np.array([level[name].get(phase, 0.0) for name in names]) / scale
            axis.barh(names, widths, left=left, color=colour, height=0.7, label=phase if widths.any() else None)
            left += widths
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_xlim(0, 1.04 * (most or 1.0) / scale)
        axis.grid(axis="y", visible=False)
        axis.set_title(f"depth {depth}")
    axes[-1].set_xlabel(f"{quantity} ({shown_unit})")
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper right", frameon=False, ncols=4)
    return figure


def _at_depth(accounting: Accounting, depth: int, value: Callable[[Any], float]) -> dict[str, dict[str, float]]:
    """Part of the model at a depth -> phase -> value. The largest part is first; the last one is all others."""
    found: dict[str, dict[str, float]] = {}
    for row in accounting.rows:
        parts = row.path.split(".") if row.path else []
        shown = ["*" if part.isdecimal() else part for part in parts[:depth]]
        name = ".".join(shown) or "(model)"
        phases = found.setdefault(name, {})
        phases[row.phase] = phases.get(row.phase, 0.0) + value(row.share)
    ordered = sorted(found.items(), key=lambda item: -sum(item[1].values()))
    largest, rest = ordered[:_MOST_BARS], ordered[_MOST_BARS:]
    if rest:
        together: dict[str, float] = {}
        for _, phases in rest:
            for phase, amount in phases.items():
                together[phase] = together.get(phase, 0.0) + amount
        largest.append((f"{len(rest)} others", together))
    return dict(largest)


def _top(plt: Any, accounting: Accounting) -> Any:
    value, quantity, unit = _value(accounting)
    nodes = accounting.top(10, summarized=True)
    figure, axis = plt.subplots(figsize=(7.5, 0.6 + 0.36 * max(1, len(nodes))), layout="constrained")
    colours = [_PHASE_COLOURS.get(node.phase or "other", QUIET) for node in nodes]
    values = [value(node.own) for node in nodes]
    whole = accounting.total.energy_j if accounting.known else accounting.duration_s
    _bars(axis, [_label(node) for node in nodes], values, colours, whole, unit)
    axis.set_title(f"Operators with most {quantity}, by module, repeated layers added up")
    return figure


def _label(node: Node) -> str:
    return f"{node.path or '(model)'}  {node.name}" if node.level == "operation" else node.path or node.name


def _bars(
    axis: Any, names: Sequence[str], values: Sequence[float], colours: Sequence[str], whole: float, unit: str
) -> None:
    """Bars from zero, one below the other, each with its value and share of the whole."""
    scale, shown_unit = scaled(max(values, default=0.0) or 1.0, unit)
    places = np.arange(len(names))
    axis.barh(places, [value / scale for value in values], color=colours, height=0.7)
    for place, value in zip(places, values, strict=True):
        text = f"{value / scale:.3g} {shown_unit}, {100 * value / (whole or 1.0):.1f} %"
        axis.annotate(
            text, (value / scale, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.25 * (max(values, default=0.0) or scale) / scale)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(shown_unit)


def _power(plt: Any, accounting: Accounting) -> Any:
    """Power of each counter over time, with a coloured band for each stretch of time in which one part runs."""
    events, recording = accounting.events, accounting.recording
    if events is None or recording is None or not accounting.measured:
        return None
    start_s, end_s = events.window_s
    figure, axis = plt.subplots(figsize=(10.0, 3.6), layout="constrained")
    for colour, counter in zip((INK, *COLOURS), counters_of(recording, events.origin_ns), strict=False):
        inside = counter.curve.time_s[(counter.curve.time_s > start_s) & (counter.curve.time_s < end_s)]
        edges = np.unique(np.concatenate([[start_s], inside, [end_s]]))
        joules, _ = counter.curve.between(edges[:-1], edges[1:])
        power_w = joules / np.diff(edges)
        axis.stairs(power_w, edges - start_s, baseline=None, color=colour, lw=1.6, label=counter.device.name, zorder=4)
    stretches = _stretches(events)
    names = list(dict.fromkeys(name for name, _, _ in sorted(stretches, key=lambda each: each[1] - each[2])))
    colours = dict(zip(names[:_BANDS], _BAND_COLOURS, strict=False))
    for name, left, right in stretches:
        axis.axvspan(left - start_s, right - start_s, color=colours.get(name, QUIET), alpha=0.35, lw=0)
    for name, colour in colours.items():
        axis.axvspan(np.nan, np.nan, color=colour, alpha=0.35, label=name)
    axis.set(xlabel="seconds of the profiled iterations", ylabel="W", xlim=(0, end_s - start_s))
    axis.set_ylim(bottom=0)
    axis.set_title("Power, and the part of the model that runs")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def _stretches(events: Events) -> list[tuple[str, float, float]]:
    """Stretches of time in which all events belong to one part of the model, a child of its root: name, start, end."""
    names = [_part(place.path, place.phase) for place in events.places]
    order = np.argsort(events.start_s)
    found: list[tuple[str, float, float]] = []
    for i in order.tolist():
        name, left, right = names[int(events.place[i])], float(events.start_s[i]), float(events.end_s[i])
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], max(found[-1][2], right))
        else:
            found.append((name, left, right))
    return found


def _part(path: str | None, phase: str) -> str:
    if phase == "optimizer":
        return phase
    part = NO_MODULE if path is None else path.split(".")[0] or "(model)"
    return part if phase == "forward" else f"{part}, {phase}"


_DRAW: Mapping[str, Callable[[Any, Accounting], Any]] = {
    "stages": _stages,
    "modules": _modules,
    "top": _top,
    "power": _power,
}
"""Name of a picture -> function that draws it with matplotlib.pyplot; None where it cannot be drawn."""
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

    Raises InputError: the path is neither a folder nor a name that ends in .html. Raises MissingDependencyError:
    matplotlib is not installed.
    """
    if path.is_dir():
        drawn(accounting, lambda name, picture: picture.savefig(path / f"{name}.png"))
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
    """The accounting as the text of an HTML file. Raises MissingDependencyError: matplotlib is not installed."""
    parts = [f"<p>{escape(str(accounting))}. {escape(accounting.basis)}</p>", quiet(accounting.notes)]
    for name, svg in drawn(accounting, lambda _, picture: svg_of(picture)).items():
        parts.append(f"<h2>{_TITLES[name]}</h2>{figure(svg, _TITLES[name])}")
    return html_page(accounting.title, [*parts, "<h2>Tree</h2>", _table(accounting)])


def _table(accounting: Accounting) -> str:
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in ("part", *COLUMNS)) + "</tr>"]
    for level, name, cells in parts_table(accounting.tree(), accounting.duration_s, _DEEPEST):
        first = f'<td style="padding-left:{1.2 * level}rem">{escape(name)}</td>'
        lines.append(f"<tr>{first}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'
