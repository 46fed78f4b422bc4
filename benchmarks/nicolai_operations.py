"""Nicolai's accuracy of single operations: his forest and XGBoost made again, and ours on the same splits.

Random forest and XGBoost are those of his code: separate models for time and power, 900 trees by absolute error for
time, 100 by squared error for power, XGBoost with 100 trees; the rows with the least and most time and power always in
training, a fifth of the others as the test set. He drew rows; his campaigns repeat operations, so that rows that are
tested have twins in training. The last columns hold all repeats of an operation back together.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from nicolai_features import cells_of, matrix_of

from joulecast.datasets import Dataset, Measurement
from joulecast.hardware import find_gpu
from joulecast.predictors.evaluation.errors import r2
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.measured import fold_of
from joulecast.predictors.model.shared import chip_alone

TEST_SHARE = 0.2
SEED = 42  # His.
QUANTITIES = ("time", "power")
MODELS = ("random forest", "XGBoost")


class Size(NamedTuple):
    """How much is computed: trees for the test set and in folds, and folds."""

    trees: int
    trees_in_folds: int
    folds: int


FULL, REDUCED = Size(900, 50, 15), Size(20, 20, 3)


class Campaign(NamedTuple):
    """A row of his table, and which published measurements come closest to it.

    Args:
        name: What he calls it.
        gpu: Name in the catalogue.
        mode: inference or training.
        campaigns: What the names of our campaigns begin with.
        theirs: (quantity, model) -> mean and deviation of R2 over folds, R2 of the test set.
        difference: Why the rows are not his.
    """

    name: str
    gpu: str
    mode: str
    campaigns: tuple[str, ...]
    theirs: dict[tuple[str, str], tuple[float, float, float]]
    difference: str


def _theirs(*cells: tuple[float, float, float]) -> dict[tuple[str, str], tuple[float, float, float]]:
    return dict(zip([(quantity, model) for quantity in QUANTITIES for model in MODELS], cells, strict=True))


SIX_CLOCKS = (
    "his rest on six clocks, which were not published; here stands one of the six, 1440 MHz. With six, the same "
    "operation at up to five other clocks stands in training beside a row that is tested, which is easier to predict"
)
CAMPAIGNS = (
    Campaign(
        "A30 training",
        "A30",
        "training",
        ("operations_A30_train/4685fb9e76",),
        _theirs((0.876, 0.073, 0.90), (0.912, 0.04, 0.90), (0.977, 0.007, 0.98), (0.985, 0.003, 0.99)),
        SIX_CLOCKS,
    ),
    Campaign(
        "A30 inference",
        "A30",
        "inference",
        ("operations_A30_train/4685fb9e76",),
        # He prints a deviation of .66, which must be .066: R2 of one fold would exceed 1.
        _theirs((0.890, 0.066, 0.88), (0.898, 0.05, 0.89), (0.981, 0.003, 0.99), (0.988, 0.002, 0.99)),
        SIX_CLOCKS,
    ),
    Campaign(
        "2080 Ti training",
        "RTX 2080 Ti",
        "training",
        ("operations_RTX2080TI_train",),
        _theirs((0.755, 0.122, 0.81), (0.684, 0.359, 0.79), (0.920, 0.058, 0.87), (0.921, 0.054, 0.87)),
        "110 rows of four runs are what can be had of this campaign: with seven rows in a fold, R2 says little",
    ),
    Campaign(
        "2080 Ti inference",
        "RTX 2080 Ti",
        "inference",
        ("RTX2080TI_operations_bench_run",),
        _theirs((0.735, 0.088, 0.77), (0.607, 0.079, 0.61), (0.939, 0.034, 0.91), (0.944, 0.026, 0.86)),
        "the one campaign of this GPU whose power can be believed; rows of modules that ran in train mode are left out",
    ),
)


class Rows(NamedTuple):
    """Rows of a campaign: measurements, their inputs for a forest, and the names of the inputs."""

    measurements: list[Measurement]
    inputs: np.ndarray
    names: list[str]

    def targets(self, quantity: str) -> np.ndarray:
        return np.array([m.time_s if quantity == "time" else m.power_w for m in self.measurements])


def rows_of(dataset: Dataset, campaign: Campaign, modules: Sequence[str]) -> Rows:
    """All rows of a campaign, as they are, with their power, too."""
    found = [
        replace(m, power_usable=True)
        for m in dataset.usable(campaign.mode)
        if m.campaign.startswith(campaign.campaigns) and m.power_w is not None
    ]
    clock = find_gpu(campaign.gpu).boost_clock_mhz
    cells = [cells_of(modules[m.line - 2], m.operation.input_shapes[0], clock) for m in found]
    return Rows(found, *matrix_of(cells))


def modules_of(folder: Path) -> list[str]:
    """The printed module of each line of the source after its first."""
    with (folder / "operations.csv").open(newline="", encoding="utf-8") as file:
        return [row["module"] for row in csv.DictReader(file)]


def new_model(quantity: str, model: str, trees: int) -> Any:
    if model == "XGBoost":
        from xgboost import XGBRegressor

        return XGBRegressor(n_estimators=100, objective="reg:squarederror", random_state=SEED, n_jobs=1)
    from sklearn.ensemble import RandomForestRegressor

    # His power needs a ninth of the trees of his time.
    criterion, number = ("absolute_error", trees) if quantity == "time" else ("squared_error", min(trees, 100))
    return RandomForestRegressor(number, criterion=criterion, random_state=SEED, n_jobs=1)


def test_rows(rows: Rows) -> np.ndarray:
    """His test set: a fifth of the rows, none of which has the least or most time or power."""
    extremes = {int(pick(rows.targets(quantity))) for quantity in QUANTITIES for pick in (np.argmin, np.argmax)}
    others = np.setdiff1d(np.arange(len(rows.measurements)), list(extremes))
    return np.random.default_rng(SEED).permutation(others)[: int(np.ceil(TEST_SHARE * len(others)))]


def folds_over_rows(rows: Rows, folds: int) -> list[np.ndarray]:
    order = np.random.default_rng(SEED).permutation(len(rows.measurements))
    return [order[fold::folds] for fold in range(folds)]


def folds_over_operations(rows: Rows, folds: int) -> list[np.ndarray]:
    fold = fold_of({m.operation for m in rows.measurements}, folds, SEED)
    of_row = np.array([fold[m.operation] for m in rows.measurements])
    return [np.flatnonzero(of_row == held) for held in range(folds)]


def theirs_on(rows: Rows, test: np.ndarray, quantity: str, model: str, trees: int) -> float:
    """R2 of one of his models on some rows, fitted to the others."""
    targets, train = rows.targets(quantity), np.setdiff1d(np.arange(len(rows.measurements)), test)
    fitted = new_model(quantity, model, trees).fit(rows.inputs[train], targets[train])
    return r2(targets[test], fitted.predict(rows.inputs[test]))


def predicted_by_ours(rows: Rows, test: np.ndarray, dataset: Dataset, recipe: Any) -> dict[str, np.ndarray]:
    """Time (s) and power (W) of some rows, by loops of the others; NaN where their kind was not measured."""
    train = tuple(rows.measurements[place] for place in np.setdiff1d(np.arange(len(rows.measurements)), test))
    chip = fit_chip(replace(dataset, measurements=train, networks=()), train[0].operation.mode, recipe)
    operations = [rows.measurements[place].operation for place in test]
    p, covered = chip_alone(chip).predict(operations), np.where(chip.covered(operations), 1.0, np.nan)
    return {"time": covered * p.time_s, "power": covered * p.power_w}


def ours_on(rows: Rows, test: np.ndarray, dataset: Dataset, recipe: Any) -> dict[str, float]:
    """R2 of our predictor on some rows, fitted to the others; one fit gives both quantities."""
    found = predicted_by_ours(rows, test, dataset, recipe)
    return {name: _r2_of_known(rows.targets(name)[test], found[name]) for name in QUANTITIES}


def _r2_of_known(targets: np.ndarray, predicted: np.ndarray) -> float:
    # In a small campaign a fold can hold all there is of a kind: that is not predicted by ours.
    known = ~np.isnan(predicted)
    return r2(targets[known], predicted[known])


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} +- {np.std(values):.3f}"


def lines_of(dataset: Dataset, campaign: Campaign, rows: Rows, recipe: Any, size: Size) -> Iterator[str]:
    """Lines of the table, one for each quantity and model of his."""
    test = test_rows(rows)
    by_row, by_operation = folds_over_rows(rows, size.folds), folds_over_operations(rows, size.folds)
    ours_test = ours_on(rows, test, dataset, recipe)
    ours = [[ours_on(rows, fold, dataset, recipe) for fold in folds] for folds in (by_row, by_operation)]
    unique = len({m.operation for m in rows.measurements})
    for quantity in QUANTITIES:
        for model in MODELS:
            mean, deviation, on_test = campaign.theirs[quantity, model]
            again = [
                _cell([theirs_on(rows, fold, quantity, model, size.trees_in_folds) for fold in folds])
                for folds in (by_row, by_operation)
            ]
            mine = [_cell([found[quantity] for found in fold]) for fold in ours]
            yield (
                f"| {campaign.name} | {len(rows.measurements)} ({unique}) | {quantity} | {model} "
                f"| {mean:.3f} +- {deviation:.3f}; {on_test:.2f} "
                f"| {again[0]}; {theirs_on(rows, test, quantity, model, size.trees):.2f} "
                f"| {mine[0]}; {ours_test[quantity]:.2f} | {again[1]} | {mine[1]} |"
            )


def importances(rows: Rows, quantity: str, trees: int, most: int = 8) -> str:
    """The inputs that a forest rests on, in words."""
    forest = new_model(quantity, "random forest", trees).fit(rows.inputs, rows.targets(quantity))
    order = np.argsort(-forest.feature_importances_)[:most]
    return ", ".join(f"{rows.names[place]} {forest.feature_importances_[place]:.2f}" for place in order)


def decision_path(rows: Rows, place: int) -> list[str]:
    """The questions that the first tree of a forest for time asks about one row, and what it answers."""
    targets = rows.targets("time")
    forest = new_model("time", "random forest", 1).fit(rows.inputs, targets)
    tree, row = forest.estimators_[0].tree_, rows.inputs[place]
    steps = []
    for node in forest.estimators_[0].decision_path(row[None].astype(np.float32)).indices:
        if tree.children_left[node] < 0:
            steps.append(f"{1e3 * tree.value[node].item():.3f} ms (measured: {1e3 * targets[place]:.3f} ms)")
        else:
            name, at = rows.names[tree.feature[node]], tree.threshold[node]
            sign = "<=" if row[tree.feature[node]] <= at else ">"
            steps.append(f"{name} {sign} {at:g}")
    return steps


HEAD = """R2 of single operations. Each cell holds the mean and standard deviation over {folds} folds, then the test \
set. Repeated: his inputs (one-hot kind, value and flag of each attribute, -1 where a kind lacks it, sizes, clock) and \
his models, here with {trees} trees in the folds and {most} for the test set. Ours: `{recipe}`, fitted to the same \
rows.

| his row | rows (unique) | quantity | his model | published | repeated | ours, same rows | repeated, unseen \
operations | ours, unseen operations |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def section(source: Path, datasets: dict[str, Dataset], recipe: Any, recipe_name: str, *, reduced: bool) -> str:
    """The section of the page."""
    modules = modules_of(source)
    size = REDUCED if reduced else FULL
    lines = [HEAD.format(folds=size.folds, trees=size.trees_in_folds, most=size.trees, recipe=recipe_name)]
    seen: dict[str, Rows] = {}
    for campaign in CAMPAIGNS:
        dataset = datasets[find_gpu(campaign.gpu).name]
        rows = seen[campaign.name] = rows_of(dataset, campaign, modules)
        for line in lines_of(dataset, campaign, rows, recipe, size):
            lines.append(line)
            print(line, flush=True)
    lines += ["", "Why they differ:", ""]
    lines += [f"- {campaign.name}: {campaign.difference}." for campaign in CAMPAIGNS]
    rows = seen["A30 training"]
    lines += ["", "What the forest rests on (A30 training, share of the reduction of its criterion):", ""]
    lines += [f"- {quantity}: {importances(rows, quantity, size.trees_in_folds)}." for quantity in QUANTITIES]
    convolutions = [place for place, m in enumerate(rows.measurements) if m.operation.kind == "conv2d"]
    place = convolutions[len(convolutions) // 2]
    steps = decision_path(rows, place)
    lines += ["", f"How its first tree arrives at the time of `{modules[rows.measurements[place].line - 2]}`:", ""]
    return "\n".join([*lines, *(f"{number}. {step}" for number, step in enumerate(steps, start=1)), ""])
