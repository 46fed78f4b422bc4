"""Forests: fit an OperationPredictor on a Dataset with scikit-learn."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import Dataset
from ..errors import DatasetError, MissingDependencyError
from ..hardware import find_gpu
from ..operations import Operation
from .baseline import group_of
from .features import features
from .loops import MeasuredLoop, as_arrays, fit_baseline, measured_loops
from .predictor import OperationPredictor, regressor_inputs
from .recipe import ForestRecipe
from .transfer import transferred_loops

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
    accumulates = dataset.card.accumulates_gradients
    measured = measured_loops(dataset, mode, without)
    unique = {loop.operation for loop in measured}
    if len(unique) < LEAST_OPERATIONS:
        raise DatasetError(
            f"too few usable operations for {mode} on {gpu.name}", given=len(unique), allowed=f"from {LEAST_OPERATIONS}"
        )
    with_power = sum(loop.power_w is not None for loop in measured)
    if with_power < LEAST_OPERATIONS:
        raise DatasetError(
            f"too few usable power readings for {mode} on {gpu.name}",
            given=with_power,
            allowed=f"from {LEAST_OPERATIONS}",
        )
    made: list[MeasuredLoop] = []
    if mode == "training":
        made = transferred_loops(measured, measured_loops(dataset, "inference"), gpu, accumulates, without)
    loops = measured + made
    baseline = fit_baseline(loops, gpu, accumulates)
    arrays = as_arrays(loops)
    has_power = ~np.isnan(arrays.power_w)
    operations, methods = [loop.operation for loop in loops], [loop.method for loop in loops]
    groups = [group_of(operation, gpu) for operation in operations]
    matrix, line = features(operations, gpu, float(gpu.boost_clock_mhz))
    loop_s = baseline.loop_s(groups, line.time_s, methods)
    inputs = regressor_inputs(matrix, loop_s, baseline.host_s(groups, methods))
    time = _new_forest(recipe).fit(inputs, np.log(arrays.time_s / loop_s))
    power = _new_forest(recipe).fit(inputs[has_power], arrays.power_w[has_power] / gpu.power_limit_w)
    return OperationPredictor(
        gpu=gpu,
        mode=mode,
        baseline=baseline,
        time=ForestRegressor(time),
        power=ForestRegressor(power),
        measured=frozenset(operation.digest for operation in unique),
        transferred=tuple(sorted({loop.operation.kind for loop in made})),
    )
