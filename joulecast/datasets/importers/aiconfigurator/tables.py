"""The tables of aiconfigurator2026: which columns say what was measured, and which operation that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ....operations.operation import Operation
from ..parquet_columns import Columns

Row = Mapping[str, Any]

# The source's word -> precision, and whether blocks share a scale.
_PRECISIONS: Mapping[str, tuple[str, bool]] = {
    "bfloat16": ("bf16", False),
    "fp8": ("fp8", False),
    "fp8_block": ("fp8", True),
    "nvfp4": ("nvfp4", False),
}
_IMPLEMENTATIONS = {"sglang": "sglang", "trtllm": "tensorrt_llm", "vllm": "vllm"}


@dataclass(frozen=True)
class SourceTable:
    """A table of the source.

    Args:
        file: Its name.
        words: Columns of texts that say what was measured, beside gpu, stack, kernel and precision.
        sizes: Columns of integers that say what was measured.
        along: A size that grows along each row of neighbours, from the columns.
        not_along: Sizes that neighbours do not have in common, because `along` follows from them.
        has_power: Whether it has power_w and power_limit_w.
        operation: The operation that a row measured.
    """

    file: str
    words: tuple[str, ...]
    sizes: tuple[str, ...]
    along: Callable[[Columns], npt.NDArray[Any]]
    not_along: tuple[str, ...]
    has_power: bool
    operation: Callable[[Row], Operation]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        power = ("power_w", "power_limit_w") if self.has_power else ()
        return (*self.named, *self.sizes, "time_us", *power)

    @property
    def named(self) -> tuple[str, ...]:
        """Columns of texts."""
        return ("gpu", "stack", "kernel", "precision", *self.words)


def engine(stack: str) -> str:
    """Whose kernels a stack ("trtllm 1.0.0") calls, as the attribute `implementation` says it."""
    return _IMPLEMENTATIONS[stack.split()[0]]


def known_stacks(stacks: set[str]) -> set[str]:
    """The stacks whose engine is known."""
    return {stack for stack in stacks if stack.split()[:1] and stack.split()[0] in _IMPLEMENTATIONS}


def known_precisions() -> tuple[str, ...]:
    """The source's words for precisions."""
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
    # A window as wide as all keys is none.
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
TABLES: Mapping[str, SourceTable] = {"linear": LINEAR, "attention": ATTENTION}
