"""How much longer kernels in half precision take inside networks than in loops, learned from measured networks.

In a loop a kernel finds its inputs in the cache, where its own last run left them. Inside a network other kernels ran
in between. What that costs, together with everything else that loops do not show, is one factor for each chip on which
networks were measured in half precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from ..hardware import GPU
from ..operations.network import Network
from ..predictors.contract import Networks
from ..predictors.kernels.learned import Kernels
from .entries.any_gpu_entry import AnyGpuEntry

_HALF = ("bf16", "fp16")
_LEAST_SHARE = 0.3  # Least share of a network's device time in such kernels. Networks with less say little about them.
_BOUNDS = (0.7, 1.6)


def network_factors(entry: AnyGpuEntry, kernels: Kernels, networks: Networks) -> dict[str, float]:
    """Chip -> factor by which predicted times of networks must be multiplied to match the measured ones.

    A network counts once, however many of its shapes and clocks were measured. Networks that wait for their host are
    left out.

    Args:
        entry: Predictor of the operations that kernels do not cover.
        kernels: Device times of kernels, without such factors.
        networks: Measured networks. Those in other precisions are ignored.
    """
    asking = replace(entry, kernels=replace(kernels, network_factors={}))
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for gpu, measurement, network in networks:
        if measurement.precision not in _HALF:
            continue
        predicted = asking.on(gpu, measurement.mode).predict(network, measurement.clock_mhz)
        share = _share(network, [cost.device_time_s or 0.0 for cost in predicted.operations], kernels, gpu)
        if share >= _LEAST_SHARE and predicted.device_time_s > 2 * predicted.host_time_s:
            factor = 1 + (measurement.time_s / predicted.time_s - 1) / share
            found[gpu.chip][measurement.network].append(factor)
    return {chip: _typical(by_network) for chip, by_network in sorted(found.items())}


def _share(network: Network, device_s: Sequence[float], kernels: Kernels, gpu: GPU) -> float:
    """Share of a network's device time in operations that kernels cover."""
    times = np.array(device_s)  # (for all calls of an operation)
    covered = ~np.isnan(kernels.device_s(network.operations, gpu))
    return float(times[covered].sum() / max(times.sum(), 1e-12))


def _typical(by_network: Mapping[str, Sequence[float]]) -> float:
    return round(float(np.clip(median(median(factors) for factors in by_network.values()), *_BOUNDS)), 3)
