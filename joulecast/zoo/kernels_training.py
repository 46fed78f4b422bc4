"""From the datasets of many GPUs to the zoo entry of device times of kernels: validate, fit on everything, describe.

Measured networks show how much longer operations in half precision take inside them than alone. Two numbers are
learned, which hold on all chips: a factor on products, and the cycles in which load units load an element of another
operation (predictors/model/in_networks.py). Learned from an A100 alone and from an A10 alone, the first is 1.29 and
1.24; an A10 has too little bandwidth to show the second (energaizer2026).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ..arrays import FloatArray
from ..errors import DatasetError
from ..operations.attributes import HALF_PRECISIONS
from ..predictors.contract import Networks
from ..predictors.evaluation import kernels as evaluation
from ..predictors.evaluation.errors import ALL, Errors, Row, Validation, statistics
from ..predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ..predictors.measured import power_rows
from ..predictors.model.basis import generation_of
from ..predictors.model.features import first_kernels
from ..predictors.model.fit import LEAST_ROWS, Measured, fit_one_model, measured_tables
from ..predictors.model.fit_power import fit_power, readings
from ..predictors.model.in_networks import NetworkFactors, cached_products, loaded_elements
from ..predictors.model.learned import Key, NetworkBasis, OneModel
from ..predictors.model.work import GROUPS, Work
from ..predictors.physics.norms import overlapped
from ..predictors.recipes import KernelRecipe
from .cards import ModelCard, golden_sample
from .catalogue import KERNELS_ENTRY
from .kernels_entry import KERNELS_PREDICTOR, KernelsEntry, content_of_kernels
from .other_entries import AnyGpuEntry
from .training import Loaded, Trained, all_networks, card_of

_PRODUCTS = (0.7, 2.5)  # No network shows more.
_MOST_CYCLES = 1.0
_LEAST = 1e-12  # Instead of a division by zero, where no network has products.


class _Shown(NamedTuple):
    """What a measured network shows of operations inside networks. Times are relative to its predicted time.

    Args:
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


def network_factors(entry: AnyGpuEntry, kernels: OneModel, networks: Networks) -> NetworkFactors:
    """The factors with which predicted times of networks come closest to the measured ones.

    A network counts by the square root of the number of its measurements, at several shapes and clocks. Networks that
    wait for their host are left out.

    Args:
        kernels: Device times of kernels; factors that they have are ignored.
        networks: Measured networks. Those in other precisions are ignored.
    """
    return _fitted(_shown(entry, kernels, networks))


def network_errors(
    entry: AnyGpuEntry, kernels: OneModel, networks: Networks
) -> dict[NetworkBasis, dict[str, tuple[float, ...]]]:
    """Errors on measured networks in half precision, with factors from networks of other names, or of other chips.

    Device times and energies of operations are those of the whole entry, which were learned from operations, and from
    all networks together. Returns basis -> quantity -> sorted absolute log errors.
    """
    shown = _shown(entry, kernels, networks)
    log_errors: dict[NetworkBasis, list[FloatArray]] = defaultdict(list)
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
                log_errors[basis].append(np.abs(np.log([time, energy / time, energy, time * energy])))
    ordered = {basis: np.sort(np.transpose(rows)) for basis, rows in log_errors.items()}
    if len({errors.shape for errors in ordered.values()}) == 1:
        # Chance may favour other chips, but whoever knows less of a chip is no surer of it.
        ordered["networks of other chips"] = np.maximum.reduce([*ordered.values()])
    return {
        basis: {
            quantity: tuple(float(f"{error:.4g}") for error in errors)
            for quantity, errors in zip(NETWORK_QUANTITIES, rows.tolist(), strict=True)
        }
        for basis, rows in ordered.items()
    }


def _in_half(networks: Networks) -> Networks:
    return [each for each in networks if each[1].precision in HALF_PRECISIONS]


def _shown(entry: AnyGpuEntry, kernels: OneModel, networks: Networks) -> list[_Shown]:
    asking = replace(entry, kernels=replace(kernels, network_factors=NetworkFactors()))
    shown = []
    for gpu, measurement, network in _in_half(networks):
        predicted = asking.on(gpu, measurement.mode).predict(network, measurement.clock_mhz)
        clock_mhz = predicted.held_clock_mhz
        if clock_mhz is not None and predicted.device_time_s > 2 * predicted.host_time_s:
            operations, calls = network.operations, np.array([cost.count for cost in predicted.operations])
            times_s = np.array([cost.device_time_s or 0.0 for cost in predicted.operations])  # for all calls of each
            by_kernels = ~np.isnan(kernels.device_s(operations, gpu))
            elements = calls * loaded_elements(operations, by_kernels)
            loading = elements > 0
            shown.append(
                _Shown(
                    gpu.chip,
                    measurement.network,
                    float(times_s @ cached_products(operations, gpu, by_kernels)) / predicted.time_s,
                    times_s[loading] / predicted.time_s,
                    elements[loading] / (gpu.sms * 1e6 * clock_mhz) / predicted.time_s,
                    measurement.time_s / predicted.time_s - 1,
                )
            )
    return shown


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
    "fp16 and bf16 are one to the trees, but in convolutions, because tensor cores have the same rate.",
    "Quantized layers were measured in the kernels of engines for language models, not in PyTorch's.",
    "On a GPU of an unmeasured generation, errors are larger than in the tables of left-out generations if it differs "
    "more from the measured generations than these differ from each other.",
)


def train_kernels(loaded: Sequence[Loaded], recipe: KernelRecipe, base: AnyGpuEntry | None = None) -> Trained[OneModel]:
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
        errors={part: evaluation.stored_errors(validation.operations, part) for part in fitted.measured},
    )
    powered = readings(timed, power_rows(data), recipe)
    powers = evaluation.validate_power(timed, powered, recipe)
    power = fit_power(powered, recipe, {generation_of(table.gpu) for table in powered})
    stored = {
        part: {
            basis: {"power": watts, "energy": evaluation.stored_errors(powers, part, "energy")[basis]}
            for basis, watts in evaluation.stored_errors(powers, part, "power").items()
        }
        for part in power.measured
    }
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
    return Trained(model, validation, card, partial(content_of_kernels, golden=_golden(tables)))


def _golden(tables: Sequence[Measured]) -> dict[Key, Any]:
    golden: dict[Key, Any] = {}
    for table in tables:
        work = Work.of(table.kernels)
        groups = work.group[first_kernels(work, len(table.device_s))]
        for group in np.unique(groups).tolist():
            mine = {table.kernels[place] for place in np.flatnonzero(groups == group).tolist()}
            golden.setdefault((table.generation, GROUPS[group]), (table.gpu.name, golden_sample(mine)))
    return golden


def learn_networks(loaded: Sequence[Loaded], kept: KernelsEntry, base: AnyGpuEntry) -> Trained[OneModel]:
    """Learn factors and errors of networks again, after `base` was trained again or more networks were measured.

    Args:
        loaded: Datasets with measured networks, at least one in half precision.
        kept: The entry. Its device times and powers are copied unchanged.
    """
    model = _with_networks(kept.kernels, all_networks(loaded), base)
    shown = [each for each in loaded if any(m.precision in HALF_PRECISIONS for m in each.dataset.networks)]
    new = [each.described() for each in shown]
    data = (*(each for each in kept.card["data"] if each not in new), *new)
    rows = [row for row in kept.card["errors"] if not row["split"].startswith(_IN_HALF)]
    told = {"data": data, "limits": limits_of_kernels(model), "errors": [*rows, *_network_rows(model)]}
    card = ModelCard(**{**kept.card, **told})
    return Trained(model, Validation("kernels", Errors()), card, partial(content_of_kernels, golden=kept.golden))


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


def limits_of_kernels(model: OneModel) -> tuple[str, ...]:
    """What users have to know about the entry, in sentences for its card."""
    factors = model.network_factors
    if not factors.chips:
        return LIMITS
    return (
        *LIMITS,
        "Inside networks, products whose data fit into the L2 cache take "
        f"{factors.products:g} times as long as in loops. A multiprocessor loads an element of other operations in "
        f"half precision in {factors.cycles:g} cycles. Networks on these chips showed it: {', '.join(factors.chips)}.",
    )


def _with_networks(model: OneModel, networks: Networks, base: AnyGpuEntry) -> OneModel:
    factors, errors = network_factors(base, model, networks), network_errors(base, model, networks)
    return replace(model, network_factors=factors, network_errors=errors)
