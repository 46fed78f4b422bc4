"""Fitting a GPU's own predictor for one mode, with any recipe."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ...datasets import Dataset
from ...errors import DatasetError
from ...hardware import GPU, find_gpu
from ...operations.operation import Operation
from ..measured.loops import MeasuredLoop, as_arrays, fit_baseline, measured_loops
from ..measured.transfer import transferred_loops
from ..physics.baseline import group_of
from ..physics.features import features
from ..predictor import OperationPredictor, regressor_inputs
from ..recipes import Recipe
from ..regressors.forms import ONE_GPU_FORMS

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
