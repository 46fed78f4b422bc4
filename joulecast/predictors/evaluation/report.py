"""What is reported of validations: tables in Markdown, and scores by which recipes are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ...operations.operation import MODES
from ..recipes import Recipe
from .any_gpu import ALL, AnyGpuValidation
from .calibrating import LEVEL, Coverage, chance_range
from .errors import NetworkError, network_summary
from .one_gpu import SPLITS, Validation

OWN_TITLE = "How good the predictions are"
OWN_SPLITS = (
    f"{SPLITS}\n\nErrors are relative, and absolute values unless they have a sign; med, mean (the MAPE) and p90 (the "
    "90th percentile) are over measurements. GPUs and clocks left out: see the model card of the predictor for any GPU."
)
"""How errors of a GPU's own predictors were found, and how their tables are read."""

_QUANTITIES = ("time", "power", "energy", "edp")


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _three(summary: Mapping[str, float], prefix: str) -> str:
    if f"{prefix}median" not in summary:
        return "-"
    return " / ".join(_percent(summary[f"{prefix}{statistic}"]) for statistic in ("median", "mean", "p90"))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]


def _operations_section(validation: Validation) -> list[str]:
    if not validation.operations:
        return ["Too few operations in any one campaign to cross-validate.", ""]
    header = ["campaign", "rows", "unique", "time R2", "R2 of log time", "time med / mean / p90 %"]
    header += ["power R2", "R2 of log power", "power med / mean / p90 %"]
    rows = []
    for errors in validation.operations:
        s = errors.summary()
        counts = [f"{s[name]:.0f}" for name in ("measurements", "unique_operations")]
        cells = [validation.campaign_titles[errors.campaign], *counts]
        for quantity in ("time", "power"):
            cells += [f"{s[f'{quantity}_r2']:.3f}", f"{s[f'{quantity}_r2_log']:.3f}", _three(s, f"{quantity}_")]
        rows.append(cells)
    return _table(header, rows)


def _networks_section(validation: Validation) -> list[str]:
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
        for composition, mine, prefix in (
            ("host/device overlap", errors, ""),
            ("host/device overlap, host-bound", [e for e in errors if e.host_bound], ""),
            ("host/device overlap, GPU-bound", [e for e in errors if not e.host_bound], ""),
            ("plain sum of loops", errors, "sum_"),
        ):
            if mine:
                s = network_summary(mine)
                cells = [_three(s, f"{prefix}{quantity}_error_") for quantity in ("time", "energy", "power")]
                rows.append([left_out, composition, str(len(mine)), *cells])
    lines = _table(header, rows)
    for left_out, errors in (("name", validation.networks), ("family", validation.families)):
        lines += [f"Left out by {left_out}:", "", *_each_network(errors)]
    return lines


def _each_network(errors: Sequence[NetworkError]) -> list[str]:
    header = ["network", "input", "precision", "measured ms", "predicted ms", "time error %", "measured J"]
    header += ["predicted J", "energy error %", "device / host ms", "time in kinds never measured %"]
    header += ["operations left out"]
    rows = [
        [
            e.measurement.network,
            "x".join(map(str, e.measurement.input_shape)),
            e.measurement.precision,
            f"{1e3 * e.measurement.time_s:.2f}",
            f"{1e3 * e.time_s:.2f}",
            f"{100 * e.error('time'):+.1f}",
            f"{e.measurement.energy_j:.3f}",
            f"{e.energy_j:.3f}",
            f"{100 * e.error('energy'):+.1f}",
            f"{1e3 * e.device_time_s:.2f} / {1e3 * e.host_time_s:.2f}",
            _percent(e.unmeasured_share),
            str(e.left_out),
        ]
        for e in errors
    ]
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


def own_tables(validation: Validation) -> list[str]:
    """The errors of a GPU's own predictor: of operations, of networks, and of intervals."""
    lines = [f"## {validation.gpu}, {validation.mode}", "", "### Operations", "", *_operations_section(validation)]
    lines += ["### Networks", "", *_networks_section(validation)]
    return [*lines, "### Intervals", "", *_intervals_section(validation)]


def report(
    title: str,
    splits: str,
    recipe: Recipe,
    tables: Iterable[Sequence[str]],
    *,
    command: str,
    remarks: str = "",
) -> str:
    """A report as Markdown.

    Args:
        title: Its first line.
        splits: What was left out, and what the tables say about it.
        recipe: The recipe that was judged.
        tables: Lines with the errors of each validation.
        command: The command that makes the report.
        remarks: Markdown that follows the introduction, such as what limits the errors.
    """
    settings = ", ".join(f"{name} = {value}" for name, value in recipe.to_dict().items())
    lines = [f"# {title}", "", f"Made by `{command}`; do not edit. Recipe: {settings}.", ""]
    lines += [f"**Splits.** {splits}", "", *([remarks.strip(), ""] if remarks else [])]
    return "\n".join([*lines, *(line for each in tables for line in each)])


HEADER = ("where", "left out", "count", "time: median", "mean", "energy: mean", "power: mean")
"""Columns of scores, by which recipes are compared: absolute relative errors of loop time (own predictor), device time
(any GPU) or a network's time, and of energy and power of the same operations or networks."""


def _score(where: str, split: str, count: int, *errors: float | None) -> list[str]:
    """A row of a table, with an empty cell where a quantity was not measured."""
    shown = ["" if error is None else f"{100 * error:.1f} %" for error in (*errors, None, None)[:4]]
    return [where, split, str(count), *shown]


def own_scores(validation: Validation) -> Iterator[list[str]]:
    """Scores of a GPU's own predictor, or of one of a CPU."""
    where = f"{validation.gpu}, {validation.mode}"
    for errors in validation.operations:
        s = errors.summary()
        split = f"operations in folds, {validation.campaign_titles[errors.campaign]}"
        count = int(s["unique_operations"])
        yield _score(where, split, count, s["time_median"], s["time_mean"], None, s.get("power_mean"))
    if validation.networks:
        yield _of_networks(where, "networks by name", validation.networks)


def any_gpu_scores(validation: AnyGpuValidation) -> Iterator[list[str]]:
    """Scores of a predictor for any GPU."""
    for split, errors in (("operations in folds", validation.folds), ("operations by chip", validation.left_out)):
        if errors:
            yield _score(ALL, split, *errors[ALL]["all all"])
    splits = {"nothing": "networks by chip and name", "networks": "networks by name, operations by chip"}
    for known, split in splits.items():
        for mode in MODES:
            mine = [e for e in validation.networks if (e.known, e.measurement.mode) == (known, mode)]
            if mine:
                yield _of_networks(f"{ALL}, {mode}", split, mine, with_power=True)


def _of_networks(where: str, split: str, errors: Sequence[NetworkError], *, with_power: bool = False) -> list[str]:
    s = network_summary(errors)
    names = "time_error_median", "time_error_mean", "energy_error_mean", *(["power_error_mean"] * with_power)
    return _score(where, split, len(errors), *map(s.get, names))
