"""One way to fit any recipe: `fit(recipe, datasets, networks).on(gpu, mode).predict(operations, clock_mhz)`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...datasets import Dataset
from ...errors import DatasetError, InputError, unknown_name
from ...hardware import GPU, find_gpu
from ...operations.operation import MODES, Operation
from ..contract import Fit, Fitted, Networks
from ..measured.rows import MeasuredLoop, as_arrays, fit_baseline, measured_loops, transferred_loops
from ..physics.baseline import group_of
from ..physics.features import features
from ..predictor import OperationPredictor, regressor_inputs
from ..recipes import Recipe, read_recipe, recipe_of
from ..regressors.forms import ONE_GPU_FORMS
from .any_gpu import ANY_GPU_FORMS, fit_on_all

LEAST_OPERATIONS = 20
"""Least number of unique operations to fit a predictor."""


def fit_own(dataset: Dataset, mode: str, recipe: Recipe, *, without: Collection[Operation] = ()) -> OperationPredictor:
    """Fit time and power of one mode on a dataset.

    Args:
        dataset: Measurements of one GPU at its default clock.
        mode: inference or training.
        recipe: Settings of a form in ONE_GPU_FORMS.
        without: Operations to leave out, with all their repeats.

    Raises:
        DatasetError: There are too few usable operations of this mode.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    gpu = find_gpu(dataset.card.gpu)
    accumulates = dataset.card.accumulates_gradients
    measured = measured_loops(dataset, mode, without)
    _refuse_too_few(measured, mode, gpu)
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
    form = next(form for form in ONE_GPU_FORMS.values() if form.settings is type(recipe))
    return OperationPredictor(
        gpu=gpu,
        mode=mode,
        baseline=baseline,
        time=form.fit(operations, inputs, np.log(arrays.time_s / loop_s), recipe, "time"),
        power=form.fit(
            [operation for operation, known in zip(operations, has_power, strict=True) if known],
            inputs[has_power],
            arrays.power_w[has_power] / gpu.power_limit_w,
            recipe,
            "power",
        ),
        measured=frozenset(loop.operation.digest for loop in measured),
        transferred=tuple(sorted({loop.operation.kind for loop in made})),
    )


def _refuse_too_few(measured: list[MeasuredLoop], mode: str, gpu: GPU) -> None:
    counts: dict[str, Any] = {
        "operations": len({loop.operation for loop in measured}),
        "power readings": sum(loop.power_w is not None for loop in measured),
    }
    for name, count in counts.items():
        if count < LEAST_OPERATIONS:
            raise DatasetError(
                f"too few usable {name} for {mode} on {gpu.name}", given=count, allowed=f"from {LEAST_OPERATIONS}"
            )


RECIPES: Mapping[str, type[Recipe]] = {
    name: form.settings for forms in (ONE_GPU_FORMS, ANY_GPU_FORMS) for name, form in forms.items()
}
"""Name of a predictor -> class of its settings."""


def predictor_of(recipe: Recipe) -> str:
    """The name of the predictor in files of this class of recipes."""
    return next(name for name, settings in RECIPES.items() if settings is type(recipe))


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe; see `read_recipe`. Its key `predictor` is a name in RECIPES."""
    return read_recipe(path, _recipe)


def _recipe(values: dict[str, Any]) -> Recipe:
    name = values.pop("predictor", None)
    if name not in RECIPES:
        raise unknown_name("predictor of a recipe", name, RECIPES)
    return recipe_of(RECIPES[name], values, f"{name} recipe")


@dataclass(frozen=True)
class FittedOwn:
    """Predictors of single GPUs, each fitted on its own measurements."""

    predictors: Mapping[tuple[str, str], OperationPredictor]

    def on(self, gpu: GPU, mode: str) -> OperationPredictor:
        """See `Fitted.on`."""
        if (gpu.name, mode) not in self.predictors:
            raise InputError(
                "this recipe was fitted for other GPUs and modes",
                given=f"{gpu.name}, {mode}",
                allowed="; ".join(", ".join(each) for each in self.predictors),
                hint="give it a dataset of this GPU, or take a recipe for any GPU",
            )
        return self.predictors[gpu.name, mode]


def fit(recipe: Recipe, datasets: Sequence[Dataset], networks: Networks = ()) -> Fitted:
    """Fit a recipe.

    Args:
        recipe: Settings of any predictor in `RECIPES`.
        datasets: Measurements of the GPUs to predict, or of any GPUs, depending on the recipe.
        networks: Measured networks to learn from. A GPU's own predictor does not use them.

    Raises:
        DatasetError: There are too few measurements.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    return FITS[type(recipe)](datasets, networks, recipe)


def _fit_own(datasets: Sequence[Dataset], networks: Networks, recipe: Recipe) -> FittedOwn:
    return FittedOwn(
        {
            (find_gpu(dataset.card.gpu).name, mode): fit_own(dataset, mode, recipe)
            for dataset in datasets
            for mode in MODES
            if dataset.usable(mode)
        }
    )


FITS: Mapping[type[Recipe], Fit] = {
    **{form.settings: _fit_own for form in ONE_GPU_FORMS.values()},
    **{form.settings: fit_on_all for form in ANY_GPU_FORMS.values()},
}
"""Class of recipe -> function that fits it."""
