"""What measured networks teach: the energy constants, and how much longer operations in half precision take in them.

The energy constants are fitted to the powers of single operations and of networks. Only few networks were measured, and
they are similar. What they do not determine is determined by priors.

Of half precision two numbers are learned, which hold on all chips: a factor on products, and the cycles in which load
units load an element of another operation (in_networks.py). Networks of an A100 and of an A10 teach them
(energaizer2026); an A10 has too little bandwidth to show the second. The card of kernels has the errors with factors
from the other chip.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...errors import needing, with_extra
from ...operations.attributes import HALF_PRECISIONS
from ..contract import Networks
from ..intervals.network_calibration import NETWORK_QUANTITIES
from ..measured import AT_CAP, DeviceRow
from ..networks.composition import counts_of
from ..physics.energy import ENERGY_SPREAD, L2_SAVES, PRIOR_ENERGY, EnergyConstants, static_power_w
from ..physics.norms import overlapped
from .in_networks import NetworkFactors, cached_products, loaded_elements
from .learned import NetworkBasis, OneModel
from .shared import AnyGpuPredictor, SharedByAll

# Weights in the fit of energies of a loop, and of one at the power cap, where a network has weight 1. Without readings
# at the cap, an A30's networks below it come out 12 % too low; with 0.2 for all loops, its loops below the cap 11 % too
# high, and six served runs on an A100, which had no part in the fit, 16 % (13 with these weights, 8 without).
_LOOPS_COUNT, _CAPPED_COUNT = 0.2, 0.05
# Standard deviations of a network's log time, of the logarithm of HalfPrecision, and of host seconds per call.
_ERROR, _HALF_SPREAD, _HOST_SPREAD_S = 0.05, 0.5, 20e-6


def fit_energies(rows: Sequence[DeviceRow], networks: Networks, shared: SharedByAll) -> EnergyConstants:
    """Fit the energy constants to measured powers of single operations and of whole networks.

    A reading at the power cap is a lower bound, unless the clock that was held is known. Priors tell the five constants
    apart where the measured GPUs do not.
    """
    measured = _powers(rows, networks, shared)
    if not measured:
        return PRIOR_ENERGY
    with needing("training needs scipy", with_extra("train")):
        from scipy.optimize import least_squares
    parts, power_w, static_w, weight, at_least = map(np.array, zip(*measured, strict=True))
    prior = np.log(PRIOR_ENERGY.values())
    spread = np.log(ENERGY_SPREAD)

    def residuals(log_constants: FloatArray) -> FloatArray:
        errors = np.log((static_w + parts @ np.exp(log_constants)) / power_w)
        # What a GPU would draw at its highest clock is at least what it drew at its power cap.
        errors = weight * np.where(at_least, np.minimum(errors, 0.0), errors) / (2 * _ERROR)
        return np.concatenate([errors, (log_constants - prior) / spread])

    return EnergyConstants.of(np.exp(least_squares(residuals, prior, loss="soft_l1").x), L2_SAVES)


def _powers(
    rows: Sequence[DeviceRow], networks: Networks, shared: SharedByAll
) -> list[tuple[FloatArray, float, float, float, bool]]:
    """Measured powers: amount of each energy constant per second, watts, static watts, weight, and if it is a bound."""
    found = []
    for gpu in dict.fromkeys(row.gpu for row in rows):
        mine = [(row, row.power_w) for row in rows if row.power_w and row.gpu == gpu]
        if not mine:
            continue
        clock, device_s = float(gpu.boost_clock_mhz), np.array([row.device_s for row, _ in mine])
        paid = EnergyConstants.parts([row.operation for row, _ in mine], device_s, gpu, clock, L2_SAVES)
        for (_, power_w), part in zip(mine, paid / device_s[:, None], strict=True):
            at_cap = power_w >= AT_CAP * gpu.power_limit_w
            weight = _CAPPED_COUNT if at_cap else _LOOPS_COUNT
            found.append((part, power_w, static_power_w(gpu, clock), weight, at_cap))
    for gpu, measurement, network in networks:
        at_cap = measurement.clock_mhz is None and measurement.known_power_w > AT_CAP * gpu.power_limit_w
        clock = measurement.clock_mhz or float(gpu.boost_clock_mhz)
        operations, counts = network.operations, counts_of(network)
        predictor = shared.on(gpu, measurement.mode)
        inside = predictor.in_network(predictor.predict_for_network(operations, gpu.power_limit_w))
        device_s = np.nan_to_num(inside.device_time_s if inside.work is None else inside.work.at(clock)[0])
        # The predicted device time must not exceed the measured time, in which the GPU drew the measured power.
        device_s *= min(1.0, measurement.time_s / float(counts @ device_s))
        part = counts @ EnergyConstants.parts(operations, device_s, gpu, clock, L2_SAVES) / measurement.time_s
        found.append((part, measurement.known_power_w, static_power_w(gpu, clock), 1.0, at_cap))
    return found


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


def network_factors(base: AnyGpuPredictor, kernels: OneModel, networks: Networks) -> NetworkFactors:
    """The factors with which predicted times of networks come closest to the measured ones.

    A network counts by the square root of the number of its measurements, at several shapes and clocks. Networks that
    wait for their host are left out.

    Args:
        base: Predicts the other operations of networks.
        kernels: Device times of kernels; factors that they have are ignored.
        networks: Measured networks. Those in other precisions are ignored.
    """
    return _fitted(_shown(base, kernels, networks))


def network_errors(
    base: AnyGpuPredictor, kernels: OneModel, networks: Networks
) -> dict[NetworkBasis, dict[str, tuple[float, ...]]]:
    """Errors on measured networks in half precision, with factors from networks of other names, or of other chips.

    Device times and energies of operations are those of the whole entry, which were learned from operations, and from
    all networks together. Returns basis -> quantity -> sorted absolute log errors.
    """
    shown = _shown(base, kernels, networks)
    log_errors: dict[NetworkBasis, list[FloatArray]] = defaultdict(list)
    for gpu, measurement, network in _in_half(networks):
        splits: dict[NetworkBasis, NetworkFactors] = {
            "networks of the chip": _fitted([each for each in shown if each.network != measurement.network]),
            "networks of other chips": _fitted([each for each in shown if each.chip != gpu.chip]),
        }
        for basis, factors in splits.items():
            if gpu.chip in factors.chips or basis == "networks of other chips":
                asking = replace(base, kernels=replace(kernels, network_factors=factors))
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


def _shown(base: AnyGpuPredictor, kernels: OneModel, networks: Networks) -> list[_Shown]:
    asking = replace(base, kernels=replace(kernels, network_factors=NetworkFactors()))
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
    """The factors that fit best by least squares; all measurements of a network count as much as their square root.

    Raises MissingDependencyError: scipy is not installed.
    """
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

    with needing("training needs scipy", with_extra("train")):
        from scipy.optimize import minimize_scalar
    cycles = float(minimize_scalar(squares, bounds=(0.0, _MOST_CYCLES), method="bounded").x)
    return NetworkFactors(round(factor(cycles), 3), round(cycles, 3), tuple(sorted({each.chip for each in shown})))
