"""The outlook of Nicolai (2025), prediction on CPUs: errors on what was left out, from the card of an entry."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from joulecast.predictors.evaluation.left_out import FOLDS

LEAST_OPERATIONS = 10
"""Kinds of fewer operations are not listed."""


def section(entry: Path) -> str:
    """The text of the section.

    Args:
        entry: Folder of the zoo entry of a CPU.
    """
    card: dict[str, Any] = json.loads((entry / "card.json").read_text("utf-8"))
    operations, *kinds = [row for row in card["errors"] if row["split"] == FOLDS]
    time = operations["time"]
    times = {f"{each['network']} {each['input']} {each['precision']}": each["time"] for each in card["networks"]}
    errors = [abs(error) for error in times.values()]
    name, recipe = card["gpu"].removeprefix("CPU "), card["predictor"]
    lines = [
        "The outlook of the thesis is prediction on CPUs, so there is nothing to repeat. joulecast measured operations "
        f"of networks on a CPU ({name}, fp32, inference; `profiling/cpu.toml`), and learned their time with the recipe "
        f"`{recipe}`. A CPU runs one operation after the other, so the time of a network is the sum of its operations "
        "and of what passes between them.",
        "",
        card["splits"],
        "",
        "| left out | cases | time: median | mean | 90th percentile | R2 of the logarithm |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| operations, in folds | {operations['unique']} | {_percent(time['median'])} | {_percent(time['mean'])} | "
        f"{_percent(time['p90'])} | {time['r2_log']:.3f} |",
        f"| networks, by name | {len(errors)} | {_percent(median(errors))} | {_percent(mean(errors))} | "
        f"{_percent(float(np.quantile(errors, 0.9)))} | |",
        "",
        "| network left out | error of time |",
        "| --- | --- |",
        *(f"| {label} | {100 * error:+.1f} % |" for label, error in times.items()),
        "",
        f"| kind (from {LEAST_OPERATIONS} operations) | operations | time: median | mean |",
        "| --- | --- | --- | --- |",
        *(
            f"| {row['what']} | {row['count']} | {_percent(row['time']['median'])} | {_percent(row['time']['mean'])} |"
            for row in kinds
            if row["count"] >= LEAST_OPERATIONS
        ),
        "",
        "What limits these numbers:",
        "",
        *(f"- {limit}" for limit in card["limits"]),
    ]
    return "\n".join(lines)


def _percent(error: float) -> str:
    return f"{100 * error:.1f} %"
