"""From the datasets of many GPUs to the zoo entry of device times of kernels: validate, fit on everything, describe."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..datasets import Dataset
from ..errors import DatasetError
from ..operations.attributes import HALF_PRECISIONS
from ..predictors.contract import Networks
from ..predictors.evaluation.kernels import (
    SPLITS,
    KernelErrors,
    coverage,
    stored_errors,
    tables,
    validate_kernels,
    validate_power,
)
from ..predictors.kernels.families import FAMILIES
from ..predictors.kernels.family import Names
from ..predictors.kernels.fit import LEAST_ROWS, Measured, by_variant, fit_kernels
from ..predictors.kernels.fit_power import Readings, fit_power, readings
from ..predictors.kernels.learned import Kernels
from ..predictors.kernels.power import PowerDemand
from ..predictors.measured.rows import power_rows
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


TrainedKernels = Trained[Kernels, tuple[KernelErrors, ...], KernelsCard]
"""Trained models of kernels with their validation and card, ready to be stored."""


def train_kernels(
    datasets: Sequence[tuple[Path, Dataset]],
    recipe: KernelRecipe,
    families: Collection[str] = tuple(FAMILIES),
    kept: KernelsEntry | None = None,
    networks: Networks = (),
    base: AnyGpuEntry | None = None,
) -> TrainedKernels:
    """Find the errors of a recipe on what is left out, then fit it on everything.

    Args:
        datasets: Datasets with the folders that they were loaded from. Operations that belong to no family are ignored.
        recipe: Settings.
        families: Families whose device times are learned. Power is learned for all that the datasets have readings of.
        kept: An entry whose other families are copied unchanged; None to train without one.
        networks: Measured networks, to learn how much longer kernels take inside them. Where there are none, the
            factors of `kept` are copied.
        base: Predictor of the other operations in these networks; None where there are no networks.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: scipy or xgboost is not installed.
    """
    data = [dataset for _, dataset in datasets]
    measured = {names: found for names, found in by_variant(data).items() if names[0] in families}
    fitted = fit_kernels(measured, recipe)
    if not fitted.variants:
        most = max((sum(len(table.device_s) for table in tables) for tables in measured.values()), default=0)
        raise DatasetError(
            "too few device times of kernels",
            given=f"{most} of the variant with the most",
            allowed=f"from {LEAST_ROWS} of a variant",
            hint="collect more operations of these kernels",
        )
    learned = {names: measured[names] for names in fitted.variants}
    # Families that are trained again are not read: their features may have changed since the entry was written.
    stored = {} if kept is None else kept.kernels.variants
    others = {names: stored[names] for names in stored if names[0] not in families}
    validation = validate_kernels(learned, recipe)
    timed = Kernels(
        {
            **others,
            **{
                n: replace(v, errors={b: e["time"] for b, e in stored_errors(validation, n).items()})
                for n, v in fitted.variants.items()
            },
        }
    )
    powered = readings(timed, power_rows(data))
    power_validation = validate_power(timed, powered, recipe)
    variants = {
        names: replace(variant, power=_power(powered[names], power_validation, names, recipe))
        if names in powered
        else variant
        for names, variant in timed.variants.items()
    }
    stays = {", ".join(names) for names in others}
    old = {} if kept is None else kept.card
    kernels = Kernels(variants)
    if kept is not None:
        shown = kept.kernels.network_factors, kept.kernels.network_errors
        kernels = replace(kernels, network_factors=shown[0], network_errors=shown[1])
    if networks and base is not None:
        kernels = _with_networks(kernels, networks, base)
    card = KernelsCard(
        name=KERNELS_ENTRY,
        kernels={", ".join(names): tuple(sorted(variant.gpus)) for names, variant in variants.items()},
        recipe=recipe.to_dict(),
        data=_united(old.get("data", ()), [described(folder, dataset) for folder, dataset in datasets]),
        splits=SPLITS,
        errors=_with_old(old.get("errors", {}), stays, tables(validation)),
        coverage=_with_old(old.get("coverage", {}), stays, coverage(validation)),
        power_errors=_with_old(old.get("power_errors", {}), stays, tables(power_validation)),
        network_factors=kernels.network_factors._asdict(),
        network_errors={basis: dict(errors) for basis, errors in kernels.network_errors.items()},
        limits=LIMITS,
        **made_now(),
    )
    golden = {} if kept is None else {names: kept.golden[names] for names in others if names in kept.golden}
    return Trained(kernels, validation, card, {**golden, **_golden(learned)}, save_kernels)


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
    kernels = _with_networks(kept.kernels, networks, base)
    shown = [each for each in datasets if any(m.precision in HALF_PRECISIONS for m in each[1].networks)]
    card = KernelsCard(
        **{
            **kept.card,
            "data": _united(kept.card["data"], [described(folder, dataset) for folder, dataset in shown]),
            "network_factors": kernels.network_factors._asdict(),
            "network_errors": {basis: dict(errors) for basis, errors in kernels.network_errors.items()},
            "limits": LIMITS,
        }
    )
    return Trained(kernels, (), card, kept.golden, save_kernels)


def _with_networks(kernels: Kernels, networks: Networks, base: AnyGpuEntry) -> Kernels:
    factors, errors = network_factors(base, kernels, networks), network_errors(base, kernels, networks)
    return replace(kernels, network_factors=factors, network_errors=errors)


def _with_old(old: Mapping[str, Any], stays: Collection[str], new: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a card: those of variants that are copied, and the new ones."""
    return {**{names: rows for names, rows in old.items() if names in stays}, **new}


def _united(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Descriptions of the old and new datasets, without duplicates."""
    return (*(each for each in old if each not in new), *new)


def _power(
    tables: Sequence[Readings], validation: Sequence[KernelErrors], names: Names, recipe: KernelRecipe
) -> PowerDemand:
    return replace(fit_power(tables, recipe), errors=stored_errors(validation, names))


def _golden(measured: Mapping[Names, Sequence[Measured]]) -> Golden:
    return {
        names: (tables[0].gpu.name, golden_sample(set(tables[0].operations))[:GOLDEN_OPERATIONS])
        for names, tables in measured.items()
    }
