"""Fitting a predictor for any GPU over the measurements of many: gradient-boosted trees (XGBoost), and a perceptron."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import DatasetError, MissingDependencyError, with_extra
from ..contract import Networks
from ..measured.rows import LEAST_ROWS, DeviceRow, device_rows, launch_times_s, rows_by_gpu
from ..physics.energy import PRIOR_ENERGY
from ..physics.least_times import LeastTimes
from ..physics.library import expected_ratio
from ..physics.relative import MACHINE_NAMES, RELATIVE_NAMES, relative_features
from ..recipes import BoostingRecipe, PerceptronRecipe
from ..regressors.fitted_trees import FittedTrees, unfitted_trees
from ..regressors.perceptron import Perceptron
from .boosted_residual import BoostedResidual
from .network_fits import learn_from_networks
from .ranges import ratio_ranges, typical_ratios

_MOST_OF_A_KIND = 1000


def _trees_for_unseen_chips(recipe: BoostingRecipe) -> Any:
    """Trees for chips that were not measured: fewer and shallower ones, and each step is the mean of several.

    With a chip left out, their errors are smaller than those of the trees for measured chips, which follow single GPUs.
    """
    trees = unfitted_trees(recipe, 100, num_parallel_tree=4)
    return trees.set_params(max_depth=7, learning_rate=0.12, subsample=0.6)


class _Table(NamedTuple):
    """Training data as arrays.

    Args:
        inputs: Features, shape (measurements, features).
        log_ratio: Log ratio of measured to expected device time, shape (measurements,).
        weight: Weight of each measurement, 1 on average, shape (measurements,).
    """

    inputs: NDArray[np.float32]
    log_ratio: FloatArray
    weight: FloatArray


def _table(rows: Sequence[DeviceRow]) -> tuple[list[DeviceRow], _Table]:
    """The measurements ordered by GPU, and their training data in the same order."""
    ordered, inputs, log_ratio, weight = [], [], [], []
    for (gpu, _), group in rows_by_gpu(rows).items():
        operations = [row.operation for row in group]
        matrix = relative_features(operations, gpu)
        least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
        ordered += group
        inputs.append(matrix.astype(np.float32))
        expected_s = least.time_s * expected_ratio(operations, gpu)
        log_ratio.append(np.log(np.array([row.device_s for row in group]) / expected_s))
        # Fifty thousand measurements of one GPU must not outvote five hundred of another.
        weight.append(np.full(len(group), len(group) ** -0.5))
    weights = np.concatenate(weight)
    return ordered, _Table(np.vstack(inputs), np.concatenate(log_ratio), weights / weights.mean())


def inputs_and_targets(rows: Sequence[DeviceRow]) -> tuple[NDArray[np.float32], FloatArray]:
    """Inputs of the trees, shape (rows, inputs), and their targets, shape (rows,)."""
    _, table = _table(rows)
    return table.inputs, table.log_ratio


def _thinned(rows: Sequence[DeviceRow], table: _Table, seed: int) -> _Table:
    """At most a thousand rows of each kind, GPU and mode, so that no kind or GPU decides for the others."""
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place in np.random.default_rng(seed).permutation(len(rows)).tolist():
        row = rows[place]
        groups[row.gpu.name, row.operation.kind, row.operation.mode].append(place)
    sampled = [places[:_MOST_OF_A_KIND] for _, places in sorted(groups.items())]
    weights = np.concatenate([np.full(len(places), len(places) ** -0.5) for places in sampled])
    chosen = np.concatenate(sampled)
    return _Table(table.inputs[chosen], table.log_ratio[chosen], weights / weights.mean())


def fit_any_gpu(
    datasets: Sequence[Dataset], networks: Networks, recipe: BoostingRecipe, rows: Sequence[DeviceRow] | None = None
) -> BoostedResidual:
    """Fit time and energy over the measurements of many GPUs.

    Args:
        datasets: Measurements of several GPUs, for the device times in them.
        networks: Measured networks with power, for the energies; their times are not learned from.
        recipe: Settings of the trees and of the perceptron.
        rows: Device times to learn from instead of all that the datasets hold.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: xgboost is not installed.
    """
    if rows is None:
        rows = [row for dataset in datasets for row in device_rows(dataset)]
    if len(rows) < LEAST_ROWS:
        raise DatasetError("too few device times", given=len(rows), allowed=f"from {LEAST_ROWS}")
    ordered, table = _table(rows)
    trees = unfitted_trees(recipe, recipe.trees)
    time = FittedTrees(trees.fit(table.inputs, table.log_ratio, sample_weight=table.weight))
    few = _thinned(ordered, table, recipe.seed)
    trees = _trees_for_unseen_chips(recipe)
    unseen_chips = FittedTrees(trees.fit(few.inputs, few.log_ratio, sample_weight=few.weight))
    ranges = ratio_ranges([row.operation for row in ordered], table.log_ratio)
    host_s = launch_times_s(datasets)
    chips = frozenset(row.gpu.chip for row in ordered)
    typical = typical_ratios(ordered, table.log_ratio)
    names = frozenset(row.gpu.name for row in ordered)
    learned = BoostedResidual(time, unseen_chips, chips, ranges, PRIOR_ENERGY, host_s, typical=typical, gpus=names)
    if recipe.perceptron is not None:
        perceptron = _perceptron(table, recipe.perceptron, recipe.seed)
        learned = replace(learned, perceptron=perceptron, share=recipe.perceptron.share)
    return learn_from_networks(learned, ordered, networks)


def _perceptron(table: _Table, recipe: PerceptronRecipe, seed: int) -> Perceptron:
    try:
        # Imported here, because it needs torch.
        from ..regressors.descent import Columns, fit_perceptron
    except ImportError as error:
        raise MissingDependencyError("training a perceptron needs torch", hint=with_extra("attentive")) from error
    kinds = [place for place, name in enumerate(RELATIVE_NAMES) if name.startswith("kind_")]
    columns = Columns(blurred=[RELATIVE_NAMES.index(name) for name in MACHINE_NAMES], hidden=kinds)
    return fit_perceptron(table.inputs, table.log_ratio, table.weight, recipe, columns, seed)
