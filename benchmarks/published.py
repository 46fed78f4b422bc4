"""Compares the published tables for A30 and RTX 2080 Ti with ours: random forest and XGBoost on raw sizes, two splits.

    python benchmarks/published.py [--data build/datasets] [--recipe predictors/blend.toml]

Nicolai (Heidelberg 2025) trained both on kind, attributes and input shape, and reports R2 on rows drawn at random: a
test set and 15 folds. His campaigns measure many operations several times, so that rows that are tested have twins in
training. The same models are tested here on operations that they have not seen, too, where ours stand.
Writes benchmarks/published/TABLE.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from joulecast.datasets import Dataset, Measurement, load
from joulecast.predictors.evaluation.metrics import r2
from joulecast.predictors.evaluation.operations import cross_validate
from joulecast.predictors.fitting.recipes import load_recipe
from joulecast.predictors.measured.splits import fold_of

FOLDS = 15
TEST_SHARE = 0.2
CAMPAIGNS = (
    ("a30", "inference", "A30_operations_bench_run"),
    ("a30", "inference", "finalbench_all_operations_A30/"),
    ("a30", "training", "operations_A30_train/4685fb9e76"),
    ("rtx-2080-ti", "inference", "RTX2080TI_operations_bench_run"),
)
PUBLISHED = {"a30": ("0.88 to 0.91", "0.98 to 0.99"), "rtx-2080-ti": ("0.61 to 0.81", "0.86 to 0.91")}
NUMBERS = ("out_channels", "kernel_size", "stride", "padding", "groups", "bias", "out_features", "output_size")
MODELS = ("random forest", "XGBoost")
TABLE = Path(__file__).parent / "published" / "TABLE.md"


def raw_sizes(rows: list[Measurement]) -> np.ndarray:
    """Features without physics: the kind as a number, the sizes of the input, and the attributes."""
    kinds = sorted({m.operation.kind for m in rows})
    columns = []
    for m in rows:
        shape = m.operation.input_shapes[0]
        sizes = [*shape[:4], *[0] * (4 - len(shape))]
        found = [m.operation.attributes.get(name, 0) for name in NUMBERS]
        numbers = [float(np.prod(value)) if isinstance(value, tuple) else float(value or 0) for value in found]
        tf32 = float(m.operation.precision == "tf32")
        columns.append([kinds.index(m.operation.kind), *map(float, sizes), *numbers, tf32])
    return np.array(columns, dtype=np.float32)


def new_model(name: str) -> object:
    if name == "XGBoost":
        from xgboost import XGBRegressor

        return XGBRegressor(random_state=0, n_jobs=1)
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(random_state=0, n_jobs=1)


def in_folds(inputs: np.ndarray, targets: np.ndarray, fold: np.ndarray, name: str) -> float:
    predicted = np.empty(len(targets))
    for held in range(FOLDS):
        mine = fold == held
        predicted[mine] = new_model(name).fit(inputs[~mine], targets[~mine]).predict(inputs[mine])
    return r2(targets, predicted)


def on_test_set(inputs: np.ndarray, targets: np.ndarray, order: np.ndarray, name: str) -> float:
    cut = int(TEST_SHARE * len(order))
    test, rest = order[:cut], order[cut:]
    return r2(targets[test], new_model(name).fit(inputs[rest], targets[rest]).predict(inputs[test]))


def quantity(name: str) -> Callable[[Measurement], float | None]:
    return (lambda m: m.time_s) if name == "time" else (lambda m: m.power_w if m.power_usable else None)


def lines_of(dataset: Dataset, gpu: str, mode: str, campaign: str, recipe: object) -> list[str]:
    name = next(c for c in dataset.campaigns(mode) if c.startswith(campaign))
    rows = [m for m in dataset.usable(mode) if m.campaign == name]
    rng = np.random.default_rng(0)
    ours = cross_validate(dataset, mode, replace(recipe, folds=FOLDS), name).summary()
    lines = []
    for which in ("time", "power"):
        known = [m for m in rows if quantity(which)(m) is not None]
        inputs, targets = raw_sizes(known), np.array([quantity(which)(m) for m in known])
        order = rng.permutation(len(known))
        by_row = np.empty(len(known), dtype=int)
        by_row[order] = np.arange(len(known)) % FOLDS
        held = fold_of({m.operation for m in known}, FOLDS, 0)
        by_operation = np.array([held[m.operation] for m in known])
        for model in MODELS:
            cells = [
                on_test_set(inputs, targets, order, model),
                in_folds(inputs, targets, by_row, model),
                in_folds(inputs, targets, by_operation, model),
            ]
            published = PUBLISHED[gpu][which == "power"]
            unique = len({m.operation for m in known})
            lines.append(
                f"| {gpu} | {mode}, {name} | {len(known)} ({unique}) | {which} | {model} | {published} | "
                + " | ".join(f"{value:.2f}" for value in cells)
                + f" | {ours[f'{which}_r2']:.2f} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--recipe", type=Path, default=Path("predictors/blend.toml"))
    arguments = parser.parse_args()
    recipe = load_recipe(arguments.recipe)
    lines = [
        "# Published accuracy beside ours",
        "",
        f"Made by `python benchmarks/published.py --recipe {arguments.recipe}`; do not edit. R2 of single operations.",
        "",
        "Published: C. Nicolai, On Energy Modeling of Deep Neural Network Operations, Heidelberg 2025 (random forest "
        "and XGBoost, rows drawn at random). Random forest and XGBoost here: default settings of scikit-learn and "
        "xgboost, on kind, attributes and input shape. Columns: a test set of "
        f"{100 * TEST_SHARE:.0f} % of the rows, {FOLDS} folds over rows, and {FOLDS} folds over unique operations, so "
        "that no repeat of an operation that is tested was seen; ours on the last split.",
        "",
        "| GPU | campaign | rows (unique) | quantity | model | published | rows, test set | rows, folds "
        "| unseen operations | ours, unseen operations |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    datasets = {gpu: load(arguments.data / gpu) for gpu in PUBLISHED}
    for gpu, mode, campaign in CAMPAIGNS:
        lines += lines_of(datasets[gpu], gpu, mode, campaign, recipe)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
