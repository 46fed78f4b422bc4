"""Bounded caches of results about networks and operations, because several parts of a prediction need the same ones.

`OperationList.derived` keeps a result as long as its list lives. That suits results that do not depend on the GPU. A
service holds hundreds of networks, and a search predicts each on every GPU, so results for a GPU are cached here, and
the oldest are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

from ...operations.operation import Operation
from ...operations.operation_list import OperationList

_LONGEST = 512  # Operations. A longer list is hardly a network, and its results would fill the memory.
_OPERATION_BYTES = 3_000  # Size of an operation and its cached result: 2,500 on average, measured with tracemalloc.
_MOST_INPUTS = 16  # An operation with more inputs may be of any size, so its result is not cached.

Others = ParamSpec("Others")
Made = TypeVar("Made")


def cached(
    most: int,
) -> Callable[[Callable[Concatenate[OperationList, Others], Made]], Callable[Concatenate[OperationList, Others], Made]]:
    """Cache the last results of a function of an operation list; callers must not change them.

    Args:
        most: Number of results that are cached at most.
    """

    def with_cache(
        make: Callable[Concatenate[OperationList, Others], Made],
    ) -> Callable[Concatenate[OperationList, Others], Made]:
        known = lru_cache(most)(make)

        @wraps(make)
        def made(operations: OperationList, /, *others: Others.args, **named: Others.kwargs) -> Made:
            of = known if len(operations) <= _LONGEST else make
            return of(operations, *others, **named)  # type: ignore[arg-type]  # (lru_cache loses the parameters' types)

        return made

    return with_cache


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


ON_EACH_GPU = 128
"""Number of cached results for functions that a search calls for every GPU in two precisions."""
