"""Results about lists of operations on GPUs, computed once, because several parts of a prediction need the same ones.

`OperationList.derived` keeps a result as long as its list lives. That suits results that do not depend on the GPU. A
service holds hundreds of networks, and a search predicts each on every GPU, so results for a GPU are kept here, for all
functions together, and the ones that were not used for longest are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, update_wrapper, wraps
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import ref

from ...operations.operation import Operation
from ...operations.operation_list import OperationList

# Operations of all lists whose results are kept, counted once for each result: 50 MB with the 200 bytes that a result
# has for each operation in the mean. A list with more than a share of them is hardly a network.
_MOST_OPERATIONS, _MOST_OF_ONE = 250_000, 2_000
_OPERATION_BYTES = 3_000  # Size of an operation and its cached result: 2,500 on average, measured with tracemalloc.
_MOST_INPUTS = 16  # An operation with more inputs may be of any size, so its result is not cached.
_MISSING = object()

Others = ParamSpec("Others")
Made = TypeVar("Made")


class _Results:
    """The results of all functions, the last used ones at the end."""

    def __init__(self, most_operations: int) -> None:
        self._most, self._operations = most_operations, 0
        self._known: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = Lock()

    def find(self, key: tuple[Any, ...]) -> Any:
        found = self._known.get(key, _MISSING)
        if found is not _MISSING:
            with suppress(KeyError):  # Another thread may have dropped it.
                self._known.move_to_end(key)
        return found

    def put(self, key: tuple[Any, ...], value: Any) -> None:
        with self._lock:
            if key not in self._known:
                self._operations += len(key[1])
            self._known[key] = value
            while self._operations > self._most:
                oldest, _ = self._known.popitem(last=False)
                self._operations -= len(oldest[1])


_RESULTS = _Results(_MOST_OPERATIONS)


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
        found: Made = _RESULTS.find(self._key(operations, others))
        if found is _MISSING:
            found = self._make(operations, *others, **named)
            self.put(found, operations, *others)
        return found

    def knows(self, operations: OperationList, *others: object) -> bool:
        """Whether a result is kept."""
        return _RESULTS.find(self._key(operations, others)) is not _MISSING

    def put(self, result: Made, operations: OperationList, *others: object) -> None:
        """Keep a result that was computed together with others, such as on many GPUs at once."""
        if len(operations) <= _MOST_OF_ONE:
            _RESULTS.put(self._key(operations, others), result)

    def _key(self, operations: OperationList, others: tuple[object, ...]) -> tuple[Any, ...]:
        """What is equal by being the same, such as a predictor with its trees, is not kept alive by its results."""
        by_value = (each if type(each).__hash__ is not object.__hash__ else ref(each) for each in others)
        return self._make, operations, *by_value


def cached_by_operation(most_bytes: int) -> Callable[[Callable[[Operation], Made]], Callable[[Operation], Made]]:
    """Cache the results of a function of one operation, within a limit of memory; callers must not change them.

    Args:
        most_bytes: Bytes that operations and results together take at most, estimated from the average size.
    """

    def with_cache(make: Callable[[Operation], Made]) -> Callable[[Operation], Made]:
        known = lru_cache(most_bytes // _OPERATION_BYTES)(make)

        @wraps(make)
        def made(operation: Operation) -> Made:
            return known(operation) if len(operation.input_shapes) <= _MOST_INPUTS else make(operation)

        return made

    return with_cache
