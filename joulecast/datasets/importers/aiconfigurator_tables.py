"""The tables of aiconfigurator2026: their columns, the operations that these describe, and rows that cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...hardware import GPU, find_gpu
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...operations.parallel import sent_elements
from .reading import Columns

Row = Mapping[str, Any]

# The source's name of a precision -> precision, and whether blocks of values share a scale.
PRECISIONS: Mapping[str, tuple[str, bool]] = {
    "bfloat16": ("bf16", False),
    "fp8": ("fp8", False),
    "fp8_block": ("fp8", True),
    "nvfp4": ("nvfp4", False),
    "half": ("fp16", False),
    "int8": ("int8", False),
}
_IMPLEMENTATIONS = {"sglang": "sglang", "trtllm": "tensorrt_llm", "vllm": "vllm"}


@dataclass(frozen=True)
class SourceTable:
    """A table of the source.

    Args:
        words: Text columns that describe what was measured, besides gpu, stack, kernel and precision.
        sizes: Integer columns that describe what was measured.
        along: Sizes by whose sum neighbouring rows are sorted, and in which they differ.
        has_power: Whether it has power_w and power_limit_w.
        graph_s: Most seconds that a replayed graph of the smallest operations takes.
        skip: Reason -> function from the columns to the rows that are left out for it.
    """

    sizes: tuple[str, ...]
    along: tuple[str, ...]
    operation: Callable[[Row], Operation]
    words: tuple[str, ...] = ()
    has_power: bool = False
    graph_s: float = 20e-6
    skip: Mapping[str, Callable[[Columns], npt.NDArray[Any]]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        power = ("power_w", "power_limit_w") if self.has_power else ()
        return (*self.named, *self.sizes, "time_us", *power)

    @property
    def named(self) -> tuple[str, ...]:
        """Names of the text columns."""
        return ("gpu", "stack", "kernel", "precision", *self.words)


def engine(stack: str) -> str:
    """The engine whose kernels a stack ("trtllm 1.0.0") calls, as a value of the attribute `implementation`."""
    return _IMPLEMENTATIONS[stack.split()[0]]


def known_stacks(stacks: set[str]) -> set[str]:
    """The stacks whose engine is known."""
    return {stack for stack in stacks if stack.split()[:1] and stack.split()[0] in _IMPLEMENTATIONS}


def _linear(row: Row) -> Operation:
    precision, block_scaled = PRECISIONS[row["precision"]]
    implementation = engine(row["stack"])
    if precision == "bf16" and implementation == "sglang":
        implementation = "pytorch"  # SGLang measured torch.nn.functional.linear.
    attributes = {"out_features": row["n"], "bias": False}
    attributes |= {"block_scaled": block_scaled, "implementation": implementation}
    return Operation("linear", [(row["m"], row["k"])], attributes, precision=precision)


def _attention(row: Row) -> Operation:
    precision, _ = PRECISIONS[row["precision"]]
    keys = row["tokens"] + row["cached"]
    attributes: dict[str, Any] = {"causal": row["phase"] == "context", "implementation": engine(row["stack"])}
    # A window that includes all keys has no effect.
    if 0 < row["window"] < keys:
        attributes["window"] = row["window"]
    if row["cache_precision"] not in ("", row["precision"]):
        attributes["cache_precision"] = PRECISIONS[row["cache_precision"]][0]
    cache = (row["batch"], row["kv_heads"], keys, row["head_size"])
    queries = (row["batch"], row["heads"], row["tokens"], row["head_size"])
    return Operation("attention", [queries, cache, cache], attributes, precision=precision)


def _experts(row: Row) -> Operation:
    precision, block_scaled = PRECISIONS[row["precision"]]
    names = ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel", "distribution")
    attributes = {name: row[name] for name in names} | {"block_scaled": block_scaled}
    attributes["implementation"] = "flashinfer" if "flashinfer" in row["kernel"] else engine(row["stack"])
    return Operation("experts", [(row["tokens"], row["hidden"])], attributes, precision=precision)


_COLLECTIVES = {**{name: name for name in ("all_reduce", "all_gather", "reduce_scatter")}, "alltoall": "all_to_all"}


def _collective(row: Row) -> Operation:
    """The collective operation of a row; message_size counts the elements of the larger side.

    Two findings show that: elements in half precision take as long as twice as many in int8, so it counts elements. And
    gathering 2^28 of them over 8 H100s takes 1.40 ms. That is 336 of 450 GB/s for each GPU if it counts the larger
    side, and would be seven times the bandwidth of the link if it counted each GPU's part.
    """
    kind, gpus = _COLLECTIVES[row["collective"]], row["gpus"]
    elements = row["message_size"] // gpus if kind == "all_gather" else row["message_size"]
    attributes = {
        "gpus": gpus,
        "link": "nvlink" if find_gpu(row["gpu"]).link_bandwidth else "pcie",
        "implementation": "pytorch" if row["kernel"] == "NCCL" else engine(row["stack"]),
    }
    return Operation(kind, [(elements,)], attributes, precision=PRECISIONS[row["precision"]][0])


TABLES: Mapping[str, SourceTable] = {
    "linear": SourceTable(sizes=("m", "n", "k"), along=("m",), has_power=True, operation=_linear),
    "attention": SourceTable(
        words=("phase", "cache_precision"),
        sizes=("batch", "tokens", "cached", "heads", "kv_heads", "head_size", "window"),
        along=("tokens", "cached"),
        has_power=True,
        operation=_attention,
    ),
    "experts": SourceTable(
        words=("distribution",),
        sizes=("tokens", "hidden", "intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel"),
        along=("tokens",),
        operation=_experts,
        # These are several kernels: sorting, two products with an activation in between, and the sum.
        graph_s=60e-6,
    ),
    "collectives": SourceTable(
        words=("collective",),
        sizes=("gpus", "message_size"),
        along=("message_size",),
        operation=_collective,
        skip={
            "int8, which takes as long as half as many elements of half precision": lambda c: c["precision"] == "int8",
            "eager calls, which wait for the host": lambda c: np.char.endswith(c["kernel"].astype(str), "_eager"),
        },
    ),
}


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

    Rows with the same number of a group can be neighbours, and are sorted along a size.
    """
    near = _neighbours(time_us, np.lexsort((along, group)), group, _NEIGHBOURS)
    # Rows at the ends have fewer than four neighbours. They never count as spikes, because comparisons with NaN are
    # false.
    slow: Flags = time_us > SPIKE * near.max(axis=0)
    quick: Flags = SPIKE * time_us < near.min(axis=0)
    return slow | quick


def host_bound(time_s: Values, least_s: Values, stratum: Values, graph_s: float) -> Flags:
    """Find rows whose time may be that of the host, because their stack was not replayed as a CUDA graph.

    `least_s` are the least seconds that the data sheet allows. Rows of one stratum were measured in the same way.
    `graph_s` are the most seconds that a replayed graph of the smallest operations takes.
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
    """Find rows of strata, measured in the same way, whose large rows too often beat the data sheet."""
    count = int(stratum.max(initial=-1)) + 1
    beaten = np.bincount(stratum, too_quick & large, count)
    told = np.bincount(stratum, large, count)
    flagged: Flags = (beaten > _MISREAD * np.maximum(told, 1))[stratum]
    return flagged
