"""Importer for the measurements of github.com/ai-dynamo/aiconfigurator: half precision and below, from A100 to GB200.

Reads `linear.parquet`, `attention.parquet`, `experts.parquet` and `collectives.parquet`, and gives one Dataset per GPU.
Times are of replayed CUDA graphs, so they include no launches. SGLang's bf16 products call
`torch.nn.functional.linear`, and its collectives call NCCL as PyTorch does. All others are kernels of the engines,
which the attribute `implementation` names.

Implausible rows are left out. The rest is sampled, and the card states how many rows were left out and why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...hardware import GPU, find_gpu
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...operations.parallel import sent_elements
from ...progress import tracked
from ..measurement import Dataset
from .kernel_tables import Found, KernelTable, Row
from .reading import Columns, card_of, groups, importer

# The source's name of a precision -> precision, and whether blocks of values share a scale.
_PRECISIONS: Mapping[str, tuple[str, bool]] = {
    "bfloat16": ("bf16", False),
    "fp8": ("fp8", False),
    "fp8_block": ("fp8", True),
    "nvfp4": ("nvfp4", False),
    "half": ("fp16", False),
    "int8": ("int8", False),
}
# The first word of a stack ("trtllm 1.0.0") -> the engine as a value of the attribute `implementation`.
_ENGINES = {"sglang": "sglang", "trtllm": "tensorrt_llm", "vllm": "vllm"}


def _linear(row: Row) -> Operation:
    precision, block_scaled = _PRECISIONS[row["precision"]]
    implementation = _ENGINES[row["stack"].split()[0]]
    if precision == "bf16" and implementation == "sglang":
        implementation = "pytorch"  # SGLang measured torch.nn.functional.linear.
    attributes = {"out_features": row["n"], "bias": False}
    attributes |= {"block_scaled": block_scaled, "implementation": implementation}
    return Operation("linear", [(row["m"], row["k"])], attributes, precision=precision)


def _attention(row: Row) -> Operation:
    precision, _ = _PRECISIONS[row["precision"]]
    keys = row["tokens"] + row["cached"]
    attributes: dict[str, Any] = {
        "causal": row["phase"] == "context",
        "implementation": _ENGINES[row["stack"].split()[0]],
    }
    # A window that includes all keys has no effect.
    if 0 < row["window"] < keys:
        attributes["window"] = row["window"]
    if row["cache_precision"] not in ("", row["precision"]):
        attributes["cache_precision"] = _PRECISIONS[row["cache_precision"]][0]
    cache = (row["batch"], row["kv_heads"], keys, row["head_size"])
    queries = (row["batch"], row["heads"], row["tokens"], row["head_size"])
    return Operation("attention", [queries, cache, cache], attributes, precision=precision)


def _experts(row: Row) -> Operation:
    precision, block_scaled = _PRECISIONS[row["precision"]]
    names = ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel", "distribution")
    attributes = {name: row[name] for name in names} | {"block_scaled": block_scaled}
    attributes["implementation"] = "flashinfer" if "flashinfer" in row["kernel"] else _ENGINES[row["stack"].split()[0]]
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
        "implementation": "pytorch" if row["kernel"] == "NCCL" else _ENGINES[row["stack"].split()[0]],
    }
    return Operation(kind, [(elements,)], attributes, precision=_PRECISIONS[row["precision"]][0])


_SPIKE = "times that all four neighbours in size contradict by more than half"
_HOST = "times that wait for the host, since the engine did not replay a graph"
_IMPOSSIBLE = "times that the data sheet does not allow"
# With caches of 256 tokens or more, a decoding step in TensorRT-LLM 1.0.0, 1.3.0rc15 and rc17 takes 0.58 of the time
# that reading its cache from memory needs; in 1.3.0rc20 and the other engines it does not.
_MISREAD = "the large rows of this stack beat the data sheet: their sizes are not what they say"

# NVML was read every 100 ms in runs of 0.3 to 1 s, and newer GPUs report means over about a second.
_LEAST_POWER_US = 60.0
_SHORT = f"power of calls below {_LEAST_POWER_US:g} us, which is that of their surroundings"
_WEAK_POWER = 0.85
_WEAK = f"power below {_WEAK_POWER:g} of what neighbours in size draw"
# Over 41 bf16 products between 1e12 and 1e13 FLOPs, the median power in vLLM is 1.36 times that in TensorRT-LLM.
_STALE_STACKS = {("NVIDIA B200", "trtllm 1.3.0rc15")}
_STALE = "power of TensorRT-LLM on the B200, which stays at 700 W where that of vLLM sits at the cap of 1000 W"

Flags = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]


def _table(
    operation: Callable[[Row], Operation],
    words: tuple[str, ...],
    sizes: tuple[str, ...],
    along: tuple[str, ...],
    *,
    has_power: bool = False,
    free: Callable[[Columns], Flags] | None = None,
    graph_s: float = 20e-6,
    skip: Mapping[str, Callable[[Columns], Flags]] | None = None,
) -> KernelTable:
    """A table of the source.

    What was measured is described by `words`, text columns besides gpu, stack, kernel and precision, and by `sizes`.
    Neighbouring rows are sorted by the sum of the sizes `along` which they differ. `free` finds runs with power that
    the cap did not hold. `graph_s` are the most seconds that a replayed graph of the smallest operations takes.
    """
    setting = ("gpu", "stack", "precision", *words)  # Rows that agree in these were measured in the same way.
    same = (*setting, "kernel", *(size for size in sizes if size not in along))

    def order(columns: Columns) -> tuple[Values, Values]:
        return groups(columns[c] for c in same), np.sum([columns[c] for c in along], axis=0)

    def judged(columns: Columns, taken: Values, operations: Sequence[Operation]) -> dict[str, Sequence[Any]]:
        stratum = groups(columns[c][taken] for c in setting)
        time_s, gpus = columns["time_us"][taken].astype(float) / 1e6, [find_gpu(gpu) for gpu in columns["gpu"][taken]]
        pairs = list(zip(operations, gpus, strict=True))
        least_s = np.array([least_time_s(*pair) for pair in pairs], dtype=float)
        beyond_cache = np.array([o.bytes_read + o.bytes_written > 2 * g.l2_bytes for o, g in pairs], dtype=bool)
        too_quick = time_s < least_s
        wrong = misread(too_quick, beyond_cache, stratum)
        waiting = host_bound(time_s, least_s, stratum, graph_s)
        flaws, sustained = np.full(len(taken), "", dtype=object), np.zeros(len(taken), dtype=bool)
        if has_power:
            flaws = _power_flaws(columns, *order(columns))[taken]
            sustained = np.isin(stratum, np.unique(stratum[~np.isnan(columns["power_w"][taken])]))
        if free is not None:
            sustained &= ~free(columns)[taken] | (flaws == _WEAK)
        return {
            "left_out": np.where(waiting, _HOST, np.where(too_quick & ~wrong, _IMPOSSIBLE, "")).tolist(),
            "sustained": sustained.tolist(),
            "usable": (~wrong).tolist(),
            "power_usable": (flaws == "").tolist(),
            "remark": np.where(wrong, _MISREAD, flaws).tolist(),
        }

    return KernelTable(
        words=("stack", "kernel", "precision", *words),
        sizes=sizes,
        even=setting,
        operation=operation,
        engine=lambda row: str(row["stack"]),
        known={
            "stack": lambda stacks: {stack for stack in stacks if stack.split()[:1] and stack.split()[0] in _ENGINES},
            "precision": _PRECISIONS,
        },
        skip={_SPIKE: lambda columns: spikes(columns["time_us"], *order(columns)), **(skip or {})},
        judge=judged,
        has_power=has_power,
    )


# Up to this share of the cap, vLLM's attention on an H200 takes 0.82 to 0.85 of the time of SGLang's; at the cap 1.03.
_FREE = 0.7


def _free_in_vllm(columns: Columns) -> Flags:
    """Which runs of vLLM count as bursts, because they drew too little for the power cap to lower their clock.

    Every run whose power was read lasted long enough for that. Other engines were also run in bursts.
    """
    in_vllm = np.char.startswith(columns["stack"].astype(str), "vllm")
    found: Flags = in_vllm & (columns["power_w"] < _FREE * columns["power_limit_w"])
    return found


def _power_flaws(columns: Columns, group: Values, along: Values) -> Values:
    """Why the power of each row is implausible; empty where it is plausible or was not measured."""
    power_w = columns["power_w"]
    flaws, measured = np.full(len(power_w), "", dtype=object), ~np.isnan(power_w)
    short = measured & (columns["time_us"] < _LEAST_POWER_US)
    flaws[short] = _SHORT
    whole = np.flatnonzero(measured & ~short)
    near = _neighbours(power_w[whole], group[whole], along[whole], (-3, -2, -1, 1, 2, 3))
    typical_w, known = np.full(len(whole), np.nan), ~np.isnan(near).all(axis=0)
    typical_w[known] = np.nanmedian(near[:, known], axis=0)
    # Far below its neighbours: the sensor missed a part of the run.
    flaws[whole[power_w[whole] < _WEAK_POWER * typical_w]] = _WEAK
    for gpu, stack in _STALE_STACKS:
        flaws[measured & (columns["gpu"] == gpu) & (columns["stack"] == stack)] = _STALE
    return flaws


def _neighbours(values: Values, group: Values, along: Values, places: tuple[int, ...]) -> Values:
    """For each row, the values of its neighbours in its group, NaN beyond the ends; shape (neighbours, rows)."""
    order = np.lexsort((along, group))
    sorted_values, sorted_group = values[order].astype(float), group[order]
    near = np.full((len(places), len(values)), np.nan)
    for row, place in enumerate(places):
        rolled, same = np.roll(sorted_values, -place), np.roll(sorted_group, -place) == sorted_group
        same[: max(0, -place)] = False
        same[len(same) - max(0, place) :] = False
        near[row, order] = np.where(same, rolled, np.nan)
    return near


_SPIKED = 1.5


def spikes(time_us: Values, group: Values, along: Values) -> Flags:
    """Find rows that take more than 1.5 times as long as all four nearest neighbours, or less than 1 / 1.5 of that.

    Rows with the same number of a group can be neighbours, and are sorted along a size.
    """
    near = _neighbours(time_us, group, along, (-2, -1, 1, 2))
    # Rows at the ends have fewer than four neighbours. They never count as spikes, because comparisons with NaN are
    # false.
    found: Flags = (time_us > _SPIKED * near.max(axis=0)) | (_SPIKED * time_us < near.min(axis=0))
    return found


# A replayed graph of the smallest operations takes 2 to 15 us. Where the quickest takes longer, each call waited for
# the host (vLLM's block-wise fp8: 50 us on an H200, 146 us on a B200). Calls of up to this multiple of the quickest
# may have waited for the host as well.
_SMALL_S = 3e-6
_HOST_BOUND = 2.5


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


_TOLERANCE = 1.03


def least_time_s(operation: Operation, gpu: GPU) -> float:
    """Least seconds by the data sheet: arithmetic at the boost clock, and the memory traffic that exceeds the L2 cache.

    Measurements are repeated, so data of the previous run may still be in the L2 cache. For layers of experts, the
    source states neither which experts got tokens, nor whether they have a gate. Without a gate they need two products
    instead of three.
    """
    if "gpus" in operation.attributes:
        bandwidth = gpu.link_bandwidth if operation.attributes["link"] == "nvlink" else gpu.pcie_bandwidth
        sent = sent_elements(operation.kind, operation.input_shapes, operation.attributes)
        return ELEMENT_BYTES[operation.precision] * sent / (bandwidth or np.inf) / _TOLERANCE
    clocks = gpu.boost_clock_mhz / (gpu.tensor_clock_mhz or gpu.boost_clock_mhz)
    flops, moved = float(operation.flops), operation.bytes_read + operation.bytes_written - gpu.l2_bytes
    if operation.kind == "experts":
        balanced = operation.attributes["distribution"] == "balanced"
        flops, moved = flops * 2 / 3 if balanced else 0.0, 0
    compute_s = flops / (gpu.peak_flops[operation.precision] * clocks)
    return max(compute_s, max(0, moved) / gpu.memory_bandwidth) / _TOLERANCE


# Where more than this share of a stack's large rows beat the data sheet, the recorded sizes must be wrong.
_MISREAD_SHARE = 0.1


def misread(too_quick: Flags, large: Flags, stratum: Values) -> Flags:
    """Find rows of strata, measured in the same way, whose large rows too often beat the data sheet."""
    count = int(stratum.max(initial=-1)) + 1
    beaten = np.bincount(stratum, too_quick & large, count)
    told = np.bincount(stratum, large, count)
    flagged: Flags = (beaten > _MISREAD_SHARE * np.maximum(told, 1))[stratum]
    return flagged


TABLES: Mapping[str, KernelTable] = {
    "linear": _table(_linear, (), ("m", "n", "k"), ("m",), has_power=True),
    "attention": _table(
        _attention,
        ("phase", "cache_precision"),
        ("batch", "tokens", "cached", "heads", "kv_heads", "head_size", "window"),
        ("tokens", "cached"),
        has_power=True,
        free=_free_in_vllm,
    ),
    "experts": _table(
        _experts,
        ("distribution",),
        ("tokens", "hidden", "intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel"),
        ("tokens",),
        # These are several kernels: sorting, two products with an activation in between, and the sum.
        graph_s=60e-6,
    ),
    "collectives": _table(
        _collective,
        ("collective",),
        ("gpus", "message_size"),
        ("message_size",),
        skip={
            "int8, which takes as long as half as many elements of half precision": lambda c: c["precision"] == "int8",
            "eager calls, which wait for the host": lambda c: np.char.endswith(c["kernel"].astype(str), "_eager"),
        },
    ),
}


@importer
def import_aiconfigurator2026(folder: str | Path, *, rows: int | None = 60_000) -> list[Dataset]:
    """Read the source as one Dataset per GPU, at its highest clock; single tables may be missing, but not all.

    Of each table at most so many rows are sampled evenly from GPUs, engines and precisions; None for all, which take
    minutes to build, and hours to fit. Raises DatasetError: a file is damaged, there is none, or rows are of unknown
    GPUs, engines or precisions.
    """
    folder = Path(folder)
    present = [name for name in TABLES if (folder / f"{name}.parquet").is_file()] or list(TABLES)[:1]
    found: dict[str, Found] = defaultdict(Found)
    for name in tracked(present, "tables"):
        TABLES[name].read(folder / f"{name}.parquet", "aiconfigurator2026", found, rows, name)
    return [_dataset(gpu, mine) for gpu, mine in sorted(found.items())]


def _dataset(gpu: str, found: Found) -> Dataset:
    card = card_of(
        "aiconfigurator2026",
        gpu,
        sensor="NVML, board power every 100 ms, mean of the run" if found.power_limits_w else "none",
        software={"engines": ", ".join(sorted({m.engine for m in found.measurements})), "driver": "unknown"},
        power_limit_w=min(found.power_limits_w, default=None),
        limits=(
            "the clock was not recorded; the instructions ask for the highest",
            *found.limits(),
            "vLLM leaves bf16 weights uninitialized, maybe zero: its power may be too low where the cap does not hold "
            "it, and its best rates too high",
        ),
    )
    return Dataset(card, tuple(found.measurements))
