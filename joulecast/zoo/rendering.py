"""Writes model cards as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..predictors.evaluation.cpu import CpuValidation


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _operation_table(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = [
        "| campaign | operations | time R2 | time median | time mean | power R2 | power median | power mean |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for campaign, e in errors.items():
        lines.append(
            f"| {campaign} | {e['unique_operations']:.0f} | "
            f"{e['time_r2']:.3f} | {_percent(e['time_median'])} | {_percent(e['time_mean'])} | "
            + (
                f"{e['power_r2']:.3f} | {_percent(e['power_median'])} | {_percent(e['power_mean'])} |"
                if "power_r2" in e
                else "- | - | - |"
            )
        )
    return lines


def _kind_tables(campaigns: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    lines = []
    for campaign, kinds in campaigns.items():
        lines += [f"### By kind: {campaign}", "", "Median and mean absolute error.", ""]
        lines += ["| kind | measurements | time | power |", "| --- | --- | --- | --- |"]
        for kind, e in kinds.items():
            power = f"{_percent(e['power_median'])}, {_percent(e['power_mean'])}" if "power_mean" in e else "-"
            time = f"{_percent(e['time_median'])}, {_percent(e['time_mean'])}"
            lines.append(f"| {kind} | {e['count']:.0f} | {time} | {power} |")
        lines.append("")
    return lines


def _network_table(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = ["| network | time error | energy error |", "| --- | --- | --- |"]
    return lines + [
        f"| {network} | {_percent(e['time'])} | {_percent(e['energy']) if 'energy' in e else '-'} |"
        for network, e in errors.items()
    ]


def _quantities(card: Mapping[str, Any]) -> str:
    errors = card["operation_errors"].values()
    return "time" if errors and not any("power_r2" in each for each in errors) else "time and power"


def markdown(card: Mapping[str, Any]) -> str:
    """Render any card, given as a dictionary, as Markdown. Rows are sorted by name, as they are in card.json."""
    card = _sorted(card)
    if "kernels" in card:
        return kernels_markdown(card)
    return own_markdown(card) if "gpu" in card else any_gpu_markdown(card)


def _sorted(value: Any) -> Any:
    """A value with the keys of all its dictionaries in alphabetical order."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list | tuple) else value


def own_markdown(card: Mapping[str, Any]) -> str:
    """Render the card of a GPU's own predictor, given as a dictionary, as Markdown."""
    data = card["data"]
    lines = [
        f"# {card['name']}",
        "",
        f"Predicts {_quantities(card)} of operations and networks in {card['mode']} on {card['gpu']}, "
        f"precision {' or '.join(card['precisions'])}. Made {card['created']}, licence {card['licence']}.",
        "",
        "## Data",
        "",
        f"- Source: {data['source']}",
        f"- Licence of the data: {data['licence']} (only what was trained from the data is shipped, not the data)",
        f"- Sensor: {data['sensor']}",
        f"- Measured: {data['measured'][0]} to {data['measured'][1]}, default clock",
        f"- sha256 of the dataset's card: `{data['sha256']}`",
        *(f"- Remark: {limit}" for limit in data["limits"]),
        "",
        "## Errors",
        "",
        card["splits"],
        "",
        *(
            _operation_table(card["operation_errors"])
            if card["operation_errors"]
            else ["Too few operations for errors."]
        ),
        "",
        *(
            _network_table(card["network_errors"])
            if card["network_errors"]
            else ["No network was measured on this device."]
        ),
        "",
        *_kind_tables(card.get("kind_errors", {})),
        "## Limits",
        "",
        *(f"- {limit}" for limit in card["limits"]),
        "",
        "## Recipe",
        "",
        f"{card['predictor']}: " + ", ".join(f"{name} = {value}" for name, value in card["recipe"].items()),
        "",
    ]
    return "\n".join(lines)


def cpu_errors(validation: CpuValidation) -> list[str]:
    """Tables of errors on a CPU, as lines of Markdown."""
    networks = {each.label: each.errors for each in validation.networks}
    return [
        *_operation_table({"operations in folds": validation.operations.summary()}),
        "",
        *(_network_table(networks) if networks else ["No network was measured on this device."]),
        "",
        *_kind_tables({"operations in folds": validation.operations.by_kind()}),
    ]


def any_gpu_markdown(card: Mapping[str, Any]) -> str:
    """Render the card of a predictor for any GPU, given as a dictionary, as Markdown."""
    lines = [
        f"# {card['name']}",
        "",
        "Predicts time and power of operations and networks, in inference and training, on any GPU with a data sheet "
        f"and at any clock. Made {card['created']}, licence {card['licence']}.",
        "",
        "## Data",
        "",
        "| GPU | clock | operations | networks | source | licence of the data |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_dataset_row(data) for data in card["data"]),
        "",
        "## Errors",
        "",
        card["splits"],
        "",
    ]
    lines += any_gpu_errors(card["network_errors"], card["operation_errors"])
    lines += ["", "## Limits", "", *(f"- {limit}" for limit in card["limits"])]
    recipe = ", ".join(f"{name} = {value}" for name, value in card["recipe"].items())
    return "\n".join([*lines, "", "## Recipe", "", f"{card['predictor']}: {recipe}", ""])


def kernels_markdown(card: Mapping[str, Any]) -> str:
    """Render the card of device times of kernels, given as a dictionary, as Markdown."""
    lines = [
        f"# {card['name']}",
        "",
        "Predicts device times and power of kernels in half precision and below. The predictors for any GPU use it for "
        f"these operations, and predict all others themselves. Made {card['created']}, licence {card['licence']}.",
        "",
        "## Data",
        "",
        "| GPU | operations | source | licence of the data |",
        "| --- | --- | --- | --- |",
        *(f"| {data['gpu']} | {data['operations']} | {data['source']} | {data['licence']} |" for data in card["data"]),
        "",
        "## Errors of device time",
        "",
        card["splits"],
        "",
        *_kernel_errors(card["errors"]),
        "",
        "Share of operations within their 90 % interval. If sizes were left out, the intervals were made from half of "
        "them and tested on the other half. If GPUs or generations were left out, the intervals of each were made from "
        "the errors on the others.",
        "",
        "| kernels | left out | within |",
        "| --- | --- | --- |",
    ]
    for names, shares in card["coverage"].items():
        lines += [f"| {names} | {basis} | {_percent(share)} |" for basis, share in shares.items()]
    if card["power_errors"]:
        lines += [
            "",
            "## Errors of power",
            "",
            "Errors on calls that were long enough for a power reading, with the same splits.",
        ]
        lines += ["", *_kernel_errors(card["power_errors"])]
    if card["network_factors"]:
        factors = card["network_factors"]
        lines += [
            "",
            "Inside networks, products whose data fit into the L2 cache take "
            f"{factors['products']:g} times as long as in loops. "
            f"A multiprocessor loads an element of other operations in half precision in {factors['cycles']:g} cycles. "
            f"Networks on these chips showed it: {', '.join(factors['chips'])}.",
        ]
    if card.get("network_errors"):
        lines += ["", "### Networks in half precision", "", *_network_log_errors(card["network_errors"])]
    recipe = ", ".join(f"{name} = {value}" for name, value in card["recipe"].items())
    return "\n".join(
        [*lines, "", "## Limits", "", *(f"- {limit}" for limit in card["limits"]), "", "## Recipe", "", recipe, ""]
    )


def _network_log_errors(errors: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """A table of errors on networks, by whether the factor came from networks of other names or from other chips."""
    rows = []
    for basis, quantities in errors.items():
        cells = [_percent(mean(map(math.expm1, quantities[name]))) for name in ("time", "energy", "power")]
        rows.append(f"| {basis} | {len(quantities['time'])} | {' | '.join(cells)} |")
    return [
        "Mean absolute errors if the factor is learned from networks of other names, or from other chips.",
        "",
        "| factor from | measured | time | energy | power |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]


def _kernel_errors(errors: Mapping[str, Mapping[str, tuple[int, float, float]]]) -> list[str]:
    return [
        "| kernels | left out | operations | median | mean |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {names} | {split} | {count} | {_percent(middle)} | {_percent(average)} |"
            for names, rows in errors.items()
            for split, (count, middle, average) in rows.items()
        ),
    ]


def any_gpu_errors(
    networks: Mapping[str, Mapping[str, Mapping[str, float]]],
    operations: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]],
) -> list[str]:
    """Tables of errors from the card of a predictor for any GPU, as lines of Markdown."""
    lines = []
    for known, errors in networks.items():
        if errors:
            lines += [
                f"### Networks, {known} known of their chip",
                "",
                "| GPU and mode | measured | time: mean, median | energy | power |",
                "| --- | --- | --- | --- | --- |",
                *_gpus_left_out(errors),
                "",
                "| GPU | network | measured | time: mean, bias | energy | power |",
                "| --- | --- | --- | --- | --- | --- |",
                *_networks_of_any_gpu(errors),
                "",
            ]
    for split, gpus in operations.items():
        if gpus:
            lines += ["", f"### Device time of operations: {split}", "", "Median and mean absolute error.", ""]
            lines += ["| GPU | " + "kind and mode: median, mean |", "| --- | --- |"]
            for gpu, kinds in gpus.items():
                shown = (f"{kind} {_percent(median)}, {_percent(mean)}" for kind, (median, mean) in kinds.items())
                lines.append(f"| {gpu} | {'; '.join(shown)} |")
    return lines


def _dataset_row(data: Mapping[str, Any]) -> str:
    clock = "default" if data["clock_mhz"] is None else f"{data['clock_mhz']:g} MHz"
    cells = (data["gpu"], clock, data["operations"], data["networks"], data["source"], data["licence"])
    return "| " + " | ".join(map(str, cells)) + " |"


def _networks_of_any_gpu(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Rows of a table: errors by GPU, network, precision and mode, over all shapes and clocks."""
    groups: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for label, e in errors.items():
        gpu, rest = label.split(": ", 1)
        name, _, precision, mode = rest.split(" at ")[0].split(" ")
        groups.setdefault((gpu, f"{name} {precision} {mode}"), []).append(e)
    rows = []
    for (gpu, network), group in groups.items():
        cells = [gpu, network, str(len(group))]
        for quantity in ("time", "energy", "power"):
            values = [e[quantity] for e in group]
            cells.append(f"{_percent(mean(map(abs, values)))}, {100 * mean(values):+.1f} %")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _gpus_left_out(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Rows of a table: errors by GPU and mode, over all networks."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for label, e in errors.items():
        gpu, rest = label.split(": ", 1)
        groups.setdefault(f"{gpu}, {rest.split(' at ')[0].split(' ')[3]}", []).append(e)
    rows = []
    for name, group in groups.items():
        cells = [name, str(len(group))]
        for quantity in ("time", "energy", "power"):
            values = [abs(e[quantity]) for e in group]
            cells.append(f"{_percent(mean(values))}, {_percent(median(values))}")
        rows.append("| " + " | ".join(cells) + " |")
    return rows
