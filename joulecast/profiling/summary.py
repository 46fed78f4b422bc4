"""Writes the summary page of a campaign from its journal, with plots that show whether to trust the measurements."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..metering.estimate import DISCARDED_S
from ..operations.operation import Operation
from ..rendering.plots import ACCENT, FAINT, INK, OTHER, saved
from .journal import Journal

_TRACES = 6
_COUNTER_SLOPE_S = 0.5
_REPORTED = 12

Record = Mapping[str, Any]


def write_summary(journal: Journal, folder: Path) -> Path:
    """Write SUMMARY.md and its plots. Raises MissingDependencyError: matplotlib is not installed."""
    measured = [record for record in journal.records if record["status"] == "ok"]
    plots: list[tuple[str, str, Callable[[Sequence[Record], Path], bool]]] = [
        ("Power over time", "summary-traces.png", plot_traces),
        ("Time against iterations", "summary-iterations.png", plot_iterations),
        ("Spread of repeats", "summary-repeats.png", plot_repeats),
    ]
    sections = [_head(journal, measured), _sessions(journal), _faults(journal, measured), _rules(measured)]
    for title, name, plot in plots:
        if plot(measured, folder / name):
            sections.append(f"## {title}\n\n{(plot.__doc__ or '').strip()}\n\n![{title}]({name})")
    path = folder / "SUMMARY.md"
    path.write_text("\n\n".join(section for section in sections if section) + "\n", encoding="utf-8")
    return path


def _head(journal: Journal, measured: Sequence[Record]) -> str:
    facts, campaign = journal.facts, journal.campaign
    operations = {record["key"].split("/")[0] for record in measured if "operation" in record}
    networks = sum("network" in record for record in measured)
    hours = sum(record["timing"]["end_s"] - record["timing"]["start_s"] for record in measured) / 3600
    days = sorted(record["started"][:10] for record in measured)
    rows = {
        "device": campaign["device"],
        "measured": f"{len(measured)}: {len(operations)} operations, {networks} whole networks; {hours:.2f} h of loops",
        "when": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
        "software": ", ".join(f"{name} {facts[name]}" for name in ("torch", "cuda", "driver") if name in facts),
        "sensor": facts.get("sensor", "none"),
        "power cap": _watts(facts.get("power_limit_w")),
    }
    lines = [f"# Campaign {campaign['name']}", "", "| | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows.items())])


def _sessions(journal: Journal) -> str:
    """Power of the idle device at the start and end of every session."""
    rows = []
    for record in journal.records:
        if record["status"] == "session":
            idle = record["idle"]
            degrees = "" if idle["temperature_c"] is None else f"{idle['temperature_c']:.0f}"
            rows.append(f"| {record.get('ended', record['started'])} | {_watts(idle['power_w'])} | {degrees} |")
    if not rows:
        return ""
    return "\n".join(["## The idle device", "", "| when | power | degrees |", "| --- " * 3 + "|", *rows])


def _faults(journal: Journal, measured: Sequence[Record]) -> str:
    warnings: Counter[str] = Counter()
    for record in measured:
        for warning in (*record["timing"]["warnings"], *record["power"]["warnings"]):
            # Without its numbers, so that warnings of the same kind are counted together.
            words = ("..." if any(c.isdigit() for c in word) else word for word in warning.split())
            warnings[" ".join(words)] += 1
    failed = Counter(record["reason"] for record in journal.records if record["status"] == "failed")
    lines = ["## Warnings and failures", ""]
    lines += [f"- {count} x {what}" for what, count in warnings.most_common(_REPORTED)]
    lines += [f"- {count} x failed: {reason}" for reason, count in failed.most_common(_REPORTED)]
    if not warnings and not failed:
        lines.append("None: no measurement failed, and none has a warning.")
    return "\n".join(lines)


_RULES = {
    "integrated_w": "readings, each weighted by the time that it was held",
    "three_sigma_w": "the same, without readings beyond three standard deviations",
    "nicolai_w": "plain mean of the readings within three standard deviations (Nicolai 2025)",
    "naive_w": "plain mean of all readings since the start of the loop, as scripts take it",
}


def _rules(measured: Sequence[Record]) -> str:
    """What other rules make of the same readings, beside the power that was stored."""
    lines = []
    for name, about in _RULES.items():  # Older journals lack some.
        found = [(record["power"].get(name), record["power"]["power_w"]) for record in measured]
        ratios = [watts / stored - 1 for watts, stored in found if watts and stored]
        if ratios:
            lines.append(f"| {about} | {np.median(ratios):+.1%} | {max(ratios, key=abs):+.1%} |")
    header = ["## Power by other rules", "", "Against the power that was stored.", ""]
    return "\n".join([*header, "| rule | median | worst |", "| --- | --- | --- |", *lines]) if lines else ""


def _watts(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} W"


def _title(record: Record) -> str:
    if "network" in record:
        return f"{record['network']['model']} {record['network']['mode']}"
    operation = Operation.from_dict(record["operation"])
    shapes = " ".join("x".join(map(str, shape)) for shape in operation.input_shapes)
    return f"{operation.kind} {shapes} {operation.precision} {operation.mode}"


def plot_traces(measured: Sequence[Record], path: Path) -> bool:
    """Power in some loops: readings (dots), slope of the counter (steps), estimate (line); shaded is discarded."""
    known = [r for r in measured if r["power"]["power_w"] is not None and len(r["trace"]["time_s"]) > 1]
    if not known:
        return False
    known.sort(key=lambda record: record["power"]["power_w"])
    shown = [known[i] for i in np.unique(np.linspace(0, len(known) - 1, _TRACES).round().astype(int))]
    with saved(path, 2, 3, figsize=(13, 5.6)) as axes:
        for axis in axes.flat[len(shown) :]:
            axis.set_visible(False)
        for axis, record in zip(axes.flat, shown, strict=False):
            trace, length_s = record["trace"], record["timing"]["end_s"] - record["timing"]["start_s"]
            time_s, power_w, energy_j = (
                np.array(trace[name], dtype=float) for name in ("time_s", "power_w", "energy_j")
            )
            axis.axvspan(0, min(DISCARDED_S, length_s / 2), color=FAINT, alpha=0.2, linewidth=0)
            axis.plot(time_s, power_w, ".", color=ACCENT, markersize=3, label="readings")
            steps = np.flatnonzero(np.diff(energy_j) > 0) + 1
            # A poll sees an update slightly late, which hardly matters over several updates.
            steps = (
                steps[:: max(1, int(_COUNTER_SLOPE_S / np.median(np.diff(time_s[steps]))))] if steps.size > 1 else steps
            )
            if steps.size > 1:
                slope_w = np.diff(energy_j[steps]) / np.diff(time_s[steps])
                axis.stairs(slope_w, time_s[steps], color=OTHER, linewidth=0.8, label="counter", baseline=None)
            axis.axhline(record["power"]["power_w"], color=INK, linewidth=0.8, label="estimate")
            axis.set_title(_title(record), fontsize=8)
            axis.set(xlabel="time in the loop (s)", ylabel="power (W)", ylim=(0, None))
        axes.flat[0].legend(fontsize=7, frameon=False)
    return True


def plot_iterations(measured: Sequence[Record], path: Path) -> bool:
    """Time per iteration relative to the long loop (1: proportional), and iterations over seconds on linear axes."""
    if not measured:
        return False
    with saved(path, 1, 2, figsize=(12, 3.6), width_ratios=(2, 1)) as (axis, linear):
        linear.axline((0, 0), slope=1, color=FAINT, linewidth=0.8, linestyle="--")
        linear.set(xlabel="seconds / those of the long loop", ylabel="iterations / those of the long loop")
        for record in measured:
            iterations, seconds = np.array(record["timing"]["loops"]).T
            each_s = seconds / iterations
            axis.plot(seconds, each_s / each_s[-1], ".-", color=ACCENT, markersize=3, linewidth=0.4, alpha=0.5)
            linear.plot(seconds / seconds[-1], iterations / iterations[-1], ".", color=ACCENT, markersize=3, alpha=0.5)
        for edge in (0.9, 1.1):
            axis.axhline(edge, color=FAINT, linewidth=0.8, linestyle="--")
        axis.set(xscale="log", xlabel="length of the loop (s)", ylabel="time per iteration / that of the long loop")
    return True


def plot_repeats(measured: Sequence[Record], path: Path) -> bool:
    """Each repeat of an operation relative to the mean of its repeats."""
    groups: dict[tuple[str, Any], list[Record]] = defaultdict(list)
    for record in measured:
        groups[record["key"].rsplit("/", 1)[0], record["clock_mhz"]].append(record)
    repeated = [group for group in groups.values() if len(group) > 1]
    if not repeated:
        return False
    with saved(path, 1, 2, figsize=(10, 3.2)) as axes:
        for axis, part, name in zip(axes, ("timing", "power"), ("time_s", "power_w"), strict=True):
            values = [[r[part][name] for r in group if r[part][name] is not None] for group in repeated]
            spread = np.concatenate([100 * (np.array(v) / np.mean(v) - 1) for v in values if v] or [np.empty(0)])
            axis.set_visible(spread.size > 0)
            axis.hist(spread, bins=40, color=ACCENT)
            axis.set(xlabel=f"{name.split('_')[0]} of a repeat against the mean (%)", ylabel="measurements")
    return True
