"""Fitting a predictor for any GPU over the measurements of many: gradient-boosted trees (XGBoost), and a perceptron."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import DatasetError, needing, with_extra
from ...operations.operation import Operation
from ..contract import Networks
from ..measured.rows import LEAST_ROWS, DeviceRow, device_rows, launch_times_s, rows_by_gpu
from ..physics.energy import PRIOR_ENERGY
from ..physics.fp32_kernels import counted_ratio
from ..physics.least_times import LeastTimes
from ..physics.relative import MACHINE_NAMES, RELATIVE_NAMES, relative_features
from ..recipes import BoostingRecipe, PerceptronRecipe
from ..regressors.fitted_trees import FittedTrees, unfitted_trees
from ..regressors.perceptron import Perceptron
from .boosted_residual import BoostedResidual, Range
from .fit_networks import learn_from_networks

_MOST_OF_A_KIND = 1500
_TYPICAL = ("normalization", "pooling", "softmax")  # Families of kinds with a typical ratio of their own.
_UNKNOWN_GPUS = 0.2
_QUANTILES = (0.005, 0.995)


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
        expected_s = least.time_s * counted_ratio(operations, gpu)
        log_ratio.append(np.log(np.array([row.device_s for row in group]) / expected_s))
        # Fifty thousand measurements of one GPU must not outvote five hundred of another.
        weight.append(np.full(len(group), len(group) ** -0.5))
    weights = np.concatenate(weight)
    return ordered, _Table(np.vstack(inputs), np.concatenate(log_ratio), weights / weights.mean())


def inputs_and_targets(
    rows: Sequence[DeviceRow], typical: Mapping[str, float]
) -> tuple[NDArray[np.float32], FloatArray]:
    """Inputs of the trees, shape (rows, inputs), and their targets, shape (rows,)."""
    ordered, table = _table(rows)
    return table.inputs, table.log_ratio - _usual(ordered, typical)


def _usual(rows: Sequence[DeviceRow], typical: Mapping[str, float]) -> FloatArray:
    return np.array([typical.get(f"{row.operation.kind} {row.operation.mode}", 0.0) for row in rows])


def ratio_ranges(operations: Sequence[Operation], log_ratio: FloatArray) -> dict[str, Range]:
    """Family or kind -> lowest and highest log ratio, without the most extreme hundredth of the measurements."""
    ranges = {}
    for names in ([operation.row.family for operation in operations], [operation.kind for operation in operations]):
        array = np.array(names)
        for name in sorted(set(names)):
            low, high = np.quantile(log_ratio[array == name], _QUANTILES)
            ranges[name] = (float(low), float(high))
    return ranges


def typical_ratios(rows: Sequence[DeviceRow], log_ratio: FloatArray) -> dict[str, float]:
    """Kind and mode -> log ratio on a typical GPU, for kinds that move bytes in kernels that are not counted.

    It is the mean over GPUs of their medians, and counts one fifth of a GPU without any difference in.
    """
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, value in zip(rows, log_ratio.tolist(), strict=True):
        operation = row.operation
        if operation.row.family in _TYPICAL and not _is_counted(operation):
            groups[f"{operation.kind} {operation.mode}"][row.gpu.name].append(value)
    return {
        name: sum(map(median, by_gpu.values())) / (len(by_gpu) + _UNKNOWN_GPUS)
        for name, by_gpu in sorted(groups.items())
    }


def _is_counted(operation: Operation) -> bool:
    return operation.mode == "inference" and operation.kind in ("layer_norm", "softmax")


def measured_kinds(rows: Sequence[DeviceRow]) -> dict[str, frozenset[str]]:
    """Chip -> kinds that were measured on it."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        found[row.gpu.chip].add(row.operation.kind)
    return {chip: frozenset(kinds) for chip, kinds in sorted(found.items())}


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
    typical = typical_ratios(ordered, table.log_ratio)
    table = table._replace(log_ratio=table.log_ratio - _usual(ordered, typical))
    time = FittedTrees(trees.fit(table.inputs, table.log_ratio, sample_weight=table.weight))
    ranges = ratio_ranges([row.operation for row in ordered], table.log_ratio)
    chips, names = measured_kinds(ordered), frozenset(row.gpu.name for row in ordered)
    perceptron = _perceptron(ordered, table, recipe.perceptron, recipe.seed)
    learned = BoostedResidual(
        time, perceptron, chips, ranges, PRIOR_ENERGY, launch_times_s(datasets), typical, gpus=names
    )
    return learn_from_networks(learned, ordered, networks)


def _perceptron(rows: Sequence[DeviceRow], table: _Table, recipe: PerceptronRecipe, seed: int) -> Perceptron:
    """A perceptron over at most 1500 rows of each kind, GPU and mode, so that no kind decides for the others."""
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place in np.random.default_rng(seed).permutation(len(rows)).tolist():
        row = rows[place]
        groups[row.gpu.name, row.operation.kind, row.operation.mode].append(place)
    sampled = [places[:_MOST_OF_A_KIND] for places in groups.values()]
    some = np.concatenate(sampled)
    weights = np.concatenate([np.full(len(places), len(places) ** -0.5) for places in sampled])
    with needing("training a perceptron needs torch", with_extra("attentive")):
        # Imported here, because it needs torch.
        from ..regressors.descent import Columns, fit_perceptron
    kinds = [place for place, name in enumerate(RELATIVE_NAMES) if name.startswith("kind_")]
    columns = Columns(blurred=[RELATIVE_NAMES.index(name) for name in MACHINE_NAMES], hidden=kinds)
    return fit_perceptron(table.inputs[some], table.log_ratio[some], weights / weights.mean(), recipe, columns, seed)
