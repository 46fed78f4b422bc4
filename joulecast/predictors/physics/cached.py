"""What is computed once, because several parts of a prediction need the same: results about lists, rows of operations.

`OperationList.derived` keeps a result as long as its list lives. That suits results that do not depend on the GPU. A
service holds hundreds of networks, and a search predicts each on every GPU, so results for a GPU are kept in the one
cache of all functions (`system/caches.py`; see `cached`).

The thousands of candidates of an architecture search share most operations, and a network at a new input size shares
many with the one before. So what depends on an operation alone is a row of a table (`OperationRows`), computed once for
each operation of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import ref

import numpy as np

from ...arrays import FloatArray
from ...hardware import Boards
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...system.caches import RESULTS

_RESULT_BYTES = 500
"""Memory of a result for each operation of its list, with a part of the list itself: 480 bytes of DenseNet-121 on one
GPU, measured with tracemalloc."""
_MOST_OF_ONE = 5_000  # As many as a service takes. A longer list is hardly a network.

Others = ParamSpec("Others")
Made = TypeVar("Made")


class cached(Generic[Others, Made]):  # noqa: N801  (a decorator)
    """Keep the results of a function of an operation list; callers must not change them.

    Equal lists share a result. All other arguments are part of the key, such as the GPU.

    Args:
        make: The function.
    """

    def __init__(self, make: Callable[Concatenate[OperationList, Others], Made]) -> None:
        self._make = make
        update_wrapper(self, make)

    def __call__(self, operations: Sequence[Operation], /, *others: Others.args, **named: Others.kwargs) -> Made:
        """The result that is kept, or that of the function."""
        operations = OperationList.of(operations)
        if len(operations) > _MOST_OF_ONE:  # Nothing is kept, and a look-up would hash every operation.
            return self._make(operations, *others, **named)
        found: Made | None = RESULTS.get(self._key(operations, others))
        if found is None:
            found = self._make(operations, *others, **named)
            self.put(found, operations, *others)
        return found

    def knows(self, operations: OperationList, *others: object) -> bool:
        """Whether a result is kept."""
        return RESULTS.get(self._key(operations, others)) is not None

    def put(self, result: Made, operations: OperationList, *others: object) -> None:
        """Keep a result that was computed together with others, such as on many GPUs at once."""
        if len(operations) <= _MOST_OF_ONE:
            gpus = max((len(each.each) for each in others if isinstance(each, Boards)), default=1)
            RESULTS.put(self._key(operations, others), result, _RESULT_BYTES * len(operations) * gpus)

    def _key(self, operations: OperationList, others: tuple[object, ...]) -> tuple[Any, ...]:
        """What is equal by being the same, such as a predictor with its trees, is not kept alive by its results."""
        by_value = (
            each if type(each).__hash__ is not object.__hash__ or each is None else ref(each) for each in others
        )
        return self._make, operations, *by_value


MOST_OPERATIONS = 25_000
"""Operations in a table before all are forgotten. They take 62 MB: 2,500 bytes each, measured with tracemalloc."""

_MOST_INPUTS = 16  # An operation with more inputs may be of any size, so it is not stored.
_FEWEST_ROWS = 256


class OperationRows:
    """A table with one row for each operation.

    Args:
        columns: Number of columns.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._places: dict[Operation, int] = {}
        self._table = np.empty((columns, 0))  # By column, as predictors read it.
        self._lock = Lock()

    def of(self, operations: OperationList, make: Callable[[OperationList], FloatArray]) -> FloatArray:
        """The rows of operations, shape (operations, columns), by columns in memory; stored, or made and then stored.

        A row depends on its operation alone.
        """
        with self._lock:
            at = np.array([self._places.get(operation, -1) for operation in operations], dtype=np.intp)
            found = np.take(self._table, at, axis=1) if self._table.size else np.empty((self._columns, len(at)))
        is_new = at < 0
        if is_new.any():
            some = operations.some(is_new)
            found[:, is_new] = made = make(some).T
            self._store(some, made)
        return found.T

    def _store(self, operations: OperationList, columns: FloatArray) -> None:
        """Store the columns of operations, as far as there is room; where there is none, all others are forgotten."""
        with self._lock:
            if len(operations) <= MOST_OPERATIONS < len(self._places) + len(operations):
                self._places = {}
            left = max(0, MOST_OPERATIONS - len(self._places))
            few = [place for place, each in enumerate(operations) if len(each.input_shapes) <= _MOST_INPUTS][:left]
            at = [self._places.setdefault(operations[place], len(self._places)) for place in few]
            needed, room = len(self._places), self._table.shape[1]
            if needed > room:
                larger = np.empty((self._columns, max(needed, 2 * room, _FEWEST_ROWS)))
                larger[:, :room] = self._table
                self._table = larger
            self._table[:, at] = columns[:, few]

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process makes its own.
        return type(self), (self._columns,)
