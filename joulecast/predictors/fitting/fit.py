"""From a recipe and datasets to a predictor.

What a chip adds is fitted to its loops. A predictor for any GPU is fitted in two steps. The first, which
takes long, learns from operations. The second learns what measured networks add to that. It is quick and repeated
often, because validation leaves out one network after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, TypeVar, cast

import numpy as np

from ...arrays import FloatArray, grouped
from ...datasets import Dataset, NetworkMeasurement
from ...errors import DatasetError
from ...hardware import find_gpu
from ...hardware.host import find_cpu
from ...operations.network import Network
from ...operations.operation import Operation
from ..chip import ChipPart
from ..contract import Networks, ResidualModel, regressor_inputs
from ..measured import (
    DeviceRow,
    MeasuredLoop,
    as_arrays,
    fit_baseline,
    measured_loops,
    transferred_loops,
    with_hidden,
)
from ..model.learned import OneModel
from ..model.shared import NoResidual, SharedByAll, chip_alone
from ..networks.composition import HostModel, counts_of, fit_network_static_w, fit_tf32_factor
from ..networks.on_cpu import CallModel, CpuPredictor, SerialModel, as_run, call_inputs
from ..networks.on_cpu import group_of as group_on_cpu
from ..networks.parts import gradient_fractions
from ..operation_predictions import OperationPredictions
from ..physics.baseline import group_of
from ..physics.fp32_kernels import counted_s
from ..physics.relative import relative_features
from ..recipes import Recipe
from ..regressors.fitted_trees import ONE_GPU_FORMS, form_of
from .forms import ANY_GPU_FORMS

_FACTORS = np.arange(0.5, 1.305, 0.01)
_BETWEEN_S = np.arange(0.0, 30.5e-6, 0.5e-6)
_LEAST_NETWORKS = 3  # Two constants need more than two networks.

Rows = Sequence[DeviceRow]
Model = TypeVar("Model", bound=ResidualModel)


def fit_on_all(
    datasets: Sequence[Dataset], networks: Networks, recipe: Recipe, kernels: OneModel | None = None
) -> ResidualModel:
    """Fit a recipe for any GPU on all data, beside a model of kernels where there is one.

    Raises DatasetError: there are too few device times. Raises MissingDependencyError: a library that this recipe
    trains with is not installed.
    """
    rows = [row for dataset in datasets for row in with_hidden(dataset)]
    return with_energies(fit_operations(datasets, rows, recipe), rows, networks, kernels)


def fit_operations(datasets: Sequence[Dataset], rows: Rows, recipe: Recipe) -> ResidualModel:
    """The first step: fit to these device times. The datasets are used for their launch times only."""
    return form_of(recipe, ANY_GPU_FORMS).operations(datasets, rows, recipe)


def with_energies(learned: Model, rows: Rows, networks: Networks, kernels: OneModel | None = None) -> Model:
    """The second step: learn energies from networks, too. Without networks, or of physics alone, nothing changes."""
    if not networks or isinstance(learned, NoResidual):
        return learned
    # Imported here, because reading an entry needs no training.
    from ..model.fit_networks import fit_energies

    energy = fit_energies(rows, networks, SharedByAll(learned, kernels=kernels))
    found: Model = replace(cast(Any, learned), energy=energy)
    return found


LEAST_OPERATIONS = 20
"""Least number of unique operations to fit a predictor."""


def fit_chip(dataset: Dataset, mode: str, recipe: Recipe, *, without: Collection[Operation] = ()) -> ChipPart:
    """Fit loops of one mode that were measured at a GPU's default clock, by a recipe of ONE_GPU_FORMS.

    Some operations can be left out, with all their repeats. Raises DatasetError: there are too few usable operations of
    this mode. Raises MissingDependencyError: a library that this recipe trains with is not installed.
    """
    gpu = find_gpu(dataset.card.gpu)
    accumulates = dataset.card.accumulates_gradients
    measured = measured_loops(dataset, mode, without)
    known = len({loop.operation for loop in measured}), sum(loop.power_w is not None for loop in measured)
    for name, count in zip(("operations", "power readings"), known, strict=True):
        if count < LEAST_OPERATIONS:
            what = f"too few usable {name} for {mode} on {gpu.name}"
            raise DatasetError(what, given=count, allowed=f"from {LEAST_OPERATIONS}")
    made: list[MeasuredLoop] = []
    if mode == "training":
        made = transferred_loops(measured, measured_loops(dataset, "inference"), gpu, accumulates, without)
    loops = measured + made
    baseline = fit_baseline(loops, gpu, accumulates)
    arrays = as_arrays(loops)
    has_power = ~np.isnan(arrays.power_w)
    operations, methods = [loop.operation for loop in loops], [loop.method for loop in loops]
    groups = [group_of(operation, gpu) for operation in operations]
    loop_s = baseline.loop_s(groups, counted_s(operations, gpu), methods)
    inputs = regressor_inputs(relative_features(operations, gpu), loop_s, baseline.host_s(groups, methods))
    form = form_of(recipe, ONE_GPU_FORMS)
    return ChipPart(
        gpu=gpu,
        mode=mode,
        baseline=baseline,
        time=form.fit(operations, inputs, np.log(arrays.time_s / loop_s), recipe, "time"),
        power=form.fit(
            [*compress(operations, has_power)],
            inputs[has_power],
            arrays.power_w[has_power] / gpu.power_limit_w,
            recipe,
            "power",
        ),
        measured=frozenset(loop.operation.digest for loop in measured),
        transferred=tuple(sorted({loop.operation.kind for loop in made})),
    )


def predict_network(chip: ChipPart, network: Network) -> tuple[FloatArray, OperationPredictions]:
    """Counts and predictions of a network's operations, as its parts.

    What the order of tensors costs (docs/how-it-works.md) was found on measured networks. A test on these very
    networks leaves it out.
    """
    fractions = gradient_fractions(network)
    predictor, counts = chip_alone(chip), counts_of(network)
    found = predictor.in_network(predictor.predict(network.operations))
    return counts, found.times(fractions, fractions)


def learn_from_networks(
    chip: ChipPart, networks: Sequence[tuple[NetworkMeasurement, Network]], mode: str
) -> tuple[ChipPart, HostModel]:
    """Learn from measured networks what loops do not show: the host cost per call, operations in TF32, static power."""
    known = [(*predict_network(chip, network), m) for m, network in networks]
    times = [(counts, found, m.time_s) for counts, found, m in known]
    host = HostModel.fit(times, mode)
    if mode == "inference" and "tf32" in chip.gpu.peak_flops:
        chip = replace(chip, network_tf32_factor=fit_tf32_factor(times, host))
    predictor = chip_alone(chip)
    powers = [(c, predictor.in_network(found), m.known_energy_j / m.time_s) for c, found, m in known]
    static_w = fit_network_static_w(powers, host, chip.gpu.power_limit_w)
    return replace(chip, network_static_w=static_w), host


def quickest_loops(dataset: Dataset, mode: str, without: Collection[Operation] = ()) -> list[MeasuredLoop]:
    """One loop per operation: its quickest repeat, because other programs can only make a loop on a CPU longer."""
    left_out = frozenset(map(as_run, without))
    repeats = grouped((as_run(m.operation), m) for m in dataset.usable(mode))
    return [MeasuredLoop.of(operation, group, min) for operation, group in repeats.items() if operation not in left_out]


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
    inputs, by_constants_s = call_inputs(operations, calls, [group_on_cpu(operation) for operation in operations])
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
    """Learn how operations add up: the constants with the least mean absolute logarithmic error of networks' times."""
    known = [(counts_of(network), predictor.predict(network.operations).time_s, m.time_s) for m, network in networks]
    if len(known) < _LEAST_NETWORKS:
        return SerialModel()
    sums_s = np.array([float(np.nansum(counts * time_s)) for counts, time_s, _ in known])
    calls, measured_s = np.array([(float(counts.sum()), seconds) for counts, _, seconds in known]).T
    predicted_s = _FACTORS[:, None, None] * sums_s + _BETWEEN_S[:, None] * calls
    errors = abs(np.log(predicted_s / measured_s)).mean(axis=-1)
    factor, between = divmod(int(errors.argmin()), len(_BETWEEN_S))
    return SerialModel(round(float(_FACTORS[factor]), 2), round(float(_BETWEEN_S[between]), 8), len(known))
