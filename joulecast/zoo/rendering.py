"""Writes model cards as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..predictors.evaluation.one_gpu import Validation

_QUANTITIES = ("time", "energy", "power")

Table = Mapping[str, Mapping[str, float]]
"""Name of a row -> quantity -> error."""


def markdown(card: Mapping[str, Any]) -> str:
    """Render any card, given as a dictionary, as Markdown. Rows are sorted by name, as they are in card.json."""
    card = json.loads(json.dumps(card, sort_keys=True))
    render = _kernels if "kernels" in card else _own if "gpu" in card else _any_gpu
    promise, data, errors = render(card)
    recipe = ", ".join(f"{name} = {value}" for name, value in card["recipe"].items())
    predictor = f"{card['predictor']}: " if "predictor" in card else ""
    lines = [
        f"# {card['name']}",
        "",
        f"{promise} Made {card['created']}, licence {card['licence']}.",
        "",
        "## Data",
        "",
    ]
    lines += [*data, "", *errors, "## Limits", "", *(f"- {limit}" for limit in card["limits"]), "", "## Recipe", ""]
    return "\n".join([*lines, predictor + recipe, ""])


def _own(card: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    """What a predictor of one GPU or CPU promises, its data and its errors, as lines of Markdown."""
    data, operations = card["data"], card["operation_errors"]
    quantities = "time and power" if not operations or any("power_r2" in e for e in operations.values()) else "time"
    promise = (
        f"Predicts {quantities} of operations and networks in {card['mode']} on {card['gpu']}, "
        f"precision {' or '.join(card['precisions'])}."
    )
    described = [
        f"- Source: {data['source']}",
        f"- Licence of the data: {data['licence']} (only what was trained from the data is shipped, not the data)",
        f"- Sensor: {data['sensor']}",
        f"- Measured: {data['measured'][0]} to {data['measured'][1]}, default clock",
        f"- sha256 of the dataset's card: `{data['sha256']}`",
        *(f"- Remark: {limit}" for limit in data["limits"]),
    ]
    tables = _own_errors(operations, card["network_errors"], card.get("kind_errors", {}))
    return promise, described, ["## Errors", "", card["splits"], "", *tables]


def _own_errors(operations: Table, networks: Table, kinds: Mapping[str, Table]) -> list[str]:
    """Tables of errors on one GPU or CPU: of operations by campaign, of networks, and of kinds by campaign."""
    rows = []
    for campaign, e in operations.items():
        row = [campaign, f"{e['unique_operations']:.0f}"]
        for quantity in ("time", "power"):
            tested = f"{quantity}_r2" in e
            row.append(f"{e[f'{quantity}_r2']:.3f}" if tested else "-")
            row += [_percent(e[f"{quantity}_{name}"]) if tested else "-" for name in ("median", "mean")]
        rows.append(row)
    columns = "campaign | operations | time R2 | time median | time mean | power R2 | power median | power mean"
    lines = [*(_table(columns, rows) if operations else ["Too few operations for errors."]), ""]
    rows = [
        [name, _percent(e["time"]), _percent(e["energy"]) if "energy" in e else "-"] for name, e in networks.items()
    ]
    no_network = ["No network was measured on this device."]
    lines += [*(_table("network | time error | energy error", rows) if rows else no_network), ""]
    for campaign, by_kind in kinds.items():
        rows = []
        for kind, e in by_kind.items():
            power = f"{_percent(e['power_median'])}, {_percent(e['power_mean'])}" if "power_mean" in e else "-"
            rows.append([kind, f"{e['count']:.0f}", f"{_percent(e['time_median'])}, {_percent(e['time_mean'])}", power])
        lines += [f"### By kind: {campaign}", "", "Median and mean absolute error.", ""]
        lines += [*_table("kind | measurements | time | power", rows), ""]
    return lines


def cpu_errors(validation: Validation) -> list[str]:
    """Tables of errors on a CPU, as lines of Markdown."""
    (errors,), split = validation.operations, "operations in folds"
    networks = {each.label: each.errors for each in validation.networks}
    return _own_errors({split: errors.summary()}, networks, {split: errors.by_kind()})


def _any_gpu(card: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    """What a predictor for any GPU promises, its data and its errors, as lines of Markdown."""
    rows = []
    for data in card["data"]:
        clock = "default" if data["clock_mhz"] is None else f"{data['clock_mhz']:g} MHz"
        rows.append([data["gpu"], clock, *(data[name] for name in ("operations", "networks", "source", "licence"))])
    return (
        "Predicts time and power of operations and networks, in inference and training, on any GPU with a data sheet "
        "and at any clock.",
        _table("GPU | clock | operations | networks | source | licence of the data", rows),
        ["## Errors", "", card["splits"], "", *any_gpu_errors(card["network_errors"], card["operation_errors"]), ""],
    )


def _kernels(card: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    """What the entry of device times of kernels promises, its data and its errors, as lines of Markdown."""
    data = [[each[name] for name in ("gpu", "operations", "source", "licence")] for each in card["data"]]
    covered = [[n, basis, _percent(share)] for n, shares in card["coverage"].items() for basis, share in shares.items()]
    errors = ["## Errors of device time", "", card["splits"], "", *_kernel_errors(card["errors"]), ""]
    errors += [
        "Share of operations within their 90 % interval. If sizes were left out, the intervals were made from half of "
        "them and tested on the other half. If GPUs or generations were left out, the intervals of each were made from "
        "the errors on the others.",
        "",
        *_table("kernels | left out | within", covered),
    ]
    if card["power_errors"]:
        said = "Errors on calls that were long enough for a power reading, with the same splits."
        errors += ["", "## Errors of power", "", said, "", *_kernel_errors(card["power_errors"])]
    if factors := card["network_factors"]:
        errors += [
            "",
            "Inside networks, products whose data fit into the L2 cache take "
            f"{factors['products']:g} times as long as in loops. "
            f"A multiprocessor loads an element of other operations in half precision in {factors['cycles']:g} cycles. "
            f"Networks on these chips showed it: {', '.join(factors['chips'])}.",
        ]
    if card.get("network_errors"):
        rows = [
            [basis, len(e["time"]), *(_percent(mean(map(math.expm1, e[quantity]))) for quantity in _QUANTITIES)]
            for basis, e in card["network_errors"].items()
        ]
        said = "Mean absolute errors if the factor is learned from networks of other names, or from other chips."
        errors += ["", "### Networks in half precision", "", said, ""]
        errors += _table("factor from | measured | time | energy | power", rows)
    return (
        "Predicts device times and power of kernels in half precision and below. The predictors for any GPU use it for "
        "these operations, and predict all others themselves.",
        _table("GPU | operations | source | licence of the data", data),
        [*errors, ""],
    )


def any_gpu_errors(
    networks: Mapping[str, Table],
    operations: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]],
) -> list[str]:
    """Tables of errors from the card of a predictor for any GPU, as lines of Markdown."""
    lines = []
    for what, errors in networks.items():
        if errors:
            lines += [f"### Networks, {what} known of their chip", ""]
            lines += _by_group(
                errors,
                "GPU and mode | measured | time: mean, median | energy | power",
                (0, 4),
                lambda values: f"{_percent(mean(map(abs, values)))}, {_percent(median(map(abs, values)))}",
            )
            lines.append("")
            lines += _by_group(
                errors,
                "GPU | network | measured | time: mean, bias | energy | power",
                (0, 1, 3, 4),
                lambda values: f"{_percent(mean(map(abs, values)))}, {100 * mean(values):+.1f} %",
            )
            lines.append("")
    for split, gpus in operations.items():
        if gpus:
            lines += ["", f"### Device time of operations: {split}", "", "Median and mean absolute error.", ""]
            shown = {
                gpu: "; ".join(
                    f"{kind} {_percent(middle)}, {_percent(average)}" for kind, (middle, average) in e.items()
                )
                for gpu, e in gpus.items()
            }
            lines += _table("GPU | kind and mode: median, mean", shown.items())
    return lines


def _table(columns: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """A table as lines of Markdown."""
    lines = [columns, " | ".join("---" for _ in columns.split(" | ")), *(" | ".join(map(str, row)) for row in rows)]
    return [f"| {line} |" for line in lines]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _kernel_errors(errors: Mapping[str, Mapping[str, tuple[int, float, float]]]) -> list[str]:
    return _table(
        "kernels | left out | operations | median | mean",
        (
            [names, split, count, _percent(middle), _percent(average)]
            for names, rows in errors.items()
            for split, (count, middle, average) in rows.items()
        ),
    )


def _by_group(errors: Table, named: str, parts: Sequence[int], cell: Callable[[list[float]], str]) -> list[str]:
    """A table of errors by some parts of their labels, which are "GPU: network shape precision mode at clock".

    `named` are the titles of the columns, and `cell` is what the table says of the errors of a group.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, float]]] = {}
    for label, e in errors.items():
        gpu, rest = label.split(": ", 1)
        words = (gpu, *rest.split(" at ")[0].split(" "))
        groups.setdefault(tuple(words[part] for part in parts), []).append(e)
    rows = []
    for group, mine in groups.items():
        first = [", ".join(group)] if len(group) == 2 else [group[0], " ".join(group[1:])]
        rows.append([*first, len(mine), *(cell([e[quantity] for e in mine]) for quantity in _QUANTITIES)])
    return _table(named, rows)
