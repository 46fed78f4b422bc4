"""Tables of benchmarks/transformer.py, from what its stages wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REMARKS = Path(__file__).with_name("transformer") / "remarks.md"

HEAD = """# The transformer beside XGBoost, physics and plain sums

Written by `benchmarks/transformer.py`; the commands are at the end. Errors are absolute and relative, median / mean in
per cent. Device times are those of `boosting.device_rows`: neusight2025 on six GPUs, nicolai2025 on A30 and RTX 2080
Ti. XGBoost is `fit_any_gpu` with the recipe's defaults, fitted to the very same rows. Both ran on one thread of a
shared machine.
"""


def markdown(work: Path) -> str:
    """The report."""
    stages = {path.stem: json.loads(path.read_text()) for path in sorted(work.glob("*.json"))}
    parts = [HEAD]
    folds = {name: stage for name, stage in stages.items() if name.startswith("fold")}
    if folds:
        parts.append(_folds(folds))
    for name, stage in stages.items():
        if name.startswith("out"):
            parts.append(_left_out(name, stage))
    if "networks" in stages:
        parts += [_networks(stages["networks"]), _names(stages["networks"])]
    if "ablation" in stages:
        parts.append(_ablation(stages["ablation"]))
    parts.append(REMARKS.read_text())
    return "\n".join(parts)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def _both(errors: Any) -> str:
    absolute = np.abs(np.array(errors, dtype=float))
    return f"{100 * np.median(absolute):.2f} / {100 * absolute.mean():.2f}"


def _joined(stages: Iterable[dict[str, Any]], which: str) -> np.ndarray:
    return np.concatenate([np.array(stage[which]) for stage in stages])


def _relative(one: np.ndarray, other: np.ndarray) -> str:
    ratios = [np.median(np.abs(one)) / np.median(np.abs(other)), np.abs(one).mean() / np.abs(other).mean()]
    return " / ".join(f"{100 * (ratio - 1):+.0f} %" for ratio in ratios)


def _comparison(stages: Sequence[dict[str, Any]], column: int, what: str) -> str:
    rows, mine, theirs = (_joined(stages, which) for which in ("rows", "transformer", "trees"))
    groups = [("all", np.ones(len(rows), dtype=bool))]
    groups += [(name, rows[:, column] == name) for name in sorted(set(rows[:, column]))]
    return _table(
        [what, "times", "transformer", "XGBoost", "transformer against XGBoost"],
        [
            [
                name,
                str(chosen.sum()),
                _both(mine[chosen]),
                _both(theirs[chosen]),
                _relative(mine[chosen], theirs[chosen]),
            ]
            for name, chosen in groups
        ],
    )


def _folds(folds: dict[str, dict[str, Any]]) -> str:
    stages = list(folds.values())
    mine, theirs = ([error for stage in stages for error in stage["power"][which]] for which in (0, 1))
    seconds = np.mean([stage["seconds"] for stage in stages], axis=0)
    return f"""
## Operations that were not seen

Ten folds over unique operations; all that GPUs measured of an operation lies in one fold. Measured: {", ".join(folds)}
(each fit takes {seconds[0]:.0f} s, XGBoost {seconds[1]:.0f} s; {stages[0]["train"]} device times).

{_comparison(stages, 1, "kind")}
{_comparison(stages, 0, "GPU")}
Power while it runs (A30, RTX 2080 Ti; {len(mine)} operations, most at the cap): transformer {_both(mine)}, XGBoost's
device time with the energies that the transformer starts from {_both(theirs)}.
"""


def _left_out(name: str, stage: dict[str, Any]) -> str:
    names = ", ".join(sorted({row[0] for row in stage["rows"]}))
    return f"""
## {names} left out

Nothing of {names} was learned from ({stage["train"]} device times of other GPUs were; stage {name}).

{_comparison([stage], 1, "kind")}"""


def _summary(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    return [
        " ".join(f"{100 * np.abs([row[name][quantity] for row in rows]).mean():.1f}" for quantity in (0, 1))
        for name in names
    ]


def _network_table(rows: Sequence[dict[str, Any]], names: dict[str, str], by: Sequence[str]) -> str:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    lines = [[*key, str(len(found)), *_summary(found, list(names))] for key, found in sorted(groups.items())]
    lines.append(["all", *[""] * (len(by) - 1), str(len(rows)), *_summary(rows, list(names))])
    return _table([*by, "measured", *names.values()], lines)


def _networks(stage: dict[str, Any]) -> str:
    names = {
        "whole": "transformer, whole",
        "overlap": "transformer, overlap",
        "sum": "transformer, plain sum",
        "trees overlap": "XGBoost, overlap",
        "trees sum": "XGBoost, plain sum",
    }
    return f"""
## Networks of GPUs whose networks were left out

Networks were learned from the A30 only, operations as in fold-0. Mean absolute error of time and of energy, per cent.
"whole" reads the network as one sequence; "overlap" is max(device, host) plus static energy, without anything learned
from networks; "plain sum" adds the times and energies of the loops of single operations.

{_network_table(stage["networks"], names, ("gpu", "mode"))}
{_network_table(stage["networks"], names, ("gpu", "network", "precision"))}"""


def _names(stage: dict[str, Any]) -> str:
    names = {"whole": "transformer, whole", "overlap": "transformer, overlap", "sum": "transformer, plain sum"}
    return f"""
## Networks whose name was left out

The same operations; each network is corrected by a head that has seen networks of other names only, on all GPUs. Its
operations may have been seen, so that what differs between the columns is the composition.

{_network_table(stage["names"], names, ("gpu", "mode"))}"""


def _ablation(stage: dict[str, Any]) -> str:
    rows = np.array(stage["rows"])
    lines = []
    for name, variant in stage["variants"].items():
        time = np.array(variant["errors"])
        kinds = [_both(time[rows[:, 1] == kind]) for kind in ("matmul", "linear", "conv2d", "layer_norm")]
        lines.append(
            [name, f"{variant['seconds']:.0f}", _both(time), *kinds, *_summary(variant["networks"], ["whole"])]
        )
    return f"""
## Ablation

Fold 0, with {stage["settings"]["most_rows"]} device times and {stage["settings"]["epochs"]} passes instead of all and
{_full_epochs()}, so that errors are larger than above; one seed. Networks: as above, A30's learned from, others
predicted, mean error of time and energy.

{_table(["variant", "seconds", "operations", "matmul", "linear", "conv2d", "layer_norm", "networks"], lines)}"""


def _full_epochs() -> int:
    from joulecast.predictors.transformer_recipe import TransformerRecipe

    return TransformerRecipe().epochs
