"""Model cards as Markdown, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
            f"{e['power_r2']:.3f} | {_percent(e['power_median'])} | {_percent(e['power_mean'])} |"
        )
    return lines


def _network_table(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = ["| network | time error | energy error |", "| --- | --- | --- |"]
    return lines + [f"| {network} | {_percent(e['time'])} | {_percent(e['energy'])} |" for network, e in errors.items()]


def markdown(card: Mapping[str, Any]) -> str:
    """Render a card (as a dictionary) as Markdown."""
    data = card["data"]
    lines = [
        f"# {card['name']}",
        "",
        f"Predicts time and power of operations and networks in {card['mode']} on {card['gpu']}, "
        f"precision {' or '.join(card['precisions'])}. Made {card['created']}, licence {card['licence']}.",
        "",
        "## Data",
        "",
        f"- Source: {data['source']}",
        f"- Licence of the data: {data['licence']} (what is trained from it ships, the data does not)",
        f"- Sensor: {data['sensor']}",
        f"- Measured: {data['measured'][0]} to {data['measured'][1]}, default clock",
        f"- sha256 of the dataset's card: `{data['sha256']}`",
        *(f"- Remark: {limit}" for limit in data["limits"]),
        "",
        "## Errors",
        "",
        card["splits"],
        "",
        *(_operation_table(card["operation_errors"]) if card["operation_errors"] else ["Too few operations to tell."]),
        "",
        *(
            _network_table(card["network_errors"])
            if card["network_errors"]
            else ["No network was measured on this GPU."]
        ),
        "",
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
