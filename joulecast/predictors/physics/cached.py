"""What is computed once, because several parts of a prediction need the same: results about lists, rows of operations.

`OperationList.derived` keeps a result as long as its list lives. That suits results that do not depend on the GPU. A
service holds hundreds of networks, and a search predicts each on every GPU, so results for a GPU are kept in the one
cache of all functions (`system/caches.py`; see `cached`).

The thousands of candidates of an architecture search share most operations, and a network at a new input size shares
many with the one before. So what depends on an operation alone is a row of a table (`OperationRows`), computed once for
each operation of a process. All tables number operations alike, so that the operations themselves are stored once, and
the rows of a list of operations are one look-up in an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from threading import Lock
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

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

    def __call__(self, operations: OperationList, /, *others: Others.args, **named: Others.kwargs) -> Made:
        """The result that is kept, or that of the function."""
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
"""Operations that are numbered before all are forgotten. They take 62 MB: 2,500 bytes each, measured with
tracemalloc."""

_MOST_INPUTS = 16  # An operation with more inputs may be of any size, so it is not stored.
_FEWEST_ROWS = 256


class Places(NamedTuple):
    """Numbers of operations.

    Args:
        generation: How often all operations had been forgotten before; numbers of other generations mean other
            operations.
        numbers: The number of each operation, shape (operations,); -1 for one that is not stored.
    """

    generation: int
    numbers: NDArray[np.intp]


class _Numbering:
    """Numbers operations in the order in which they are first seen, and forgets all when there are too many."""

    def __init__(self) -> None:
        self._numbers: dict[Operation, int] = {}
        self._generation = 0
        self._lock = Lock()

    def of(self, operations: Sequence[Operation]) -> Places:
        with self._lock:
            found = [self._numbers.get(operation, -1) for operation in operations]
            new = found.count(-1)
            if len(operations) <= MOST_OPERATIONS < len(self._numbers) + new:
                self._numbers, self._generation, found = {}, self._generation + 1, [-1] * len(operations)
            if new:
                found = [self._number(*each) for each in zip(operations, found, strict=True)]
            return Places(self._generation, np.array(found, dtype=np.intp))

    def _number(self, operation: Operation, known: int) -> int:
        if known >= 0 or len(self._numbers) >= MOST_OPERATIONS or len(operation.input_shapes) > _MOST_INPUTS:
            return known
        return self._numbers.setdefault(operation, len(self._numbers))

    def is_current(self, places: Places) -> bool:
        return places.generation == self._generation


_NUMBERING = _Numbering()


def _places_of(operations: OperationList) -> Places:
    places = operations.derived(_NUMBERING.of)
    return places if _NUMBERING.is_current(places) else _NUMBERING.of(operations)


class OperationRows:
    """A table with one row for each operation.

    Args:
        columns: Number of columns. The first one must not be NaN, which marks a row that is not computed yet.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._generation = 0
        self._table = np.empty((columns, 0))  # By column, as predictors read it.
        self._lock = Lock()

    def of(self, operations: OperationList, make: Callable[[OperationList], FloatArray]) -> FloatArray:
        """The rows of operations, shape (operations, columns).

        A row depends on its operation alone.
        """
        found = self.known(operations)
        is_new = np.isnan(found[:, 0])
        if is_new.any():
            some = operations.some(is_new)
            found[is_new] = made = make(some)
            self.store(some, made)
        return found

    def known(self, operations: OperationList) -> FloatArray:
        """The stored rows of operations, shape (operations, columns); NaN for those that are not stored."""
        places = _places_of(operations)
        with self._lock:
            if places.generation != self._generation or not self._table.shape[1]:
                return np.full((self._columns, len(places.numbers)), np.nan).T
            # The last row stays NaN; it stands for all that are not stored (-1) or beyond the end.
            at = np.minimum(places.numbers, self._table.shape[1] - 1)
            rows: FloatArray = np.take(self._table, at, axis=1).T
        return rows

    def store(self, operations: OperationList, rows: FloatArray) -> None:
        """Store the rows of operations, shape (operations, columns)."""
        places = _places_of(operations)
        is_stored, needed = places.numbers >= 0, int(places.numbers.max(initial=-1)) + 2
        with self._lock:
            if places.generation < self._generation:
                return
            if places.generation > self._generation:
                self._generation, self._table = places.generation, np.empty((self._columns, 0))
            room = self._table.shape[1]
            if needed > room:
                larger = np.full((self._columns, max(needed, 2 * room, _FEWEST_ROWS)), np.nan)
                larger[:, :room] = self._table
                self._table = larger
            self._table[:, places.numbers[is_stored]] = rows[is_stored].T

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process numbers operations in another way.
        return type(self), (self._columns,)
