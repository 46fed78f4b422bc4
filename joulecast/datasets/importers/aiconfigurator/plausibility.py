"""Rules that find implausible measurements, and the reasons for their constants.

Rows that differ in one size alone are neighbours. Their times need not rise with it (libraries choose kernels by size),
but a row that is far from all four of its nearest neighbours was disturbed: of SGLang's bf16 products, B200 and GB200
have 580 and 468 such rows, and only 45 of them in common. Kernels that alternate between two speeds from size to size
(DeepGEMM, where a size is not a multiple of 16) are close to their second-nearest neighbours, and stay.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....hardware import GPU
from ....operations.operation import Operation
from ....operations.parallel import sent_elements
from ....operations.precisions import ELEMENT_BYTES

Flags = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]

SPIKE = 1.5
_NEIGHBOURS = (-2, -1, 1, 2)

# A replayed graph of the smallest operations takes 2 to 15 us. Where the quickest takes longer, each call waited for
# the host (vLLM's block-wise fp8: 50 us on an H200, 146 us on a B200). Calls of up to this multiple of the quickest
# may have waited for the host as well.
_SMALL_S = 3e-6
_HOST_BOUND = 2.5

# NVML was read every 100 ms in runs of 0.3 to 1 s, and newer GPUs report means over about a second.
LEAST_POWER_US = 60.0
WEAK_POWER = 0.85
_POWER_NEIGHBOURS = (-3, -2, -1, 1, 2, 3)

_TOLERANCE = 1.03
# Where more than this share of a stack's large rows beat the data sheet, the recorded sizes must be wrong.
_MISREAD = 0.1


def _neighbours(values: Values, order: npt.NDArray[np.int64], group: Values, places: tuple[int, ...]) -> Values:
    """For each row, the values of its neighbours in its group, NaN beyond the ends; shape (neighbours, rows)."""
    sorted_values, sorted_group = values[order].astype(float), group[order]
    found = np.full((len(places), len(values)), np.nan)
    for row, place in enumerate(places):
        rolled, same = np.roll(sorted_values, -place), np.roll(sorted_group, -place) == sorted_group
        same[: max(0, -place)] = False
        same[len(same) - max(0, place) :] = False
        found[row, order] = np.where(same, rolled, np.nan)
    return found


def spikes(time_us: Values, group: Values, along: Values) -> Flags:
    """Find rows that take more than 1.5 times as long as all four nearest neighbours, or less than 1 / 1.5 of that.

    Args:
        time_us: Measured microseconds, one value per row.
        group: A number for each row; rows with the same number can be neighbours.
        along: The size by which the rows of a group are sorted.
    """
    near = _neighbours(time_us, np.lexsort((along, group)), group, _NEIGHBOURS)
    # Rows at the ends have fewer than four neighbours. They never count as spikes, because comparisons with NaN are
    # false.
    slow: Flags = time_us > SPIKE * near.max(axis=0)
    quick: Flags = SPIKE * time_us < near.min(axis=0)
    return slow | quick


def host_bound(time_s: Values, least_s: Values, stratum: Values, graph_s: float) -> Flags:
    """Find rows whose time may be that of the host, because their stack was not replayed as a CUDA graph.

    Args:
        time_s: Measured seconds of each row.
        least_s: Least seconds that the data sheet allows.
        stratum: A number for each row; rows with the same number were measured in the same way.
        graph_s: Most seconds that a replayed graph of the smallest operations takes.
    """
    quickest = np.full(int(stratum.max(initial=-1)) + 1, np.inf)
    small = least_s < _SMALL_S
    np.minimum.at(quickest, stratum[small], time_s[small])
    floor = quickest[stratum]
    flagged: Flags = np.isfinite(floor) & (floor > graph_s) & (time_s < _HOST_BOUND * floor)
    return flagged


def weak_power(power_w: Values, group: Values, along: Values) -> Flags:
    """Find rows whose power is far below the median of their neighbours, because the sensor missed part of the run."""
    near = _neighbours(power_w, np.lexsort((along, group)), group, _POWER_NEIGHBOURS)
    known = ~np.isnan(near).all(axis=0)
    typical_w = np.full(len(power_w), np.nan)
    typical_w[known] = np.nanmedian(near[:, known], axis=0)
    weak: Flags = power_w < WEAK_POWER * typical_w
    return weak


def least_time_s(operation: Operation, gpu: GPU) -> float:
    """Least seconds by the data sheet: arithmetic at the boost clock, and the memory traffic that exceeds the L2 cache.

    Measurements are repeated, so data of the previous run may still be in the L2 cache. For layers of experts, the
    source states neither which experts got tokens, nor whether they have a gate. Without a gate they need two products
    instead of three.
    """
    if "gpus" in operation.attributes:
        return _least_link_s(operation, gpu) / _TOLERANCE
    clocks = gpu.boost_clock_mhz / (gpu.tensor_clock_mhz or gpu.boost_clock_mhz)
    flops, moved = float(operation.flops), operation.bytes_read + operation.bytes_written - gpu.l2_bytes
    if operation.kind == "experts":
        balanced = operation.attributes["distribution"] == "balanced"
        flops, moved = flops * 2 / 3 if balanced else 0.0, 0
    compute_s = flops / (gpu.peak_flops[operation.precision] * clocks)
    return max(compute_s, max(0, moved) / gpu.memory_bandwidth) / _TOLERANCE


def _least_link_s(operation: Operation, gpu: GPU) -> float:
    bandwidth = gpu.link_bandwidth if operation.attributes["link"] == "nvlink" else gpu.pcie_bandwidth
    sent = sent_elements(operation.kind, operation.input_shapes, operation.attributes)
    return ELEMENT_BYTES[operation.precision] * sent / (bandwidth or np.inf)


def misread(too_quick: Flags, large: Flags, stratum: Values) -> Flags:
    """Find rows of strata whose large rows beat the data sheet too often for chance.

    Args:
        too_quick: Whether each row is faster than the data sheet allows.
        large: Whether each row is large enough for that comparison.
        stratum: A number for each row; rows with the same number were measured in the same way.
    """
    count = int(stratum.max(initial=-1)) + 1
    beaten = np.bincount(stratum, too_quick & large, count)
    told = np.bincount(stratum, large, count)
    flagged: Flags = (beaten > _MISREAD * np.maximum(told, 1))[stratum]
    return flagged
