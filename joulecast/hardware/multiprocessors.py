"""The memory inside a multiprocessor, which follows from its compute capability."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Multiprocessor(NamedTuple):
    """Memory of one multiprocessor; on AMD GPUs of a compute unit.

    Args:
        l1_bytes: L1 cache. On NVIDIA's GPUs from Volta on, it includes the shared memory, which is a part of it.
        shared_memory_bytes: Most bytes that kernels may use as shared memory (AMD: local data share).
        source: Source of the figures.
    """

    l1_bytes: int
    shared_memory_bytes: int
    source: str


@cache
def multiprocessors() -> Mapping[str, Multiprocessor]:
    """Compute capability ("8.0") or AMD's LLVM target ("gfx90a") -> memory of a multiprocessor."""
    text = files(__package__).joinpath("gpus", "multiprocessors.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["multiprocessor"]
    return {row.pop("compute_capability"): Multiprocessor(**row) for row in rows}
