"""How much longer kernels in half precision take inside networks than in loops, learned from measured networks.

In a loop a kernel finds its inputs in the cache, where its own last run left them. Inside a network other kernels ran
in between. What that costs, together with everything else that loops do not show, is one factor for each chip on which
networks were measured in half precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.network import Network
from ..operations.precisions import HALF_PRECISIONS
from ..predictors.contract import Networks
from ..predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ..predictors.kernels.learned import Kernels, NetworkBasis
from .entries.any_gpu_entry import AnyGpuEntry

_LEAST_SHARE = 0.3  # Least share of a network's device time in such kernels. Networks with less say little about them.
_BOUNDS = (0.7, 1.6)


class _Shown(NamedTuple):
    """What a measured network shows of kernels.

    Args:
        chip: Chip that it was measured on.
        network: Its name.
        factor: How much longer its kernels took than in loops.
    """

    chip: str
    network: str
    factor: float


def network_factors(entry: AnyGpuEntry, kernels: Kernels, networks: Networks) -> dict[str, float]:
    """Chip -> factor by which predicted times of networks must be multiplied to match the measured ones.

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
        splits: dict[NetworkBasis, dict[str, float]] = {
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
        share = _share(network, [cost.device_time_s or 0.0 for cost in predicted.operations], kernels, gpu)
        if share >= _LEAST_SHARE and predicted.device_time_s > 2 * predicted.host_time_s:
            factor = 1 + (measurement.time_s / predicted.time_s - 1) / share
            found.append(_Shown(gpu.chip, measurement.network, factor))
    return found


def _share(network: Network, device_s: Sequence[float], kernels: Kernels, gpu: GPU) -> float:
    """Share of a network's device time in operations that kernels cover."""
    times = np.array(device_s)  # (for all calls of an operation)
    covered = ~np.isnan(kernels.device_s(network.operations, gpu))
    return float(times[covered].sum() / max(times.sum(), 1e-12))


def _factors(shown: Iterable[_Shown]) -> dict[str, float]:
    by_chip: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in shown:
        by_chip[each.chip][each.network].append(each.factor)
    return {chip: _typical(by_network) for chip, by_network in sorted(by_chip.items())}


def _typical(by_network: Mapping[str, Sequence[float]]) -> float:
    """The weighted median over networks, of the median of each."""
    factors, weights = np.array(sorted((median(each), len(each) ** 0.5) for each in by_network.values())).T
    reached = np.cumsum(weights) / weights.sum()
    middle = float(factors[int(np.searchsorted(reached, 0.5))])
    return round(float(np.clip(middle, *_BOUNDS)), 3)
