"""Fitting the one model: constants of physics first, then trees over all GPUs, then those of each generation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import DatasetError, MissingDependencyError, with_extra
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..kernels.basis import generation_of
from ..measured.rows import LEAST_ROWS, DeviceRow, launch_times_s
from ..physics.energy import PRIOR_ENERGY
from ..recipes import OneModelRecipe
from ..regressors.fitted_trees import FittedTrees, unfitted_trees
from .features import features, first_kernels
from .learned import OneModel
from .physics import CONSTANTS, STARTS, Machine, costs, way
from .work import GROUPS, Work

_USUAL_ERROR = 0.1  # Larger log errors count less than by their square, so that outliers do not shift the constants.
_PRIOR_WEIGHT = 2.0  # Weight of the spread of the constants, where all measurements together count as 400.
_COUNTED_AS = 400.0
_LEAST_OF_GROUP = 50  # Measurements of a group on a GPU below which they do not take part in the fit of constants.
_EVALUATIONS = 40
_TRUSTS = np.linspace(0.0, 1.0, 6)
_TRUST_ROWS = 2500  # Measurements of each GPU with which trust is found; it is a single number for each group.
_LEAST_S = 2e-6  # Shorter times are those of a launch.


class Measured(NamedTuple):
    """Measurements of one GPU: the operations, their kernels, and device seconds of shape (operations,)."""

    gpu: GPU
    operations: OperationList
    work: Work
    device_s: FloatArray

    @classmethod
    def of(cls, gpu: GPU, rows: Sequence[DeviceRow]) -> Measured:
        """The measurements in some rows, all of one GPU."""
        operations = OperationList(row.operation for row in rows)
        return cls(gpu, operations, Work.of(operations), np.array([row.device_s for row in rows]))

    def some(self, places: NDArray[np.int64]) -> Measured:
        """The measurements at these indices."""
        operations = OperationList(self.operations[place] for place in places.tolist())
        return Measured(self.gpu, operations, Work.of(operations), self.device_s[places])

    @property
    def groups(self) -> NDArray[np.int64]:
        """Group and way of the first kernel of each operation, shape (2, operations)."""
        first = self.work.some(first_kernels(self.work, len(self.operations)))
        return np.array([first.group, way(first, Machine.of(self.gpu))])


def fit_one_model(datasets: Sequence[Dataset], rows: Sequence[DeviceRow], recipe: OneModelRecipe) -> OneModel:
    """Fit the one model to device times.

    Args:
        datasets: Where the rows come from, for launch times.
        rows: Measured device times of all GPUs.
        recipe: The settings.

    Raises:
        DatasetError: There are too few device times.
        MissingDependencyError: scipy or xgboost is not installed.
    """
    tables = measured_tables(rows, recipe)
    if sum(len(table.device_s) for table in tables) < LEAST_ROWS:
        raise DatasetError("too few device times to learn from", given=len(rows), allowed=f"{LEAST_ROWS} or more")
    learned = _fitted(tables, recipe, [])
    generations = {generation_of(table.gpu) for table in tables}
    fewer = [table.some(_drawn(len(table.device_s), _TRUST_ROWS, recipe.seed)) for table in tables]
    trust = trusted(fewer, recipe) if len(generations) > 1 else {}
    return OneModel(*learned, trust=trust, energy=PRIOR_ENERGY, host_s=launch_times_s(datasets))


def _drawn(count: int, most: int, seed: int) -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def measured_tables(rows: Iterable[DeviceRow], recipe: OneModelRecipe) -> list[Measured]:
    """Measurements by GPU, thinned out; see `thinned`."""
    return [Measured.of(gpu, some) for gpu, some in thinned(rows, recipe)]


def thinned(rows: Iterable[DeviceRow], recipe: OneModelRecipe) -> list[tuple[GPU, list[DeviceRow]]]:
    """Rows by GPU, at most `most_rows` of one kind, precision and program, drawn at random.

    Collectives are left out, because links decide their time.
    """
    alike: dict[GPU, dict[object, list[DeviceRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        o = row.operation
        if "gpus" not in o.attributes and not o.is_identity:
            decodes = o.kind == "attention" and o.input_shapes[0][-2] == 1
            named = tuple(o.attributes.get(name) for name in ("implementation", "cache_precision", "direction"))
            alike[row.gpu][o.kind, o.precision, o.mode, decodes, *named].append(row)
    rng = np.random.default_rng(recipe.seed)
    by_gpu = sorted(alike.items(), key=lambda item: item[0].name)
    return [
        (gpu, [each[place] for each in groups.values() for place in rng.permutation(len(each))[: recipe.most_rows]])
        for gpu, groups in by_gpu
    ]


class _Fitted(NamedTuple):
    """Constants and trees, see `OneModel`."""

    constants: FloatArray
    shared: FittedTrees
    generations: dict[str, FittedTrees]


def _fitted(tables: Sequence[Measured], recipe: OneModelRecipe, without: Sequence[str]) -> _Fitted:
    """Fit constants and trees.

    Args:
        tables: The measurements.
        recipe: The settings.
        without: Generations that are left out. Where there are any, trees of generations are not fitted.
    """
    tables = [table for table in tables if generation_of(table.gpu) not in without]
    constants = fit_constants(tables, recipe)
    rows = [_examples(table, constants) for table in tables]
    # Each GPU counts with the root of its number of measurements, so that the most measured do not decide alone.
    weights = np.concatenate([np.full(len(targets), len(targets) ** -0.5) for _, targets in rows])
    inputs, targets = (np.concatenate(columns) for columns in zip(*rows, strict=True))
    shared = _trees(recipe, recipe.trees, recipe.depth).fit(inputs, targets, sample_weight=weights / weights.mean())
    generations = {}
    left = targets - shared.predict(inputs)
    of_row = np.repeat([generation_of(table.gpu) for table in tables], [len(table.device_s) for table in tables])
    for name in [] if without else sorted(set(of_row)):
        mine = of_row == name
        trees = _trees(recipe, recipe.generation_trees, recipe.generation_depth)
        generations[name] = FittedTrees(trees.fit(inputs[mine], left[mine]))
    return _Fitted(constants, FittedTrees(shared), generations)


def _trees(recipe: OneModelRecipe, trees: int, depth: int) -> Any:
    return unfitted_trees(
        recipe, trees, depth=depth, objective="reg:quantileerror", quantile_alpha=recipe.quantile, max_bin=128
    )


def _examples(table: Measured, constants: FloatArray) -> tuple[NDArray[np.float32], FloatArray]:
    """Features of a GPU's measurements, and the log ratio of device time to physics."""
    machine = Machine.of(table.gpu)
    found = costs(table.work, machine, constants)
    physics_s = np.maximum(np.bincount(table.work.place, found.time_s, len(table.device_s)), 1e-6)
    return features(table.operations, table.work, found, machine), np.log(table.device_s / physics_s)


def trusted(tables: Sequence[Measured], recipe: OneModelRecipe) -> dict[str, float]:
    """Group of kernels -> weight of the shared trees with the least error on generations that were left out."""
    errors: dict[str, list[FloatArray]] = defaultdict(list)
    for generation in sorted({generation_of(table.gpu) for table in tables}):
        learned = _fitted(tables, recipe, [generation])
        for table in tables:
            if generation_of(table.gpu) == generation:
                inputs, targets = _examples(table, learned.constants)
                predicted = learned.shared(inputs)
                for group in np.unique(table.groups[0]).tolist():
                    mine = table.groups[0] == group
                    ratios = _TRUSTS[:, None] * predicted[mine] - targets[mine]
                    errors[GROUPS[group]].append(np.abs(ratios).mean(axis=1))
    return {group: float(_TRUSTS[np.mean(each, axis=0).argmin()]) for group, each in errors.items()}


class _Sample(NamedTuple):
    """Measurements of a group of kernels on one GPU, to which constants are fitted."""

    work: Work
    machine: Machine
    log_s: FloatArray


def fit_constants(tables: Sequence[Measured], recipe: OneModelRecipe) -> FloatArray:
    """Constants of physics that fit the measurements of all GPUs, shape (groups, ways, constants).

    Constants that the measurements do not determine stay where they start.

    Raises:
        MissingDependencyError: scipy is not installed.
    """
    samples: dict[tuple[int, int], list[_Sample]] = defaultdict(list)
    rng = np.random.default_rng(recipe.seed)
    for table in tables:
        groups = table.groups
        for group, by in np.unique(groups, axis=1).T.tolist():
            mine = (groups == [[group], [by]]).all(axis=0) & (table.device_s > _LEAST_S)
            places = rng.permutation(np.flatnonzero(mine))[: recipe.constants_rows]
            if len(places) >= _LEAST_OF_GROUP:
                some = table.some(places)
                samples[group, by].append(_Sample(some.work, Machine.of(table.gpu), np.log(some.device_s)))
    constants = STARTS.copy()
    for (group, by), some_of in samples.items():
        constants[group, by] = _fitted_constants(group, by, some_of)
    return constants


def _fitted_constants(group: int, by: int, samples: Sequence[_Sample]) -> FloatArray:
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise MissingDependencyError("training needs scipy", hint=with_extra("train")) from error
    spread, tried = np.array([constant.spread for constant in CONSTANTS]), STARTS.copy()
    weight = np.sqrt(_COUNTED_AS / sum(len(sample.log_s) for sample in samples)) / _USUAL_ERROR

    def residuals(x: FloatArray) -> FloatArray:
        tried[group, by] = STARTS[group, by] * np.exp(x * spread)
        errors = []
        for sample in samples:
            seconds = costs(sample.work, sample.machine, tried).time_s
            summed = np.maximum(np.bincount(sample.work.place, seconds, len(sample.log_s)), 1e-9)
            errors.append(weight * (np.log(summed) - sample.log_s))
        return np.concatenate([*errors, x * _PRIOR_WEIGHT])

    start = np.zeros(len(CONSTANTS))
    found = least_squares(residuals, start, loss="soft_l1", max_nfev=_EVALUATIONS, diff_step=0.05)
    fitted: FloatArray = STARTS[group, by] * np.exp(found.x * spread)
    return fitted
