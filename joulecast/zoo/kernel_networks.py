"""How much longer operations in half precision take inside networks than alone, learned from measured networks.

Two numbers are learned, which hold on all chips: a factor on products, and the cycles in which load units load an
element of another operation (predictors/model/in_networks.py). Learned from an A100 alone and from an A10 alone, the
first is 1.30 and 1.19; an A10 has too little bandwidth to show the second (energaizer2026).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ..arrays import FloatArray
from ..operations.attributes import HALF_PRECISIONS
from ..predictors.contract import Networks
from ..predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ..predictors.model.in_networks import NetworkFactors, cached_products, loaded_elements
from ..predictors.model.learned import NetworkBasis, OneModel
from ..predictors.physics.norms import overlapped
from .entries.any_gpu_entry import AnyGpuEntry

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


def network_factors(entry: AnyGpuEntry, kernels: OneModel, networks: Networks) -> NetworkFactors:
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
    entry: AnyGpuEntry, kernels: OneModel, networks: Networks
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


def _shown(entry: AnyGpuEntry, kernels: OneModel, networks: Networks) -> list[_Shown]:
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
