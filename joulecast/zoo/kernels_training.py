"""From the datasets of many GPUs to the zoo entry of device times of kernels: validate, fit on everything, describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import Dataset
from ..errors import DatasetError
from ..operations.attributes import HALF_PRECISIONS
from ..operations.operation_list import OperationList
from ..predictors.contract import Networks
from ..predictors.evaluation.kernels import (
    SPLITS,
    Validation,
    coverage,
    error_tables,
    stored_errors,
    stored_power_errors,
    validate_kernels,
    validate_power,
)
from ..predictors.measured.rows import power_rows
from ..predictors.model.basis import generation_of
from ..predictors.model.features import first_kernels
from ..predictors.model.fit import LEAST_ROWS, Measured, fit_one_model, measured_tables
from ..predictors.model.fit_power import fit_power, readings
from ..predictors.model.learned import Key, OneModel
from ..predictors.model.work import GROUPS, Work
from ..predictors.recipes import KernelRecipe
from .catalogue import KERNELS_ENTRY
from .entries.any_gpu_entry import AnyGpuEntry
from .entries.cards import KernelsCard, made_now
from .entries.kernels_entry import Golden, KernelsEntry, save_kernels
from .entries.stored import GOLDEN_OPERATIONS, golden_sample
from .kernel_networks import network_errors, network_factors
from .training import Trained, described

LIMITS = (
    "Device times and power were measured at the default clock and cap only. For other clocks and caps, they are "
    "scaled by physics.",
    "Power was measured on H200, B200 and GB200 only. It depends on the values that are multiplied, and some engines "
    "were measured with zeros.",
    "Linear layers were measured in bf16. fp16 is assumed to behave the same, because tensor cores have the same rate.",
    "Quantized layers were measured in the kernels of engines for language models, not in PyTorch's.",
    "On a GPU of an unmeasured generation, errors are larger than in the tables of left-out generations if it differs "
    "more from the measured generations than these differ from each other.",
)


TrainedKernels = Trained[OneModel, Validation, KernelsCard]
"""The trained model of kernels with its validation and card, ready to be stored."""


def train_kernels(
    datasets: Sequence[tuple[Path, Dataset]],
    recipe: KernelRecipe,
    networks: Networks = (),
    base: AnyGpuEntry | None = None,
) -> TrainedKernels:
    """Find the errors of a recipe on what is left out, then fit it on everything.

    Args:
        datasets: Datasets with the folders that they were loaded from. Operations that belong to no part are ignored.
        recipe: Settings.
        networks: Measured networks, to learn how much longer kernels take inside them.
        base: Predictor of the other operations in these networks; None where there are no networks.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: scipy or xgboost is not installed.
    """
    data = [dataset for _, dataset in datasets]
    tables = measured_tables(data)
    if not tables:
        raise DatasetError(
            "too few device times of kernels",
            given=f"{sum(len(dataset.measurements) for dataset in data)} measurements of all kinds",
            allowed=f"from {LEAST_ROWS} of a part, such as linear layers in half precision",
            hint="collect more operations of these kernels",
        )
    validation = validate_kernels(tables, recipe)
    fitted = fit_one_model(tables, recipe)
    timed = replace(
        fitted,
        trust={part: validation.trust.get(part, trust) for part, trust in fitted.trust.items()},
        errors={part: stored_errors(validation, part) for part in fitted.measured},
    )
    powered = readings(timed, power_rows(data), recipe)
    powers = validate_power(timed, powered, recipe)
    power = fit_power(powered, recipe, {generation_of(table.gpu) for table in powered})
    model = replace(
        timed, power=replace(power, errors={part: stored_power_errors(powers, part) for part in power.measured})
    )
    if networks and base is not None:
        model = _with_networks(model, networks, base)
    card = KernelsCard(
        name=KERNELS_ENTRY,
        kernels={part: tuple(sorted(gpus)) for part, gpus in model.measured.items()},
        recipe=recipe.to_dict(),
        data=tuple(described(folder, dataset) for folder, dataset in datasets),
        splits=SPLITS,
        errors=error_tables(validation.times),
        coverage=coverage(validation),
        power_errors=error_tables(powers),
        limits=LIMITS,
        **made_now(),
        **_of_networks(model),
    )
    return TrainedKernels(model, replace(validation, powers=powers), card, _golden(tables), save_kernels)


def learn_networks(
    datasets: Sequence[tuple[Path, Dataset]], kept: KernelsEntry, networks: Networks, base: AnyGpuEntry
) -> TrainedKernels:
    """Learn factors and errors of networks again, after `base` was trained again or more networks were measured.

    Args:
        datasets: Datasets of the networks, with the folders that they were loaded from.
        kept: The entry. Its device times and powers are copied unchanged.
        networks: Measured networks, at least one in half precision.
        base: Predictor of the other operations in these networks.
    """
    model = _with_networks(kept.kernels, networks, base)
    shown = [each for each in datasets if any(m.precision in HALF_PRECISIONS for m in each[1].networks)]
    old = kept.card["data"]
    new = [described(folder, dataset) for folder, dataset in shown]
    data = (*(each for each in old if each not in new), *new)
    card = KernelsCard(**{**kept.card, "data": data, "limits": LIMITS, **_of_networks(model)})
    return TrainedKernels(model, Validation((), {}), card, kept.golden, save_kernels)


def _of_networks(model: OneModel) -> dict[str, Any]:
    return {
        "network_factors": model.network_factors._asdict(),
        "network_errors": {basis: dict(errors) for basis, errors in model.network_errors.items()},
    }


def _with_networks(model: OneModel, networks: Networks, base: AnyGpuEntry) -> OneModel:
    factors, errors = network_factors(base, model, networks), network_errors(base, model, networks)
    return replace(model, network_factors=factors, network_errors=errors)


def _golden(tables: Sequence[Measured]) -> Golden:
    found: dict[Key, Any] = {}
    for table in tables:
        work = Work.of(table.kernels)
        groups = work.group[first_kernels(work, len(table.device_s))]
        for group in np.unique(groups).tolist():
            mine = OperationList(table.kernels[place] for place in np.flatnonzero(groups == group).tolist())
            key = table.generation, GROUPS[group]
            found.setdefault(key, (table.gpu.name, golden_sample(set(mine))[:GOLDEN_OPERATIONS]))
    return found
