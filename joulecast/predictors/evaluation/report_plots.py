"""Plots of the evaluation report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...rendering.plots import ACCENT, FAINT, INK, OTHER, STYLE, pyplot
from .errors import OperationErrors, OwnNetworkError

_MOST_PERCENT = (
    60.0  # Bars end at this error, because a plain sum that is off by 300 % would make the others invisible.
)


def plot_operations(errors: OperationErrors, title: str, path: Path) -> Path:
    """Predicted against measured time and power of operations."""
    plt = pyplot()
    kinds = np.array([operation.kind for operation in errors.operations])
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
        colours = plt.get_cmap("tab20")
        for i, kind in enumerate(_by_count(kinds)):
            mine = kinds == kind
            dot = {"s": 9, "alpha": 0.6, "color": colours(i % 20), "linewidths": 0}
            left.scatter(errors.time_s[mine] * 1e3, errors.predicted_time_s[mine] * 1e3, label=kind, **dot)
            right.scatter(errors.power_w[mine], errors.predicted_power_w[mine], **dot)
        left.set(xscale="log", yscale="log", xlabel="measured time (ms)", ylabel="predicted time (ms)")
        left.legend(fontsize=7, frameon=False, markerscale=1.5)
        right.set(xlabel="measured power (W)", ylabel="predicted power (W)")
        for axis in (left, right):
            low, high = axis.get_xlim()
            axis.plot([low, high], [low, high], color=FAINT, linewidth=0.8, zorder=0)
        return _save(plt, figure, title, path)


def plot_errors_by_kind(errors: OperationErrors, title: str, path: Path) -> Path:
    """Distribution of absolute errors of time and of power, kind by kind."""
    plt = pyplot()
    kinds = np.array([operation.kind for operation in errors.operations])
    names = _by_count(kinds)
    quantities = (
        ("time", ACCENT, errors.time_s, errors.predicted_time_s),
        ("power", OTHER, errors.power_w, errors.predicted_power_w),
    )
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, 2, figsize=(10, 1.4 + 0.3 * len(names)), sharey=True, layout="constrained", squeeze=False
        )
        for axis, (quantity, colour, measured, predicted) in zip(axes[0], quantities, strict=True):
            error = 100 * np.abs(predicted / measured - 1)
            for row, kind in enumerate(names):
                mine = error[(kinds == kind) & ~np.isnan(error)]
                if len(mine):
                    low, first, middle, third, high = np.maximum(np.quantile(mine, (0.1, 0.25, 0.5, 0.75, 0.9)), 0.01)
                    axis.hlines(row, low, high, color=FAINT, linewidth=1.2)
                    axis.hlines(row, first, third, color=colour, linewidth=7)
                    axis.plot(middle, row, marker="|", markersize=11, markeredgewidth=1.8, color=INK)
            axis.set(xscale="log", xlabel=f"absolute error of {quantity} (%)")
            axis.grid(axis="x", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
        counts = [int((kinds == kind).sum()) for kind in names]
        axes[0][0].set_yticks(range(len(names)), [f"{kind} ({n})" for kind, n in zip(names, counts, strict=True)])
        axes[0][0].invert_yaxis()
        return _save(plt, figure, f"{title}\nbar: quartiles, mark: median, line: 10 to 90 %", path)


def plot_networks(
    by_name: Sequence[OwnNetworkError], by_family: Sequence[OwnNetworkError], title: str, path: Path
) -> Path:
    """Bars: errors of time and energy of every network, left out by name and by family."""
    plt = pyplot()
    order = sorted(range(len(by_name)), key=lambda i: by_name[i].measurement.known_energy_j)
    rows = np.arange(len(order))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(11, 1.6 + 0.36 * len(order)), sharey=True, layout="constrained")
        for axis, quantity in zip(axes, ("time", "energy"), strict=True):
            for shift, colour, label, errors in (
                (-0.2, ACCENT, "name left out", by_name),
                (0.2, OTHER, "family left out", by_family),
            ):
                values = np.array([100 * getattr(errors[i], f"{quantity}_error") for i in order])
                shown = np.clip(values, -_MOST_PERCENT, _MOST_PERCENT)
                axis.barh(rows + shift, shown, 0.38, color=colour, label=label)
            added = np.array([100 * getattr(by_name[i], f"sum_{quantity}_error") for i in order])
            inside = np.abs(added) <= _MOST_PERCENT
            axis.scatter(added[inside], rows[inside], marker="|", s=70, color=INK, label="plain sum, name left out")
            axis.axvline(0, color=INK, linewidth=0.8)
            axis.grid(axis="x", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.set(xlabel=f"error of {quantity} (%)")
        axes[0].set_yticks(rows, [_label(by_name[i]) for i in order])
        axes[1].legend(frameon=False, fontsize=8, loc="best")
        return _save(plt, figure, f"{title}; plain sums beyond {_MOST_PERCENT:.0f} % are not shown", path)


def _by_count(kinds: Any) -> list[str]:
    return sorted(set(kinds.tolist()), key=lambda kind: -int((kinds == kind).sum()))


def _label(error: OwnNetworkError) -> str:
    m = error.measurement
    return f"{m.network} {m.input_shape[-1]} {m.precision} ({1e3 * m.time_s:.3g} ms, {m.energy_j:.2g} J)"


def _save(plt: Any, figure: Any, title: str, path: Path) -> Path:
    figure.suptitle(title, color=INK, fontsize=10)
    figure.savefig(path)
    plt.close(figure)
    return path
