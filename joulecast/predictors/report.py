"""The evaluation report: Markdown with plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..plotting import ACCENT, FAINT, INK, OTHER, STYLE, pyplot
from .recipe import ForestRecipe
from .validation import SPLITS, NetworkError, OperationErrors, Validation, network_summary


def _slug(validation: Validation) -> str:
    return (
        f"{validation.gpu.replace('NVIDIA ', '').replace('GeForce ', '').replace(' ', '-').lower()}-{validation.mode}"
    )


def plot_operations(errors: OperationErrors, path: Path) -> Path:
    """Predicted against measured time and power, and the errors by kind."""
    plt = pyplot()
    kinds = np.array([operation.kind for operation in errors.operations])
    names = sorted(set(kinds.tolist()), key=lambda kind: -int((kinds == kind).sum()))
    with plt.rc_context(STYLE):
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
        colours = plt.get_cmap("tab20")
        for i, kind in enumerate(names):
            mine = kinds == kind
            dot = {"s": 9, "alpha": 0.6, "color": colours(i % 20), "linewidths": 0}
            left.scatter(errors.time_s[mine] * 1e3, errors.predicted_time_s[mine] * 1e3, label=kind, **dot)
            middle.scatter(errors.power_w[mine], errors.predicted_power_w[mine], **dot)
        left.set(xscale="log", yscale="log", xlabel="measured time (ms)", ylabel="predicted time (ms)")
        left.legend(fontsize=7, frameon=False, markerscale=1.5)
        middle.set(xlabel="measured power (W)", ylabel="predicted power (W)")
        for axis in (left, middle):
            low, high = axis.get_xlim()
            axis.plot([low, high], [low, high], color=FAINT, linewidth=0.8, zorder=0)
        _errors_by_kind(right, errors, kinds, names)
        figure.suptitle(f"{errors.mode}, {errors.campaign}: operations not seen in training", color=INK)
        figure.savefig(path)
        plt.close(figure)
    return path


def _errors_by_kind(axis: Any, errors: OperationErrors, kinds: Any, names: Sequence[str]) -> None:
    rows = np.arange(len(names))
    for shift, colour, label, measured, predicted in (
        (-0.2, ACCENT, "time", errors.time_s, errors.predicted_time_s),
        (0.2, OTHER, "power", errors.power_w, errors.predicted_power_w),
    ):
        error = 100 * np.abs(predicted / measured - 1)
        known = ~np.isnan(error)
        medians = [np.median(error[mine]) if (mine := known & (kinds == kind)).any() else 0.0 for kind in names]
        axis.barh(rows + shift, medians, 0.38, color=colour, label=label)
    axis.set_yticks(rows, [f"{kind} ({int((kinds == kind).sum())})" for kind in names])
    axis.invert_yaxis()
    axis.set(xlabel="median absolute error (%)")
    axis.legend(frameon=False)


def _label(error: NetworkError) -> str:
    m = error.measurement
    return f"{m.network} {m.input_shape[-1]} {m.precision}"


def plot_networks(validation: Validation, path: Path) -> Path:
    """Measured and predicted time and energy of every network, left out of its own prediction."""
    plt = pyplot()
    errors = sorted(validation.networks, key=lambda error: error.measurement.energy_j)
    rows = np.arange(len(errors))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(13, 1.2 + 0.32 * len(errors)), sharey=True, layout="constrained")
        for axis, title, measured, overlap, added in (
            (
                axes[0],
                "time (ms)",
                [e.measurement.time_s * 1e3 for e in errors],
                [e.time_s * 1e3 for e in errors],
                [e.sum_time_s * 1e3 for e in errors],
            ),
            (
                axes[1],
                "energy (J)",
                [e.measurement.energy_j for e in errors],
                [e.energy_j for e in errors],
                [e.sum_energy_j for e in errors],
            ),
        ):
            axis.hlines(rows, measured, overlap, color=FAINT, linewidth=1)
            axis.scatter(measured, rows, marker="|", s=120, color=INK, label="measured", zorder=3)
            axis.scatter(overlap, rows, s=22, color=ACCENT, label="predicted (overlap)", zorder=2)
            axis.scatter(added, rows, s=16, facecolors="none", edgecolors=OTHER, label="plain sum", zorder=1)
            axis.set(xscale="log", xlabel=title)
        axes[0].set_yticks(rows, [_label(error) for error in errors])
        axes[0].legend(frameon=False, loc="lower right")
        figure.suptitle(f"{validation.gpu}, {validation.mode}: networks left out", color=INK)
        figure.savefig(path)
        plt.close(figure)
    return path


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _three(summary: Mapping[str, float], prefix: str) -> str:
    return " / ".join(_percent(summary[f"{prefix}_{statistic}"]) for statistic in ("median", "mean", "p90"))


def _operations_section(validation: Validation, folder: Path) -> list[str]:
    if not validation.operations:
        return ["Too few operations in any one campaign to cross-validate.", ""]
    lines = [
        "| campaign | rows | unique | time R2 | R2 of log time | time med / mean / p90 % | power R2 | "
        "power med / mean / p90 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for errors in validation.operations:
        s = errors.summary()
        lines.append(
            f"| {errors.campaign} | {s['measurements']:.0f} | {s['unique_operations']:.0f} | {s['time_r2']:.3f} | "
            f"{s['time_r2_log']:.3f} | {_three(s, 'time')} | {s['power_r2']:.3f} | {_three(s, 'power')} |"
        )
    largest = max(validation.operations, key=lambda e: len(set(e.operations)))
    name = f"{_slug(validation)}-operations.png"
    plot_operations(largest, folder / name)
    return [*lines, "", f"![operations]({name})", ""]


def _networks_section(validation: Validation, folder: Path) -> list[str]:
    if not validation.networks:
        return ["No whole network was measured on this GPU in this mode.", ""]
    left_out, seen = network_summary(validation.networks), network_summary(validation.networks_seen)
    lines = [
        "| composition | time mean / median / p90 % | energy mean / median / p90 % |",
        "| --- | --- | --- |",
    ]
    for title, prefix, s in (
        ("host/device overlap", "", left_out),
        ("plain sum of loops", "sum_", left_out),
        ("host/device overlap, operations seen in training", "", seen),
    ):
        cells = [
            " / ".join(_percent(s[f"{prefix}{quantity}_error_{statistic}"]) for statistic in ("mean", "median", "p90"))
            for quantity in ("time", "energy")
        ]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} |")
    lines += [
        "",
        "| network | input | precision | measured ms | predicted ms | time error % | measured J | predicted J | "
        "energy error % | device / host ms | time in kinds never measured % | operations left out |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for e in validation.networks:
        m = e.measurement
        lines.append(
            f"| {m.network} | {'x'.join(map(str, m.input_shape))} | {m.precision} | "
            f"{1e3 * m.time_s:.2f} | {1e3 * e.time_s:.2f} | "
            f"{100 * e.time_error:+.1f} | {m.energy_j:.3f} | {e.energy_j:.3f} | {100 * e.energy_error:+.1f} | "
            f"{1e3 * e.device_time_s:.2f} / {1e3 * e.host_time_s:.2f} | {_percent(e.unmeasured_share)} | {e.left_out} |"
        )
    name = f"{_slug(validation)}-networks.png"
    plot_networks(validation, folder / name)
    return [*lines, "", f"![networks]({name})", ""]


def write_report(
    validations: Sequence[Validation], recipe: ForestRecipe, folder: Path, *, command: str, remarks: str = ""
) -> Path:
    """Write REPORT.md and its plots.

    Args:
        validations: One per GPU and mode.
        recipe: What was evaluated.
        folder: Where to; made if need be.
        command: The command that makes the report again.
        remarks: Markdown to put behind the head, such as what limits the errors.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = ", ".join(f"{name} = {value}" for name, value in recipe.to_json().items())
    lines = [
        "# How good the predictions are",
        "",
        f"Made by `{command}`; do not edit. Recipe: {settings}.",
        "",
        f"**Splits.** {SPLITS}",
        "",
        "Errors are relative and absolute values unless they have a sign; med, mean and p90 are over measurements.",
        "",
        *([remarks.strip(), ""] if remarks else []),
    ]
    for validation in validations:
        lines += [f"## {validation.gpu}, {validation.mode}", "", "### Operations", ""]
        lines += _operations_section(validation, folder)
        lines += ["### Networks", ""]
        lines += _networks_section(validation, folder)
    report = folder / "REPORT.md"
    report.write_text("\n".join(lines), encoding="utf-8")
    return report
