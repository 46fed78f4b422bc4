"""Cards and reports of evaluations as Markdown, both from the rows of a table of errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..predictors.evaluation.errors import Errors, Row, Validation
    from ..predictors.recipes import Recipe

_QUANTITIES = ("time", "power", "energy", "edp")
_STATISTICS = {"median": "{:.1f}", "mean": "{:.1f}", "p90": "{:.1f}", "bias": "{:+.1f}"}
"""Statistic -> how it is written, in percent."""
_R2 = {"r2": "R2 of {}", "r2_log": "R2 of log {}"}


def markdown(card: Mapping[str, Any]) -> str:
    """Render any card, given as a dictionary, as Markdown."""
    card = json.loads(json.dumps(card, sort_keys=True))
    recipe = ", ".join(f"{name} = {value}" for name, value in card["recipe"].items())
    lines = [f"# {card['name']}", "", f"{card['promise']} Made {card['created']}, licence {card['licence']}.", ""]
    lines += ["## Data", "", *_data(card["data"]), "", "## Errors", "", card["splits"], "", _READ, ""]
    lines += [*error_tables(card["errors"]), *_intervals(card["coverage"])]
    lines += ["## Limits", "", *(f"- {limit}" for limit in card["limits"]), "", "## Recipe", ""]
    return "\n".join([*lines, f"{card['predictor']}: {recipe}", ""])


_READ = (
    "Errors are relative, in percent: median, mean and 90th percentile of their absolute values, and their mean, the "
    "bias. On networks power, too, is that of the whole network. The card in JSON has the errors on each network."
)


def _data(data: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for one in data:
        clock = "default" if one["clock_mhz"] is None else f"{one['clock_mhz']:g} MHz"
        rows.append(
            [one["gpu"], clock, *(one[name] for name in ("operations", "networks", "source", "licence", "sensor"))]
        )
    lines = table(["device", "clock", "operations", "networks", "source", "licence of the data", "sensor"], rows)
    for one in data:
        if "measured" in one:
            measured = f"Measured {' to '.join(one['measured'])}; sha256 of the dataset's card: `{one['sha256']}`."
            said = "Only what was trained from the data is shipped, not the data."
            lines += [
                "",
                f"{measured} {said}",
                *([""] if one["limits"] else []),
                *(f"- {text}" for text in one["limits"]),
            ]
    return lines


def error_tables(rows: Iterable[Row]) -> list[str]:
    """A table for each split, with a line for each row of the errors."""
    splits: dict[str, list[Row]] = {}
    for row in rows:
        splits.setdefault(row["split"], []).append(row)
    lines = []
    for split, mine in splits.items():
        quantities = [name for name in _QUANTITIES if any(name in row for row in mine)]
        shown = {
            name: [each for each in (*_STATISTICS, *_R2) if any(each in row.get(name, {}) for row in mine)]
            for name in quantities
        }
        header = ["where", "what", "count"]
        for name, statistics in shown.items():
            header.append(f"{name}: {', '.join(each for each in statistics if each in _STATISTICS)}")
            header += [_R2[each].format(name) for each in statistics if each in _R2]
        cells = []
        for row in mine:
            line = [row["where"], row["what"], row.get("count", "-")]
            for name, statistics in shown.items():
                found = row.get(name, {})
                percent = [_STATISTICS[s].format(100 * found[s]) for s in statistics if s in _STATISTICS and s in found]
                line.append(", ".join(percent) or "-")
                line += [f"{found[each]:.3f}" if each in found else "-" for each in statistics if each in _R2]
            cells.append(line)
        lines += [f"### {split[:1].upper()}{split[1:]}", "", *table(header, cells), ""]
    return lines


def _percents(values: Mapping[str, float]) -> str:
    return (
        ", ".join(f"{100 * values[name]:.1f}" for name in _QUANTITIES if not np.isnan(values.get(name, np.nan))) or "-"
    )


def table(header: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """A table as lines of Markdown."""
    return [f"| {' | '.join(map(str, cells))} |" for cells in (header, ["---"] * len(header), *rows)]


def report(
    title: str, splits: str, recipe: Recipe, validations: Iterable[Validation], *, command: str, remarks: str = ""
) -> str:
    """A report of validations as Markdown.

    Args:
        splits: What was left out, and what the tables say about it.
        remarks: Markdown that follows the introduction, such as what limits the errors.
    """
    settings = ", ".join(f"{name} = {value}" for name, value in recipe.to_dict().items())
    lines = [f"# {title}", "", f"Made by `{command}`; do not edit. Recipe: {settings}.", ""]
    lines += [f"**Splits.** {splits} {_READ}", "", *([remarks.strip(), ""] if remarks else [])]
    for validation in validations:
        lines += [f"## {validation.title}", "", *error_tables([*validation.rows(), *_by_bound(validation.networks)])]
        lines += [*_each_network(validation.networks), *_intervals([asdict(row) for row in validation.coverage])]
    return "\n".join(lines)


def _by_bound(networks: Errors) -> list[Row]:
    """Errors on all networks that wait for their host, and on all others, where that was predicted."""
    if "host_s" not in networks.columns:
        return []
    waits = networks["host_s"] > networks["device_s"]
    return [
        part.row(f"{split}: host-bound and GPU-bound", what=bound)
        for split, mine in networks.groups("split")
        for bound, chosen in (("host-bound", waits), ("GPU-bound", ~waits))
        if len(part := networks.where(chosen & (networks["split"] == split)))
    ]


def _each_network(networks: Errors) -> list[str]:
    """A table of each network, with what was measured and predicted, where its parts were predicted."""
    if "host_s" not in networks.columns:
        return []
    header = ["network", "input", "precision", "measured ms", "predicted ms", "time error %", "measured J"]
    header += ["predicted J", "energy error %", "device / host ms", "time in kinds never measured %"]
    header.append("operations left out")
    lines = []
    for split, mine in networks.groups("split"):
        columns: list[Iterable[object]] = [mine[name] for name in ("network", "input", "precision")]
        for quantity, scale in (("time", 1e3), ("energy", 1.0)):
            measured, predicted = mine.measured[quantity], mine.predicted[quantity]
            columns += [_texts("{:.4g}", scale * measured), _texts("{:.4g}", scale * predicted)]
            columns.append(_texts("{:+.1f}", 100 * (predicted / measured - 1)))
        device, host = (_texts("{:.2f}", 1e3 * mine[name]) for name in ("device_s", "host_s"))
        columns.append([f"{one} / {other}" for one, other in zip(device, host, strict=True)])
        columns += [_texts("{:.1f}", 100 * mine["unmeasured_share"]), mine["left_out"]]
        lines += [f"### Each of {split}", "", *table(header, zip(*columns, strict=True)), ""]
    return lines


def _texts(form: str, values: Iterable[float]) -> list[str]:
    return [form.format(value) for value in values]


def _intervals(coverage: Sequence[Mapping[str, Any]]) -> list[str]:
    """What lies within intervals, and what chance allows."""
    if not coverage:
        return []
    from ..predictors.evaluation.calibrating import LEVEL, chance_range

    rows, shares = [], []
    for row in coverage:
        counts = chance = "-"
        if count := max(row["unique"].values(), default=0):
            low, high = chance_range(count, LEVEL)
            counts, chance = f"{count} ({row['cases']})", f"{100 * low:.1f} to {100 * high:.1f}"
        rows.append([row["split"], row["group"], counts, _percents(row["within"]), _percents(row["width"]), chance])
        known = [(row["within"][name], unique) for name, unique in row["unique"].items() if unique]
        shares += [(share, *chance_range(unique, LEVEL)) for share, unique in known]
    exact = sum(0.88 <= share <= 0.92 for share, _, _ in shares)
    less, more = sum(share < low for share, low, _ in shares), sum(share > high for share, _, high in shares)
    names = ", ".join(_QUANTITIES)
    header = ["split", "group", "operations or networks (measurements)", f"within: {names} %"]
    header += [f"median half width: {names} %", "chance allows %"]
    said = (
        "90 % intervals, and how many cases lie within; each was made without the case: operations of a GPU from the "
        "errors on four fifths of its operations, networks from the errors on networks of other names, kernels from "
        "half of the sizes, or from the errors on other GPUs. The measurements of an operation count as one case."
    )
    if shares:
        said += (
            " Of so few cases, right intervals cover what the last column says, 19 times out of 20. "
            f"Of {len(shares)} shares, {exact} lie between 88 and 92 %, {len(shares) - less - more} within what chance "
            f"allows; {less} are below that, {more} above."
        )
    return ["### Intervals", "", said, "", *table(header, rows), ""]
