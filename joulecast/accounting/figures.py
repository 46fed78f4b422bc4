"""Draws an accounting as stages, modules, largest parts and power over time, and writes the page that holds it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..energy.node import PHASES, starred
from ..rendering.notebook import (
    Bar,
    Line,
    Picture,
    StackedBar,
    bars,
    checked_path,
    lines_over,
    one_below_the_other,
    stacked_bars,
)
from ..rendering.plots import figure, html_page, quiet
from ..units import si
from .events import Events
from .shares import NO_MODULE, counters_of
from .text import COLUMNS, parts_table

if TYPE_CHECKING:
    from ..energy import Node, Share

_DEPTHS = (1, 2, 3)
_MOST_BARS = 12
_BANDS = 7  # Number of parts with a colour of their own; all others are one.
_DEEPEST = 4  # Levels of the tree in the table.
_TITLES = {
    "stages": "Stages",
    "modules": "Modules, repeated layers added up",
    "top": "Largest parts",
    "power": "Power over time",
}


def drawn(accounting: Any) -> dict[str, Picture]:
    """All pictures of an Accounting: those of `_TITLES`, without power over time where it was not measured."""
    known = accounting.known
    quantity, unit = ("energy", "J") if known else ("time", "s")

    def value(share: Share) -> float:
        return share.energy_j if known else share.time_s

    def bar(name: str, share: Share, phase: str | None, whole: float) -> Bar:
        text = f"{si(value(share), unit)}, {100 * value(share) / (whole or 1.0):.1f} %"
        return Bar(name, value(share), text, colour=[*PHASES].index(phase) if phase in PHASES else len(PHASES) - 1)

    stages = {**accounting.stages(), "unattributed": accounting.unattributed}
    whole = sum(map(value, stages.values()))
    of_stages = bars([bar(name, share, name, whole) for name, share in stages.items()], f"{quantity} of each stage")
    levels = [
        stacked_bars([*_at_depth(accounting, depth, value)], PHASES, unit, f"{quantity} at depth {depth}")
        for depth in _DEPTHS
    ]
    whole = accounting.total.energy_j if known else accounting.duration_s
    nodes = [bar(_label(node), node.own, node.phase, whole) for node in accounting.top(10, summarized=True)]
    largest = bars(nodes, f"Operators with most {quantity}, by module, repeated layers added up")
    found = {"stages": Picture(of_stages), "modules": one_below_the_other(levels), "top": Picture(largest)}
    return {**found, "power": _power(accounting)} if accounting.measured and accounting.events else found


def _at_depth(accounting: Any, depth: int, value: Callable[[Share], float]) -> Iterator[StackedBar]:
    """Parts of the model at a depth, divided by phase. The largest part is first; the last one is all others."""
    found: dict[str, Counter[str]] = {}
    for row in accounting.rows:
        name = starred(".".join(row.path.split(".")[:depth])) or "(model)"
        found.setdefault(name, Counter())[row.phase] += value(row.share)  # type: ignore[assignment]  # (seconds)
    ordered = sorted(found.items(), key=lambda item: -item[1].total())
    if rest := ordered[_MOST_BARS:]:
        others = sum((phases for _, phases in rest), Counter[str]())
        ordered[_MOST_BARS:] = [(f"{len(rest)} others", others)]
    return (StackedBar(name, [phases[phase] for phase in PHASES]) for name, phases in ordered)


def _label(node: Node) -> str:
    return f"{node.path or '(model)'}  {node.name}" if node.level == "operation" else node.path or node.name


def _power(accounting: Any) -> Picture:
    """Power of each counter over time, with a coloured band for each stretch of time in which one part runs."""
    events: Events = accounting.events
    start_s, end_s = events.window_s
    lines = []
    for counter in counters_of(accounting.recording, events.origin_ns):
        inside = counter.curve.time_s[(counter.curve.time_s > start_s) & (counter.curve.time_s < end_s)]
        edges = np.unique(np.concatenate([[start_s], inside, [end_s]]))
        joules, _ = counter.curve.between(edges[:-1], edges[1:])
        # Steps: the power is constant between two updates of the counter.
        watts, at_s = np.repeat(joules / np.diff(edges), 2), np.repeat(edges - start_s, 2)[1:-1]
        lines.append(Line(counter.device.name, list(zip(at_s.tolist(), watts.tolist(), strict=True))))
    bands = [(name, left - start_s, right - start_s) for name, left, right in _stretches(events)]
    lasting: Counter[str] = Counter()
    for name, left, right in bands:
        lasting[name] += right - left  # type: ignore[assignment]  # (seconds)
    own = {name for name, _ in lasting.most_common(_BANDS - 1)}
    bands = [(name if name in own else "others", left, right) for name, left, right in bands]
    axes = ("time in the profiled iterations", "s"), ("power", "W")
    return Picture(lines_over(lines, *axes, "Power, and the part of the model that runs", bands))


def _stretches(events: Events) -> list[tuple[str, float, float]]:
    """Stretches of time in which all events belong to one part of the model, a child of its root: name, start, end."""
    names = [_part(place.path, place.phase) for place in events.places]
    found: list[tuple[str, float, float]] = []
    for i in np.argsort(events.start_s).tolist():
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


def save(accounting: Any, path: Path) -> Path:
    """Write an Accounting as one HTML file, or its pictures as PNG files into a folder; see `Accounting.save`."""
    if not path.is_dir():
        checked_path(path, [".html"], "the accounting (as one file; PNG files go into a folder)")
    pictures = drawn(accounting)
    if path.is_dir():
        for name, picture in pictures.items():
            picture.save(path / f"{name}.png")
        return path
    parts = [f"<p>{escape(str(accounting))}. {escape(accounting.basis)}</p>", quiet(accounting.notes)]
    parts += [f"<h2>{_TITLES[name]}</h2>{figure(each.svg, _TITLES[name])}" for name, each in pictures.items()]
    page = html_page(accounting.title, [*parts, "<h2>Tree</h2>", _table(accounting)])
    path.write_text(page, encoding="utf-8")
    return path


def _table(accounting: Any) -> str:
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in ("part", *COLUMNS)) + "</tr>"]
    for level, name, cells in parts_table(accounting.tree(), accounting.duration_s, _DEEPEST):
        first = f'<td style="padding-left:{1.2 * level}rem">{escape(name)}</td>'
        lines.append(f"<tr>{first}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'
