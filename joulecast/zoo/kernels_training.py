"""From the datasets of many GPUs to the zoo entry of device times of kernels: validate, fit on everything, describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import DatasetError
from ..operations.attributes import HALF_PRECISIONS
from ..predictors.contract import Networks
from ..predictors.evaluation import kernels as evaluation
from ..predictors.evaluation.errors import ALL, Errors, Row, Validation, statistics
from ..predictors.measured import power_rows
from ..predictors.model.basis import Key
from ..predictors.model.features import first_kernels
from ..predictors.model.fit import LEAST_ROWS, Measured, fit_one_model, measured_tables
from ..predictors.model.fit_networks import network_errors, network_factors
from ..predictors.model.fit_power import fit_power, readings
from ..predictors.model.learned import OneModel
from ..predictors.model.shared import AnyGpuPredictor
from ..predictors.model.work import GROUPS, Work
from ..predictors.recipes import KernelRecipe
from .cards import ModelCard
from .catalogue import KERNELS_ENTRY
from .entry import Entry
from .golden import Sample, chosen
from .kinds import KERNELS_PREDICTOR
from .limits import limits_of_kernels
from .training import Loaded, Trained, all_networks, card_of


def train_kernels(loaded: Sequence[Loaded], recipe: KernelRecipe, base: AnyGpuPredictor | None = None) -> Trained:
    """Find the errors of a recipe on what is left out, then fit it on everything.

    Raises DatasetError: too few device times. Raises MissingDependencyError: scipy or xgboost is not installed.

    Args:
        loaded: Datasets. Operations that belong to no part are ignored.
        base: Predictor of the other operations in their networks; None where there are no networks.
    """
    data = [each.dataset for each in loaded]
    tables = measured_tables(data)
    if not tables:
        raise DatasetError(
            "too few device times of kernels",
            given=f"{sum(len(dataset.measurements) for dataset in data)} measurements of all kinds",
            allowed=f"from {LEAST_ROWS} of a part, such as linear layers in half precision",
            hint="collect more operations of these kernels",
        )
    validation, trust = evaluation.validate_kernels(tables, recipe)
    fitted = fit_one_model(tables, recipe)
    timed = replace(
        fitted,
        trust={part: trust.get(part, own) for part, own in fitted.trust.items()},
        errors={part: evaluation.stored_errors(validation.operations, part, "time") for part in fitted.measured},
    )
    powered = readings(timed, power_rows(data), recipe)
    powers = evaluation.validate_power(timed, powered, recipe)
    power = fit_power(powered, recipe, {table.generation for table in powered})
    stored = {part: evaluation.stored_errors(powers, part, "power", "energy") for part in power.measured}
    model = replace(timed, power=replace(power, errors=stored))
    if base is not None:
        model = _with_networks(model, all_networks(loaded), base)
    card = card_of(
        KERNELS_ENTRY,
        KERNELS_PREDICTOR,
        recipe,
        replace(
            validation,
            operations=Errors.joined([validation.operations, powers]),
            coverage=tuple(evaluation.coverage(validation.operations)),
        ),
        splits=evaluation.SPLITS,
        limits=limits_of_kernels(model),
        promise="Predicts device times and power of kernels in half precision and below. The predictors for any GPU "
        "use it for these operations, and predict all others themselves.",
        data=tuple(each.described() for each in loaded),
    )
    card = replace(card, errors=[*card.errors, *_network_rows(model)])
    return Trained(model, validation, card, _samples(tables))


def _samples(tables: Sequence[Measured]) -> list[Sample]:
    """A sample for each generation and group of kernels, on the first of its GPUs."""
    found: dict[Key, Sample] = {}
    for table in tables:
        work = Work.of(table.kernels)
        groups = work.group[first_kernels(work, len(table.device_s))]
        for group in np.unique(groups).tolist():
            mine = {table.kernels[place] for place in np.flatnonzero(groups == group).tolist()}
            key = (table.generation, GROUPS[group])
            found.setdefault(key, Sample(chosen(mine), table.gpu.name, key))
    return [found[key] for key in sorted(found)]


def learn_networks(loaded: Sequence[Loaded], kept: Entry, base: AnyGpuPredictor) -> Trained:
    """Learn factors and errors of networks again, after `base` was trained again or more networks were measured.

    Args:
        loaded: Datasets with measured networks, at least one in half precision.
        kept: The entry. Its device times and powers are copied unchanged.
    """
    model = _with_networks(kept.predictor, all_networks(loaded), base)
    card = kept.stored.card
    shown = [each for each in loaded if any(m.precision in HALF_PRECISIONS for m in each.dataset.networks)]
    new = [each.described() for each in shown]
    data = (*(each for each in card["data"] if each not in new), *new)
    rows = [row for row in card["errors"] if not row["split"].startswith(_IN_HALF)]
    told = {"data": data, "limits": limits_of_kernels(model), "errors": [*rows, *_network_rows(model)]}
    samples = [sample for sample, _ in kept.samples]
    return Trained(model, Validation("kernels", Errors()), ModelCard(**{**card, **told}), samples)


_IN_HALF = "networks in half precision"


def _network_rows(model: OneModel) -> list[Row]:
    """Errors on networks, with the factors of networks from those of other names, or of other chips."""
    found = []
    for basis, errors in model.network_errors.items():
        sizes = {quantity: statistics(np.expm1(errors[quantity])) for quantity in ("time", "energy", "power")}
        known: Row = {
            "split": f"{_IN_HALF}, factors from {basis}",
            "where": ALL,
            "what": ALL,
            "count": len(errors["time"]),
        }
        absolute = {q: {name: value for name, value in each.items() if name != "bias"} for q, each in sizes.items()}
        found.append(known | absolute)
    return found


def _with_networks(model: OneModel, networks: Networks, base: AnyGpuPredictor) -> OneModel:
    factors, errors = network_factors(base, model, networks), network_errors(base, model, networks)
    return replace(model, network_factors=factors, network_errors=errors)
