"""Fitting predictors of a CPU to a dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from statistics import median

import numpy as np

from ...datasets import Dataset, Measurement, NetworkMeasurement
from ...errors import DatasetError
from ...hardware.cpu import find_cpu
from ...operations.network import Network
from ...operations.operation import Operation
from ..measured.rows import MeasuredLoop
from ..networks.composition import counts_of
from ..recipes import Recipe
from ..regressors.forms import ONE_GPU_FORMS, form_of
from .network import SerialModel
from .predictor import CallModel, CpuPredictor, as_run, call_inputs, group_of

LEAST_OPERATIONS = 20
"""Least number of unique operations to fit a predictor."""


def quickest_loops(dataset: Dataset, mode: str, without: Collection[Operation] = ()) -> list[MeasuredLoop]:
    """One loop per operation: its quickest repeat, because other programs can only make a loop on a CPU longer."""
    left_out = frozenset(map(as_run, without))
    repeats: dict[Operation, list[Measurement]] = defaultdict(list)
    for measurement in dataset.usable(mode):
        if (operation := as_run(measurement.operation)) not in left_out:
            repeats[operation].append(measurement)
    loops = []
    for operation, group in repeats.items():
        powers_w = [m.power_w for m in group if m.power_usable and m.power_w is not None]
        time_s = min(m.time_s for m in group)
        loops.append(MeasuredLoop(operation, group[0].method, time_s, median(powers_w) if powers_w else None))
    return loops


def quickest_networks(measured: Iterable[NetworkMeasurement]) -> list[NetworkMeasurement]:
    """One measurement per network, input shape, precision and mode: the quickest repeat."""
    quickest: dict[tuple[object, ...], NetworkMeasurement] = {}
    for m in measured:
        key = (m.network, m.input_shape, m.precision, m.mode)
        quickest[key] = min(m, quickest.get(key, m), key=lambda each: each.time_s)
    return list(quickest.values())


def fit_cpu(dataset: Dataset, mode: str, recipe: Recipe, *, without: Collection[Operation] = ()) -> CpuPredictor:
    """Fit time and, where it was measured, power of one mode on a dataset, by a recipe of ONE_GPU_FORMS.

    Raises DatasetError: there are too few usable operations of this mode. Raises MissingDependencyError: a library that
    this recipe trains with is not installed.
    """
    loops = quickest_loops(dataset, mode, without)
    if len(loops) < LEAST_OPERATIONS:
        raise DatasetError(
            f"too few usable operations for {mode} on {dataset.card.gpu}",
            given=len(loops),
            allowed=f"from {LEAST_OPERATIONS}",
            hint="`joulecast collect cpu --device cpu` measures more",
        )
    operations = [loop.operation for loop in loops]
    time_s = np.array([loop.time_s for loop in loops])
    calls = CallModel.fit(operations, time_s)
    inputs, by_constants_s = call_inputs(operations, calls, [group_of(operation) for operation in operations])
    form = form_of(recipe, ONE_GPU_FORMS)
    fitted = CpuPredictor(
        cpu=find_cpu(dataset.card.gpu),
        mode=mode,
        threads=dataset.card.threads or 1,
        calls=calls,
        time=form.fit(operations, inputs, np.log(time_s / by_constants_s), recipe, "time"),
        measured=frozenset(operation.digest for operation in operations),
    )
    powers_w = np.array([np.nan if loop.power_w is None else loop.power_w for loop in loops])
    known = ~np.isnan(powers_w)
    if known.sum() < LEAST_OPERATIONS:
        return fitted
    typical_w = float(np.median(powers_w[known]))
    powered = [operation for operation, is_known in zip(operations, known.tolist(), strict=True) if is_known]
    power = form.fit(powered, inputs[known], powers_w[known] / typical_w, recipe, "power")
    return replace(fitted, power=power, typical_power_w=typical_w)


def fit_serial(predictor: CpuPredictor, networks: Iterable[tuple[NetworkMeasurement, Network]]) -> SerialModel:
    """Learn how operations add up from measured networks."""
    return SerialModel.fit([(counts_of(n), predictor.predict(n.operations), m.time_s) for m, n in networks])
