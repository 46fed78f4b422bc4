"""Makes the tables of benchmarks/transformer.py from the results of its stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REMARKS = Path(__file__).with_name("transformer_notes.md")

HEAD = """# The transformer beside trees, physics and plain sums

Made by `benchmarks/transformer.py`; do not edit. Errors are absolute and relative, median / mean in per cent. Device
times are those of `device_rows`: neusight2025 on six GPUs, nicolai2025 on A30 and RTX 2080 Ti. "Trees and perceptron"
is `predictors/any-gpu.toml`, physics `predictors/roofline.toml`; all are fitted to the very same rows, on one thread.
"""
NAMES = {"transformer": "transformer", "both": "trees and perceptron", "physics": "physics"}


def markdown(work: Path) -> str:
    """The report as Markdown."""
    stages = {path.stem: json.loads(path.read_text()) for path in sorted(work.glob("*.json"))}
    parts = [HEAD]
    if "fold" in stages:
        parts.append(_fold(stages["fold"]))
    if "chips" in stages:
        networks = stages["chips"].pop("networks")
        parts += [_chip(chip, stage) for chip, stage in stages["chips"].items()]
        parts.append(_networks(networks))
    if "ablation" in stages:
        parts.append(_ablation(stages["ablation"]))
    parts.append(REMARKS.read_text())
    return "\n".join(parts)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def _errors(log_ratios: Any) -> Any:
    return np.abs(np.expm1(np.array(log_ratios, dtype=float)))


def _both(log_ratios: Any) -> str:
    errors = _errors(log_ratios)
    return f"{100 * np.median(errors):.2f} / {100 * errors.mean():.2f}"


def _operations(stage: Mapping[str, Any], column: int, what: str) -> str:
    rows = np.array(stage["rows"])
    columns = [np.array(stage["log_ratios"][recipe]) for recipe in NAMES]
    columns.append((columns[0] + columns[1]) / 2)  # The mean of the first two.
    groups = [("all", np.ones(len(rows), dtype=bool))]
    groups += [(name, rows[:, column] == name) for name in sorted(set(rows[:, column]))]
    return _table(
        [what, "times", *NAMES.values(), "mean of the first two"],
        [[name, str(mine.sum()), *(_both(column[mine]) for column in columns)] for name, mine in groups],
    )


def _relative(stage: Mapping[str, Any]) -> str:
    median, mean = (
        float(of(_errors(stage["log_ratios"]["transformer"])) / of(_errors(stage["log_ratios"]["both"])))
        for of in (np.median, np.mean)
    )
    return f"{100 * median:.0f} % and {100 * mean:.0f} %"


def _fits(stage: Mapping[str, Any]) -> str:
    seconds = ", ".join(f"{NAMES[name]} {value:.0f} s" for name, value in stage["seconds"].items())
    passes = f"{stage['epochs']} passes of the transformer"
    return f"{stage['train']} device times to learn from, {passes}; CPU time: {seconds}."


def _fold(stage: Mapping[str, Any]) -> str:
    return f"""
## Operations that were not seen

The second of ten folds over unique operations, because the transformer's settings were chosen on the first; all that
GPUs measured of an operation, in both modes and all precisions, lies in one fold. {_fits(stage)}
The transformer's error is {_relative(stage)} of that of trees and perceptron (median and mean).

{_operations(stage, 1, "kind")}
{_operations(stage, 0, "GPU")}"""


def _chip(chip: str, stage: Mapping[str, Any]) -> str:
    if not stage["rows"]:
        return f"\n## {chip} left out\n\nNo operations were measured on it. {_fits(stage)}\n"
    return f"""
## {chip} left out

All that was measured on GPUs with this chip was left out. {_fits(stage)}

{_operations(stage, 1, "kind")}
{_operations(stage, 0, "GPU")}"""


def _networks(rows: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        """
## Networks on chips that were left out

Operations learned without anything measured on a GPU with their chip. "Nothing known": no network of that chip was
learned from, either; "networks known": those of other names were. Time, energy, power: mean absolute error in per
cent. "Whole": device and host overlapped, with what was learned from networks; "sum": the loops of single operations
added up.
"""
    ]
    for known, title in (("nothing", "Nothing known of the chip"), ("networks", "Networks known of the chip")):
        mine = [row for row in rows if row["known"] == known]
        columns = [(name, how) for name in NAMES for how in ("whole", "sum")]
        groups = dict.fromkeys((row["gpu"], row["mode"], row["precision"]) for row in mine)
        lines = []
        for key in groups:
            of_group = [row for row in mine if (row["gpu"], row["mode"], row["precision"]) == key]
            lines.append([*key, *_cells(of_group, columns)])
        for mode in ("inference", "training"):
            lines.append(["all", mode, "", *_cells([row for row in mine if row["mode"] == mode], columns)])
        lines.append(["all", "", "", *_cells(mine, columns)])
        header = ["GPU", "mode", "precision", "measured", *(f"{NAMES[name]}, {how}" for name, how in columns)]
        parts.append(f"\n### {title}\n\n{_table(header, lines)}")
    return "".join(parts)


def _cells(rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str]]) -> list[str]:
    cells = [str(sum(row["recipe"] == "transformer" for row in rows))]
    for name, how in columns:
        errors = np.abs([row[how] for row in rows if row["recipe"] == name])
        cells.append(", ".join(f"{100 * value:.1f}" for value in errors.mean(axis=0)))
    return cells


def _ablation(stage: Mapping[str, Any]) -> str:
    kinds = np.array(stage["rows"])[:, 1]
    shown = ("matmul", "linear", "conv2d", "layer_norm")
    lines = []
    for name, variant in stage["variants"].items():
        log_ratios = np.array(variant["log_ratios"])
        cells = [_both(log_ratios[kinds == kind]) for kind in shown]
        lines.append([name, f"{variant['seconds']:.0f}", _both(log_ratios), *cells])
    return f"""
## Ablation

As in DeepPM, on the first fold, with {stage["settings"]["most_rows"]} device times and {stage["settings"]["epochs"]}
passes, so that errors are larger than above; one seed.

{_table(["variant", "seconds", "all", *shown], lines)}"""
