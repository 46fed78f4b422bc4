"""Ten operations of Nicolai's test set, measured and predicted, and what the mean of R2 over folds hides.

    python benchmarks/nicolai_test_operations.py [--data ../shared/data/nicolai2025] [--out FOLDER]

Figures 6.3 and 6.4 of the thesis show ten operations of the test set with measured and predicted time and power. The
same here: `predictors/forest.toml` is fitted to the other rows of the campaign, and ten operations of the test set are
drawn, spread evenly over their times. Then the R2 of power is printed for each fold of the RTX 2080 Ti in training,
beside that over all folds together: a fold of seven rows whose powers are nearly equal has a low R2 however small its
errors are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from nicolai_operations import CAMPAIGNS, FULL, Rows, folds_over_rows, modules_of, predicted_by_ours, rows_of, test_rows

from joulecast.datasets import Dataset
from joulecast.datasets.importers.nicolai2025 import import_nicolai2025
from joulecast.hardware import find_gpu
from joulecast.predictors.evaluation.errors import r2
from joulecast.predictors.fitting.forms import load_recipe
from joulecast.rendering.pictures import Bar, bars
from joulecast.units import si

ROOT = Path(__file__).resolve().parents[1]
TEN, SMALL_FOLDS = 10, "2080 Ti training"


def ten_operations(name: str, rows: Rows, dataset: Dataset, out: Path | None) -> None:
    test = test_rows(rows)
    time_s, power_w = predicted_by_ours(rows, test, dataset, load_recipe(ROOT / "predictors" / "forest.toml")).values()
    known = np.flatnonzero(~np.isnan(time_s) & ~np.isnan(power_w))
    ascending = known[np.argsort([rows.measurements[test[place]].time_s for place in known])]
    drawn = []
    print(f"\n{name}: operation, measured, predicted")
    for place in ascending[np.linspace(0, len(ascending) - 1, TEN).astype(int)]:
        m = rows.measurements[test[place]]
        shape = "x".join(map(str, m.operation.input_shapes[0]))
        label = f"{m.operation.kind} {shape} {m.operation.precision}"
        print(
            f"{label:44} {si(m.time_s, 's'):>9} {si(float(time_s[place]), 's'):>9} "
            f"{m.power_w or 0:7.1f} W {power_w[place]:7.1f} W"
        )
        for quantity, mine, colour in (("measured", m.power_w or 0.0, 0), ("predicted", float(power_w[place]), 1)):
            drawn.append(Bar(f"{label} {quantity}", mine, f"{mine:.0f} W", colour=colour))
    if out is not None:
        path = out / f"ten-operations-{name.lower().replace(' ', '-')}.svg"
        path.write_text(bars(drawn, f"Ten test operations, {name}: power measured and predicted"), "utf-8")
        print(path)


def over_folds(name: str, rows: Rows, dataset: Dataset) -> None:
    recipe = load_recipe(ROOT / "predictors" / "forest.toml")
    watts, all_true, all_found = rows.targets("power"), [], []
    print(f"\n{name}: R2 of power by fold, rows, spread of their power, mean error")
    for number, fold in enumerate(folds_over_rows(rows, FULL.folds), 1):
        power_w = predicted_by_ours(rows, fold, dataset, recipe)["power"]
        known = ~np.isnan(power_w)
        true, found = watts[fold][known], power_w[known]
        all_true.append(true)
        all_found.append(found)
        error = 100 * float(np.mean(np.abs(found / true - 1)))
        print(f"fold {number:2}: {r2(true, found):7.3f} {len(true):3} rows {true.std():6.1f} W {error:5.1f} %")
    print(f"all together: {r2(np.concatenate(all_true), np.concatenate(all_found)):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "nicolai2025")
    parser.add_argument("--out", type=Path, help="folder for the figures")
    arguments = parser.parse_args()
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    datasets = {dataset.card.gpu: dataset for dataset in import_nicolai2025(arguments.data)}
    modules = modules_of(arguments.data)
    for campaign in CAMPAIGNS:
        dataset = datasets[find_gpu(campaign.gpu).name]
        rows = rows_of(dataset, campaign, modules)
        ten_operations(campaign.name, rows, dataset, arguments.out)
        if campaign.name == SMALL_FOLDS:
            over_folds(campaign.name, rows, dataset)


if __name__ == "__main__":
    main()
