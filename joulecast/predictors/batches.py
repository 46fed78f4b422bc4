"""Many rows through regressors: similar rows after one another, and on all cores.

Trees are sequences of comparisons, and a processor predicts the outcome of each. It predicts right where neighbouring
rows take the same branches, so thousands of sorted rows take half the time. ONNX Runtime and matrix products release
Python's global lock, so that threads help.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_MANY = 512
"""Number of rows from which sorting them pays."""

_PER_THREAD = 2048
"""Rows per thread below which another thread costs more than it gains."""

_MOST_THREADS = 16

Piece = TypeVar("Piece")
Made = TypeVar("Made")
Ask = Callable[[NDArray[np.float32]], Any]


def cores() -> int:
    """Cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)


def in_batches(
    work: Callable[[NDArray[np.float32]], Sequence[FloatArray]], rows: NDArray[np.float32], likeness: Sequence[Any]
) -> list[FloatArray]:
    """Apply a function to rows, in an order and in pieces that suit the processor.

    Args:
        work: Maps rows to arrays with one value per row. It is called from several threads where there are many rows.
        rows: Inputs, shape (rows, columns).
        likeness: Sort keys, arrays of shape (rows,), the most important first: rows with close keys are similar.
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


def asked_together(regressors: Sequence[Ask], tables: Sequence[NDArray[np.float32]]) -> list[FloatArray]:
    """Ask regressors for tables, each regressor once for all of its tables.

    Returns:
        The values that its regressor gives for the rows of each table, shape (rows,).
    """
    if len(tables) == 1:  # Without copies, which take as long as trees take for a few rows.
        return in_batches(partial(_alone, regressors[0]), tables[0], [tables[0][:, 0]])
    places: dict[Ask, list[int]] = {}
    for place, regressor in enumerate(regressors):
        places.setdefault(regressor, []).append(place)
    found: dict[int, FloatArray] = {}
    for regressor, some in places.items():
        table = np.concatenate([tables[place] for place in some])
        (values,) = in_batches(partial(_alone, regressor), table, [table[:, 0]])
        ends = np.cumsum([len(tables[place]) for place in some])[:-1]
        found.update(zip(some, np.split(values, ends), strict=True))
    return [found[place] for place in range(len(tables))]


def _alone(ask: Ask, rows: NDArray[np.float32]) -> list[FloatArray]:
    return [np.asarray(ask(rows))]


def over_cores(work: Callable[[Piece], Made], pieces: Sequence[Piece]) -> list[Made]:
    """Apply a function to each piece, on all cores."""
    if len(pieces) < 2 or cores() < 2:
        return [work(piece) for piece in pieces]
    # Otherwise numpy would start as many threads again inside each of ours, and they would wait for each other.
    with _blas().limit(limits=1, user_api="blas"):
        return [*_threads().map(work, pieces)]


@lru_cache(maxsize=1)
def _blas() -> Any:
    # Imported here, because finding the libraries takes milliseconds and few questions have so many rows.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    # Imported here like threadpoolctl: a network is predicted without threads.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(cores(), thread_name_prefix="joulecast-batch")


def load_threads() -> None:
    """Load now what `over_cores` needs. In the midst of a large question it would scatter over memory, and hold it."""
    over_cores(str, range(2 * cores()))
