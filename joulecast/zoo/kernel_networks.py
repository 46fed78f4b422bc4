"""How much longer operations in half precision take inside networks than alone, learned from measured networks.

For each chip on which networks were measured in half precision there are two factors: one for kernels that were
measured in half precision, and one for other operations (predictors/kernels/in_networks.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.network import Network
from ..operations.precisions import HALF_PRECISIONS
from ..predictors.contract import Networks
from ..predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ..predictors.kernels.in_networks import NetworkFactors, cached_share, others_in_half
from ..predictors.kernels.learned import Kernels, NetworkBasis
from .entries.any_gpu_entry import AnyGpuEntry

_BOUNDS = (0.7, 2.5)  # No network shows more.


class _Shown(NamedTuple):
    """What a measured network shows of operations inside networks.

    Args:
        chip: Chip that it was measured on.
        network: Its name.
        kernels: Share of its predicted time in which kernels would find their data in the cache, if they ran in loops.
        others: Share of other operations in half precision.
        slower: Time beyond what is predicted from operations alone, relative to the predicted time.
    """

    chip: str
    network: str
    kernels: float
    others: float
    slower: float


def network_factors(entry: AnyGpuEntry, kernels: Kernels, networks: Networks) -> dict[str, NetworkFactors]:
    """Chip -> factors with which predicted times of networks come closest to the measured ones.

    A network counts by the square root of the number of its measurements, at several shapes and clocks. Networks that
    wait for their host are left out.

    Args:
        entry: Predictor of the operations that kernels do not cover.
        kernels: Device times of kernels; factors that they have are ignored.
        networks: Measured networks. Those in other precisions are ignored.
    """
    return _factors(_shown(entry, kernels, networks))


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
        splits: dict[NetworkBasis, dict[str, NetworkFactors]] = {
            "networks of the chip": _factors([each for each in shown if each.network != measurement.network]),
            "networks of other chips": _factors([each for each in shown if each.chip != gpu.chip]),
        }
        for basis, factors in splits.items():
            if gpu.chip in factors or basis == "networks of other chips":
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
    asking = replace(entry, kernels=replace(kernels, network_factors={}))
    found = []
    for gpu, measurement, network in _in_half(networks):
        predicted = asking.on(gpu, measurement.mode).predict(network, measurement.clock_mhz)
        if predicted.device_time_s > 2 * predicted.host_time_s:
            times_s = np.array([cost.device_time_s or 0.0 for cost in predicted.operations])  # for all calls of each
            cached, others = _shares(network, times_s / times_s.sum(), kernels, gpu)
            beyond = measurement.time_s / predicted.time_s - 1
            found.append(_Shown(gpu.chip, measurement.network, cached, others, beyond))
    return found


def _shares(network: Network, times: FloatArray, kernels: Kernels, gpu: GPU) -> tuple[float, float]:
    """The shares of `_Shown`, given the share of each operation in the network's device time."""
    operations = network.operations
    by_kernels = ~np.isnan(kernels.device_s(operations, gpu))
    cached = times * cached_share(operations, gpu)
    return float(cached[by_kernels].sum()), float(times[others_in_half(operations, by_kernels)].sum())


def _factors(shown: Iterable[_Shown]) -> dict[str, NetworkFactors]:
    by_chip: dict[str, list[_Shown]] = defaultdict(list)
    for each in shown:
        by_chip[each.chip].append(each)
    return {chip: _fitted(some) for chip, some in sorted(by_chip.items())}


def _fitted(shown: Sequence[_Shown]) -> NetworkFactors:
    """The factors that fit best by least squares; all measurements of a network count as much as their square root."""
    counts = Counter(each.network for each in shown)
    weights = np.array([counts[each.network] ** -0.25 for each in shown])  # the squares count
    shares = np.array([(each.kernels, each.others) for each in shown]) * weights[:, None]
    slower = np.array([each.slower for each in shown]) * weights
    (kernels_slower, others_slower), *_ = np.linalg.lstsq(shares, slower, rcond=None)
    return NetworkFactors(*(round(float(np.clip(1 + more, *_BOUNDS)), 3) for more in (kernels_slower, others_slower)))
