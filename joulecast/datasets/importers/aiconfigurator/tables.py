"""The tables of aiconfigurator2026: the columns that describe a measurement, and the operation that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ....hardware import find_gpu
from ....operations.operation import Operation
from ..parquet_columns import Columns

Row = Mapping[str, Any]

# The source's name of a precision -> precision, and whether blocks of values share a scale.
_PRECISIONS: Mapping[str, tuple[str, bool]] = {
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
        file: Name of the file.
        words: Text columns that describe what was measured, besides gpu, stack, kernel and precision.
        sizes: Integer columns that describe what was measured.
        along: Function from the columns to the size by which neighbouring rows are sorted.
        not_along: Sizes in which neighbours differ, because `along` is computed from them.
        has_power: Whether it has power_w and power_limit_w.
        graph_s: Most seconds that a replayed graph of the smallest operations takes.
        skip: Reason -> function from the columns to the rows that are left out for it.
        operation: Function from a row to the operation that was measured.
    """

    file: str
    words: tuple[str, ...]
    sizes: tuple[str, ...]
    along: Callable[[Columns], npt.NDArray[Any]]
    not_along: tuple[str, ...]
    has_power: bool
    operation: Callable[[Row], Operation]
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


def known_precisions() -> tuple[str, ...]:
    """The source's names of precisions."""
    return tuple(_PRECISIONS)


def _linear(row: Row) -> Operation:
    precision, block_scaled = _PRECISIONS[row["precision"]]
    implementation = engine(row["stack"])
    if precision == "bf16" and implementation == "sglang":
        implementation = "pytorch"  # SGLang measured torch.nn.functional.linear.
    attributes = {
        "out_features": row["n"],
        "bias": False,
        "block_scaled": block_scaled,
        "implementation": implementation,
    }
    return Operation("linear", [(row["m"], row["k"])], attributes, precision=precision)


def _attention(row: Row) -> Operation:
    precision, _ = _PRECISIONS[row["precision"]]
    keys = row["tokens"] + row["cached"]
    attributes: dict[str, Any] = {"causal": row["phase"] == "context", "implementation": engine(row["stack"])}
    # A window that includes all keys has no effect.
    if 0 < row["window"] < keys:
        attributes["window"] = row["window"]
    if row["cache_precision"] not in ("", row["precision"]):
        attributes["cache_precision"] = _PRECISIONS[row["cache_precision"]][0]
    cache = (row["batch"], row["kv_heads"], keys, row["head_size"])
    queries = (row["batch"], row["heads"], row["tokens"], row["head_size"])
    return Operation("attention", [queries, cache, cache], attributes, precision=precision)


LINEAR = SourceTable(
    file="linear.parquet",
    words=(),
    sizes=("m", "n", "k"),
    along=lambda columns: columns["m"],
    not_along=("m",),
    has_power=True,
    operation=_linear,
)
ATTENTION = SourceTable(
    file="attention.parquet",
    words=("phase", "cache_precision"),
    sizes=("batch", "tokens", "cached", "heads", "kv_heads", "head_size", "window"),
    along=lambda columns: columns["tokens"] + columns["cached"],
    not_along=("tokens", "cached"),
    has_power=True,
    operation=_attention,
)


def _experts(row: Row) -> Operation:
    precision, block_scaled = _PRECISIONS[row["precision"]]
    names = ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel", "distribution")
    attributes = {name: row[name] for name in names} | {"block_scaled": block_scaled}
    attributes["implementation"] = "flashinfer" if "flashinfer" in row["kernel"] else engine(row["stack"])
    return Operation("experts", [(row["tokens"], row["hidden"])], attributes, precision=precision)


EXPERTS = SourceTable(
    file="experts.parquet",
    words=("distribution",),
    sizes=("tokens", "hidden", "intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel"),
    along=lambda columns: columns["tokens"],
    not_along=("tokens",),
    has_power=False,
    operation=_experts,
    # These are several kernels: sorting, two products with an activation in between, and the sum.
    graph_s=60e-6,
)

_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}


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
    return Operation(kind, [(elements,)], attributes, precision=_PRECISIONS[row["precision"]][0])


COLLECTIVES = SourceTable(
    file="collectives.parquet",
    words=("collective",),
    sizes=("gpus", "message_size"),
    along=lambda columns: columns["message_size"],
    not_along=("message_size",),
    has_power=False,
    operation=_collective,
    skip={
        "int8, which takes as long as half as many elements of half precision": lambda c: c["precision"] == "int8",
        "eager calls, which wait for the host": lambda c: np.char.endswith(c["kernel"].astype(str), "_eager"),
    },
)
TABLES: Mapping[str, SourceTable] = {
    "linear": LINEAR,
    "attention": ATTENTION,
    "experts": EXPERTS,
    "collectives": COLLECTIVES,
}
