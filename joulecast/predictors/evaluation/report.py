"""The evaluation report: Markdown with plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...rendering.plots import ACCENT, FAINT, INK, OTHER, STYLE, pyplot
from ..recipes import Recipe
from .coverage import LEVEL, Coverage, chance_range
from .errors import NetworkError, OperationErrors, network_summary
from .one_gpu import SPLITS, Validation

_QUANTITIES = ("time", "power", "energy", "edp")


def _slug(validation: Validation) -> str:
    return (
        f"{validation.gpu.replace('NVIDIA ', '').replace('GeForce ', '').replace(' ', '-').lower()}-{validation.mode}"
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _three(summary: Mapping[str, float], prefix: str) -> str:
    if f"{prefix}median" not in summary:
        return "-"
    return " / ".join(_percent(summary[f"{prefix}{statistic}"]) for statistic in ("median", "mean", "p90"))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]


def _operations_section(validation: Validation, folder: Path) -> list[str]:
    if not validation.operations:
        return ["Too few operations in any one campaign to cross-validate.", ""]
    header = ["campaign", "rows", "unique", "time R2", "R2 of log time", "time med / mean / p90 %"]
    header += ["power R2", "R2 of log power", "power med / mean / p90 %"]
    rows = []
    for errors in validation.operations:
        s = errors.summary()
        cells = [
            validation.campaign_titles[errors.campaign],
            f"{s['measurements']:.0f}",
            f"{s['unique_operations']:.0f}",
        ]
        for quantity in ("time", "power"):
            cells += [f"{s[f'{quantity}_r2']:.3f}", f"{s[f'{quantity}_r2_log']:.3f}", _three(s, f"{quantity}_")]
        rows.append(cells)
    largest = max(validation.operations, key=lambda e: len(set(e.operations)))
    return _table(header, rows) + _largest_campaign(validation, largest, folder)


def _largest_campaign(validation: Validation, errors: OperationErrors, folder: Path) -> list[str]:
    campaign = validation.campaign_titles[errors.campaign]
    lines = [
        f"Campaign {campaign} by kind, by size (the least time that the data sheet allows), and by what its "
        "loops wait for:",
        "",
    ]
    for name, groups in errors.tables().items():
        header = [name, "rows", "time med / mean / p90 %", "power med / mean / p90 %"]
        rows = [[key, f"{t['count']:.0f}", _three(t, ""), _three(p, "")] for key, (t, p) in groups.items()]
        lines += _table(header, rows)
    title = f"{validation.gpu}, {validation.mode}, {campaign}: operations not seen in training"
    path = plot_operations(errors, title, folder / f"{_slug(validation)}-operations.png")
    return [*lines, f"![{path.stem}]({path.name})", ""]


def _networks_section(validation: Validation, folder: Path) -> list[str]:
    if not validation.networks:
        return ["No whole network was measured on this GPU in this mode.", ""]
    header = ["left out", "composition", "networks"]
    header += [f"{quantity} med / mean / p90 %" for quantity in ("time", "energy", "power")]
    rows = []
    for left_out, errors in (
        ("name", validation.networks),
        ("family", validation.families),
        ("nothing: operations seen", validation.networks_seen),
    ):
        rows.append(_network_row(left_out, "host/device overlap", errors, ""))
        for bound, mine in (
            ("host-bound", [e for e in errors if e.host_bound]),
            ("GPU-bound", [e for e in errors if not e.host_bound]),
        ):
            if mine:
                rows.append(_network_row(left_out, f"host/device overlap, {bound}", mine, ""))
        rows.append(_network_row(left_out, "plain sum of loops", errors, "sum_"))
    title = f"{validation.gpu}, {validation.mode}: networks left out"
    path = plot_networks(validation.networks, validation.families, title, folder / f"{_slug(validation)}-networks.png")
    lines = _table(header, rows)
    for left_out, errors in (("name", validation.networks), ("family", validation.families)):
        lines += [f"Left out by {left_out}:", "", *_each_network(errors)]
    return [*lines, f"![{path.stem}]({path.name})", ""]


def _network_row(left_out: str, composition: str, errors: Sequence[NetworkError], prefix: str) -> list[str]:
    s = network_summary(errors)
    cells = [_three(s, f"{prefix}{quantity}_error_") for quantity in ("time", "energy", "power")]
    return [left_out, composition, str(len(errors)), *cells]


def _each_network(errors: Sequence[NetworkError]) -> list[str]:
    header = ["network", "input", "precision", "measured ms", "predicted ms", "time error %", "measured J"]
    header += ["predicted J", "energy error %", "device / host ms", "time in kinds never measured %"]
    header += ["operations left out"]
    rows = []
    for e in errors:
        m = e.measurement
        rows.append(
            [
                m.network,
                "x".join(map(str, m.input_shape)),
                m.precision,
                f"{1e3 * m.time_s:.2f}",
                f"{1e3 * e.time_s:.2f}",
                f"{100 * e.error('time'):+.1f}",
                f"{m.energy_j:.3f}",
                f"{e.energy_j:.3f}",
                f"{100 * e.error('energy'):+.1f}",
                f"{1e3 * e.device_time_s:.2f} / {1e3 * e.host_time_s:.2f}",
                _percent(e.unmeasured_share),
                str(e.left_out),
            ]
        )
    return _table(header, rows)


def _intervals_section(validation: Validation) -> list[str]:
    found = validation.coverage()
    rows = [
        [row.split, row.group, f"{max(row.unique.values())} ({row.cases})"]
        + [
            " / ".join("-" if q not in values or np.isnan(values[q]) else _percent(values[q]) for q in _QUANTITIES)
            for values in (row.within, row.width)
        ]
        + [" to ".join(map(_percent, chance_range(max(row.unique.values()), LEVEL)))]
        for row in found
    ]
    if not rows:
        return ["Too few errors to calibrate intervals.", ""]
    names = " / ".join(_QUANTITIES)
    header = ["split", "group", "operations or networks (measurements)", f"within: {names} %"]
    header += [f"median half width: {names} %", "chance allows %"]
    introduction = (
        "90 % intervals, and how many cases lie within; each was made without the case: operations from the errors "
        "on four fifths of the operations, networks from the errors on networks of other names. The measurements of an "
        "operation count as one case. Of so few cases, right intervals cover what the last column says, 19 times out "
        f"of 20. {_shares_within(found)}"
    )
    return [introduction, "", *_table(header, rows)]


def _shares_within(found: Sequence[Coverage]) -> str:
    """A sentence that says how many of the shares within intervals agree with their level."""
    shares = [(row.within[q], row.unique[q]) for row in found for q in row.within if row.unique[q]]
    exact = sum(0.88 <= share <= 0.92 for share, _ in shares)
    allowed = [(share, chance_range(count, LEVEL)) for share, count in shares]
    likely = sum(low <= share <= high for share, (low, high) in allowed)
    less = sum(share < low for share, (low, _) in allowed)
    return (
        f"Of {len(shares)} shares, {exact} lie between 88 and 92 %, {likely} within what chance allows; "
        f"{less} are below that, {len(shares) - likely - less} above."
    )


def write_report(
    validations: Sequence[Validation], recipe: Recipe, folder: Path, *, command: str, remarks: str = ""
) -> Path:
    """Write REPORT.md and its plots.

    There is one validation per GPU and mode. The remarks are Markdown that follows the introduction, such as what
    limits the errors. Raises MissingDependencyError: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = ", ".join(f"{name} = {value}" for name, value in recipe.to_dict().items())
    lines = [
        "# How good the predictions are",
        "",
        f"Made by `{command}`; do not edit. Recipe: {settings}.",
        "",
        f"**Splits.** {SPLITS}",
        "",
        "Errors are relative, and absolute values unless they have a sign; med, mean (the MAPE) and p90 (the 90th "
        "percentile) are over measurements. GPUs and clocks left out: see the model card of the predictor for any GPU.",
        "",
        *([remarks.strip(), ""] if remarks else []),
    ]
    for validation in validations:
        lines += [f"## {validation.gpu}, {validation.mode}", "", "### Operations", ""]
        lines += _operations_section(validation, folder)
        lines += ["### Networks", ""]
        lines += _networks_section(validation, folder)
        lines += ["### Intervals", ""]
        lines += _intervals_section(validation)
    report = folder / "REPORT.md"
    report.write_text("\n".join(lines), encoding="utf-8")
    return report


_MOST_PERCENT = (
    60.0  # Bars end at this error, because a plain sum that is off by 300 % would make the others invisible.
)


def plot_operations(errors: OperationErrors, title: str, path: Path) -> Path:
    """Predicted against measured time and power of operations."""
    plt = pyplot()
    kinds = [operation.kind for operation in errors.operations]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
        colours = plt.get_cmap("tab20")
        for i, (kind, _) in enumerate(Counter(sorted(kinds)).most_common()):
            mine = np.array(kinds) == kind
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


def plot_networks(by_name: Sequence[NetworkError], by_family: Sequence[NetworkError], title: str, path: Path) -> Path:
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
                values = np.array([100 * errors[i].error(quantity) for i in order])
                shown = np.clip(values, -_MOST_PERCENT, _MOST_PERCENT)
                axis.barh(rows + shift, shown, 0.38, color=colour, label=label)
            added = np.array([100 * by_name[i].error(f"sum_{quantity}") for i in order])
            inside = np.abs(added) <= _MOST_PERCENT
            axis.scatter(added[inside], rows[inside], marker="|", s=70, color=INK, label="plain sum, name left out")
            axis.axvline(0, color=INK, linewidth=0.8)
            axis.grid(axis="x", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.set(xlabel=f"error of {quantity} (%)")
        axes[0].set_yticks(rows, [_label(by_name[i]) for i in order])
        axes[1].legend(frameon=False, fontsize=8, loc="best")
        return _save(plt, figure, f"{title}; plain sums beyond {_MOST_PERCENT:.0f} % are not shown", path)


def _label(error: NetworkError) -> str:
    m = error.measurement
    return f"{m.network} {m.input_shape[-1]} {m.precision} ({1e3 * m.time_s:.3g} ms, {m.energy_j:.2g} J)"


def _save(plt: Any, figure: Any, title: str, path: Path) -> Path:
    figure.suptitle(title, color=INK, fontsize=10)
    figure.savefig(path)
    plt.close(figure)
    return path
