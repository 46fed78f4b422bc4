"""Which measurements cannot be what they say: rules over columns, and their constants with the reason for each.

Rows that differ in one size alone are neighbours. Their times need not rise with it (libraries choose kernels by size),
but a row that is far from all four of its nearest neighbours was disturbed: of SGLang's bf16 products, B200 and GB200
have 580 and 468 such rows, and only 45 of them in common. Kernels that alternate between two speeds from size to size
(DeepGEMM, where a size is no multiple of 16) are not far from the neighbours after the next, and stay.
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
# the host (vLLM's block-wise fp8: 50 us on an H200, 146 us on a B200), and up to so many times that, the host may
# still be what was measured.
_SMALL_S = 3e-6
_HOST_BOUND = 2.5

# NVML was read every 100 ms in runs of 0.3 to 1 s, and newer GPUs report means over about a second.
LEAST_POWER_US = 60.0
WEAK_POWER = 0.85
_POWER_NEIGHBOURS = (-3, -2, -1, 1, 2, 3)

_TOLERANCE = 1.03
# Where more than this share of the large rows of a stack beat the data sheet, its sizes are not what they say.
_MISREAD = 0.1


def _neighbours(values: Values, order: npt.NDArray[np.int64], group: Values, places: tuple[int, ...]) -> Values:
    """For each row the values of rows before and behind it in its group; NaN beyond its ends. Shape (places, rows)."""
    sorted_values, sorted_group = values[order].astype(float), group[order]
    found = np.full((len(places), len(values)), np.nan)
    for row, place in enumerate(places):
        rolled, same = np.roll(sorted_values, -place), np.roll(sorted_group, -place) == sorted_group
        same[: max(0, -place)] = False
        same[len(same) - max(0, place) :] = False
        found[row, order] = np.where(same, rolled, np.nan)
    return found


def spikes(time_us: Values, group: Values, along: Values) -> Flags:
    """Rows that take more than 1.5 times as long as all four nearest neighbours, or are as much quicker.

    Args:
        time_us: Measured microseconds, one value per row.
        group: A number for each row; neighbours are of one group.
        along: The size by which the rows of a group are sorted.
    """
    near = _neighbours(time_us, np.lexsort((along, group)), group, _NEIGHBOURS)
    # (what lies at the end of its row has fewer neighbours, which is NaN and no spike)
    slow: Flags = time_us > SPIKE * near.max(axis=0)
    quick: Flags = SPIKE * time_us < near.min(axis=0)
    return slow | quick


def host_bound(time_s: Values, least_s: Values, stratum: Values, graph_s: float) -> Flags:
    """Rows of stacks that were not replayed as graphs, as far as the host may be what was measured.

    Args:
        time_s: What each row took.
        least_s: What the data sheet allows.
        stratum: A number for each row; rows of one stratum were measured in one way.
        graph_s: What a replayed graph of the smallest operations takes at most.
    """
    quickest = np.full(int(stratum.max(initial=-1)) + 1, np.inf)
    small = least_s < _SMALL_S
    np.minimum.at(quickest, stratum[small], time_s[small])
    floor = quickest[stratum]
    flagged: Flags = np.isfinite(floor) & (floor > graph_s) & (time_s < _HOST_BOUND * floor)
    return flagged


def weak_power(power_w: Values, group: Values, along: Values) -> Flags:
    """Rows whose power is far below the median of their neighbours: the sensor had not seen all of the run."""
    near = _neighbours(power_w, np.lexsort((along, group)), group, _POWER_NEIGHBOURS)
    known = ~np.isnan(near).all(axis=0)
    usual = np.full(len(power_w), np.nan)
    usual[known] = np.nanmedian(near[:, known], axis=0)
    weak: Flags = power_w < WEAK_POWER * usual
    return weak


def least_time_s(operation: Operation, gpu: GPU) -> float:
    """What the data sheet allows at best: all arithmetic at the boost clock, and from memory what no cache can hold.

    Replays find in L2 what the last one left there, and causal attention may skip half of the scores. Of experts the
    source says neither which of them got tokens, nor whether they have a gate, without which they are two products
    instead of three.
    """
    if "gpus" in operation.attributes:
        return _least_link_s(operation, gpu) / _TOLERANCE
    clocks = gpu.boost_clock_mhz / (gpu.tensor_clock_mhz or gpu.boost_clock_mhz)
    flops, moved = float(operation.flops), operation.bytes_read + operation.bytes_written - gpu.l2_bytes
    if operation.attributes.get("causal"):
        flops /= 2
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
    """Rows of strata whose large rows beat the data sheet too often for it to be chance.

    Args:
        too_quick: Rows that are faster than the data sheet allows.
        large: Rows for which it can tell.
        stratum: A number for each row.
    """
    count = int(stratum.max(initial=-1)) + 1
    beaten = np.bincount(stratum, too_quick & large, count)
    told = np.bincount(stratum, large, count)
    flagged: Flags = (beaten > _MISREAD * np.maximum(told, 1))[stratum]
    return flagged
