"""From the datasets of many GPUs to the zoo entry of device times of kernels: validate, fit on everything, describe.

Measured networks show how much longer operations in half precision take inside them than alone. Two numbers are
learned, which hold on all chips: a factor on products, and the cycles in which load units load an element of another
operation (predictors/kernels/in_networks.py). Learned from an A100 alone and from an A10 alone, the first is 1.30 and
1.31; an A10 has too little bandwidth to show the second (energaizer2026).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ..arrays import FloatArray
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
from ..predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ..predictors.kernels.families import FAMILIES
from ..predictors.kernels.family import Names
from ..predictors.kernels.fit import LEAST_ROWS, Measured, by_variant, fit_kernels
from ..predictors.kernels.fit_power import Readings, fit_power, readings
from ..predictors.kernels.in_networks import NetworkFactors, cached_products, loaded_elements
from ..predictors.kernels.learned import Kernels, NetworkBasis
from ..predictors.kernels.power import PowerDemand
from ..predictors.measured.rows import power_rows
from ..predictors.physics.norms import overlapped
from ..predictors.recipes import KernelRecipe
from .catalogue import KERNELS_ENTRY
from .entries.any_gpu_entry import AnyGpuEntry
from .entries.cards import KernelsCard, made_now
from .entries.kernels_entry import Golden, KernelsEntry, save_kernels
from .entries.stored import GOLDEN_OPERATIONS, golden_sample
from .training import Trained, described

_PRODUCTS = (0.7, 2.5)  # No network shows more.
_MOST_CYCLES = 1.0
_LEAST = 1e-12  # Instead of a division by zero, where no network has products.


class _Shown(NamedTuple):
    """What a measured network shows of operations inside networks. Times are relative to its predicted time.

    Args:
        chip: Chip that it was measured on.
        network: Its name.
        products: Time in which products would find their data in the cache, if they ran in loops.
        others: Time of each operation whose elements the load units may bound, shape (operations,).
        loading: Time in which load units load these elements at a cycle for each, shape (operations,).
        slower: Time beyond what is predicted from operations alone.
    """

    chip: str
    network: str
    products: float
    others: FloatArray
    loading: FloatArray
    slower: float


def network_factors(entry: AnyGpuEntry, kernels: Kernels, networks: Networks) -> NetworkFactors:
    """The factors with which predicted times of networks come closest to the measured ones.

    A network counts by the square root of the number of its measurements, at several shapes and clocks. Networks that
    wait for their host are left out.

    Args:
        entry: Predictor of the operations that kernels do not cover.
        kernels: Device times of kernels; factors that they have are ignored.
        networks: Measured networks. Those in other precisions are ignored.
    """
    return _fitted(_shown(entry, kernels, networks))


def network_errors(
    entry: AnyGpuEntry, kernels: Kernels, networks: Networks
) -> dict[NetworkBasis, dict[str, tuple[float, ...]]]:
    """Errors on measured networks in half precision, with factors from networks of other names, or of other chips.

    Device times and energies of operations are those of the whole entry, which were learned from operations, and from
    all networks together.

    Args:
        entry: Predictor of the operations that kernels do not cover.
        kernels: Device times of kernels; factors that they have are ignored.
        networks: Measured networks. Those in other precisions are ignored.

    Returns:
        Basis -> quantity -> sorted absolute log errors.
    """
    shown = _shown(entry, kernels, networks)
    found: dict[NetworkBasis, list[FloatArray]] = defaultdict(list)
    for gpu, measurement, network in _in_half(networks):
        splits: dict[NetworkBasis, NetworkFactors] = {
            "networks of the chip": _fitted([each for each in shown if each.network != measurement.network]),
            "networks of other chips": _fitted([each for each in shown if each.chip != gpu.chip]),
        }
        for basis, factors in splits.items():
            if gpu.chip in factors.chips or basis == "networks of other chips":
                asking = replace(entry, kernels=replace(kernels, network_factors=factors))
                predicted = asking.on(gpu, measurement.mode).predict(network, measurement.clock_mhz)
                time, energy = (
                    predicted.time_s / measurement.time_s,
                    predicted.known_energy_j / measurement.known_energy_j,
                )
                found[basis].append(np.abs(np.log([time, energy / time, energy, time * energy])))
    return {
        basis: {
            quantity: tuple(float(f"{error:.4g}") for error in sorted(errors))
            for quantity, errors in zip(NETWORK_QUANTITIES, np.transpose(rows).tolist(), strict=True)
        }
        for basis, rows in found.items()
    }


def _in_half(networks: Networks) -> Networks:
    return [each for each in networks if each[1].precision in HALF_PRECISIONS]


def _shown(entry: AnyGpuEntry, kernels: Kernels, networks: Networks) -> list[_Shown]:
    asking = replace(entry, kernels=replace(kernels, network_factors=NetworkFactors()))
    found = []
    for gpu, measurement, network in _in_half(networks):
        predicted = asking.on(gpu, measurement.mode).predict(network, measurement.clock_mhz)
        clock_mhz = predicted.held_clock_mhz
        if clock_mhz is not None and predicted.device_time_s > 2 * predicted.host_time_s:
            operations, calls = network.operations, np.array([cost.count for cost in predicted.operations])
            times_s = np.array([cost.device_time_s or 0.0 for cost in predicted.operations])  # for all calls of each
            by_kernels = ~np.isnan(kernels.device_s(operations, gpu))
            elements = calls * loaded_elements(operations, by_kernels)
            loading = elements > 0
            found.append(
                _Shown(
                    gpu.chip,
                    measurement.network,
                    float(times_s @ cached_products(operations, gpu, by_kernels)) / predicted.time_s,
                    times_s[loading] / predicted.time_s,
                    elements[loading] / (gpu.sms * 1e6 * clock_mhz) / predicted.time_s,
                    measurement.time_s / predicted.time_s - 1,
                )
            )
    return found


def _fitted(shown: Sequence[_Shown]) -> NetworkFactors:
    """The factors that fit best by least squares; all measurements of a network count as much as their square root."""
    counts = Counter((each.chip, each.network) for each in shown)
    weights = np.array([counts[each.chip, each.network] ** -0.25 for each in shown])  # the squares count
    products = np.array([each.products for each in shown]) * weights

    def left_over(cycles: float) -> FloatArray:
        loading = [(overlapped(each.others, cycles * each.loading) - each.others).sum() for each in shown]
        left: FloatArray = (np.array([each.slower for each in shown]) - loading) * weights
        return left

    def factor(cycles: float) -> float:
        more = products @ left_over(cycles) / max(products @ products, _LEAST)
        return float(np.clip(1 + more, *_PRODUCTS))

    def squares(cycles: float) -> float:
        return float(((left_over(cycles) - (factor(cycles) - 1) * products) ** 2).sum())

    cycles = float(minimize_scalar(squares, bounds=(0.0, _MOST_CYCLES), method="bounded").x)
    return NetworkFactors(round(factor(cycles), 3), round(cycles, 3), tuple(sorted({each.chip for each in shown})))


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
