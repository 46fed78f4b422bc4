"""Forests: fit an OperationPredictor on a Dataset with scikit-learn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import Dataset, Measurement
from ..errors import DatasetError, MissingDependencyError
from ..hardware import find_gpu
from ..operations import Operation
from .baseline import Baseline, Loops
from .features import features
from .predictor import OperationPredictor, regressor_inputs
from .recipe import ForestRecipe

LEAST_OPERATIONS = 20
"""Unique operations below which nothing is fitted."""


@dataclass(frozen=True)
class ForestRegressor:
    """A fitted scikit-learn forest behind the interface of a regressor."""

    model: Any

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """One value per row of inputs."""
        values: NDArray[np.float64] = self.model.predict(inputs)
        return values


def _new_forest(recipe: ForestRecipe) -> Any:
    try:
        from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
    except ImportError as error:
        raise MissingDependencyError("training needs scikit-learn", hint="pip install 'joulecast[train]'") from error
    forest = {"extra_trees": ExtraTreesRegressor, "random_forest": RandomForestRegressor}[recipe.forest]
    return forest(
        n_estimators=recipe.trees,
        max_features=recipe.max_features,
        min_samples_leaf=recipe.min_samples_leaf,
        random_state=recipe.seed,
        n_jobs=1,  # with more, sums differ in the last bits between runs
    )


@dataclass(frozen=True)
class _Repeats:
    """The repeats of one operation by one method, as their medians."""

    operation: Operation
    method: str
    time_s: float
    power_w: float | None


def _medians(measurements: Sequence[Measurement]) -> list[_Repeats]:
    """One row per operation, or one per method for operations that the most used method left out."""
    groups: dict[tuple[Operation, str], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        groups[measurement.operation, measurement.method].append(measurement)
    repeats = []
    for (operation, method), group in groups.items():
        powers_w = [m.power_w for m in group if m.power_usable and m.power_w is not None]
        time_s = median(m.time_s for m in group)
        repeats.append(_Repeats(operation, method, time_s, median(powers_w) if powers_w else None))
    # Another method has another host cost. It is of use only for operations that the main one left out.
    main = Counter(r.method for r in repeats).most_common(1)[0][0] if repeats else ""
    by_main = {r.operation for r in repeats if r.method == main}
    return [r for r in repeats if r.method == main or r.operation not in by_main]


def fit_forest(
    dataset: Dataset, mode: str, recipe: ForestRecipe, *, without: Collection[Operation] = ()
) -> OperationPredictor:
    """Fit time and power of one mode on a dataset.

    Args:
        dataset: Of one GPU at its default clock.
        mode: inference or training.
        recipe: Settings of the forest.
        without: Operations to leave out, all their repeats with them.

    Raises:
        DatasetError: Too few usable operations of this mode.
        MissingDependencyError: scikit-learn is not installed.
    """
    gpu = find_gpu(dataset.card.gpu)
    left_out = frozenset(without)
    repeats = _medians([m for m in dataset.usable(mode) if m.operation not in left_out])
    operations = [r.operation for r in repeats]
    if len(set(operations)) < LEAST_OPERATIONS:
        raise DatasetError(
            f"too few usable operations for {mode} on {gpu.name}",
            given=len(set(operations)),
            allowed=f"from {LEAST_OPERATIONS}",
        )
    has_power = np.array([r.power_w is not None for r in repeats])
    if has_power.sum() < LEAST_OPERATIONS:
        raise DatasetError(f"too few usable power readings for {mode} on {gpu.name}", given=int(has_power.sum()))
    loops = Loops(
        np.array([r.time_s for r in repeats]), np.array([np.nan if r.power_w is None else r.power_w for r in repeats])
    )
    methods = [r.method for r in repeats]
    matrix, line = features(operations, gpu, float(gpu.boost_clock_mhz))
    baseline = Baseline.fit(
        operations, loops, has_power, methods, line.time_s, gpu, frozenset(dataset.card.accumulates_gradients)
    )
    kinds = [operation.kind for operation in operations]
    loop_s = baseline.loop_s(kinds, line.time_s, methods)
    inputs = regressor_inputs(matrix, loop_s, baseline.host_s(kinds, methods))
    time = _new_forest(recipe).fit(inputs, np.log(loops.time_s / loop_s))
    power = _new_forest(recipe).fit(inputs[has_power], loops.power_w[has_power] / gpu.power_limit_w)
    return OperationPredictor(
        gpu=gpu,
        mode=mode,
        baseline=baseline,
        time=ForestRegressor(time),
        power=ForestRegressor(power),
        measured=frozenset(operation.digest for operation in operations),
    )
