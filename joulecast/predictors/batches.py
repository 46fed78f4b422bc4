"""Many rows through regressors: like after like, and on all cores.

Trees decide by comparisons, and a processor guesses how each will come out: where neighbours take the same ways, it
guesses right, and thousands of rows take half the time. ONNX Runtime and products of matrices let go of Python's lock,
so that threads share what is left of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray

_MANY = 512
"""Rows from which an order pays."""

_PER_THREAD = 2048
"""Rows below which a thread more costs what it gains."""

_MOST_THREADS = 16

Piece = TypeVar("Piece")
Made = TypeVar("Made")


def cores() -> int:
    """Cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)


def in_batches(
    work: Callable[[NDArray[np.float32]], Sequence[FloatArray]], rows: NDArray[np.float32], likeness: Sequence[Any]
) -> list[FloatArray]:
    """What `work` makes of rows, each for itself; in any order and number at once.

    Args:
        work: Maps some rows to arrays of as many values; called from several threads where there are many rows.
        rows: A matrix.
        likeness: Arrays with a number for each row, the most important first: where they are close, rows are alike.
    """
    if len(rows) < _MANY:
        return list(work(rows))
    order = np.lexsort([*reversed(likeness)])
    pieces = np.array_split(order, max(1, min(cores(), len(rows) // _PER_THREAD)))
    parts = [rows[piece] for piece in pieces]
    made = over_cores(work, parts)
    found = []
    for columns in zip(*made, strict=True):
        values = np.empty(len(rows))
        values[order] = np.concatenate(columns)
        found.append(values)
    return found


def over_cores(work: Callable[[Piece], Made], pieces: Sequence[Piece]) -> list[Made]:
    """What `work` makes of each piece, on all cores."""
    if len(pieces) < 2 or cores() < 2:
        return [work(piece) for piece in pieces]
    # Else numpy starts as many threads again in each of ours, and they wait for each other.
    with _blas().limit(limits=1, user_api="blas"):
        return [*_threads().map(work, pieces)]


@lru_cache(maxsize=1)
def _blas() -> Any:
    # Here, because it takes milliseconds to find the libraries, and few ask for that many.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="joulecast-batch")
