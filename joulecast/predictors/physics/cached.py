"""A bounded cache of results about networks on GPUs, since several parts of a prediction ask for the same ones.

Results are cached here and not with the operations (OperationList.derived), because services hold hundreds of networks,
and a search asks for each on every GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

from ...operations.operation import Operation
from ...operations.operation_list import OperationList

_LONGEST = 512  # Operations; a longer list is hardly a network, and would fill the memory.
_OPERATION_BYTES = 3_000  # of an operation with what is read off it: 2,500 on average, measured with tracemalloc
_MOST_INPUTS = 16  # An operation with more of them may be of any size, so nothing about it is cached.

Others = ParamSpec("Others")
Made = TypeVar("Made")


def cached(
    most: int,
) -> Callable[[Callable[Concatenate[OperationList, Others], Made]], Callable[Concatenate[OperationList, Others], Made]]:
    """Cache the last results of a function; callers must not change them.

    Args:
        most: How many results.
    """

    def keeping(
        make: Callable[Concatenate[OperationList, Others], Made],
    ) -> Callable[Concatenate[OperationList, Others], Made]:
        known = lru_cache(most)(make)

        @wraps(make)
        def made(operations: OperationList, /, *others: Others.args, **named: Others.kwargs) -> Made:
            of = known if len(operations) <= _LONGEST else make
            return of(operations, *others, **named)  # type: ignore[arg-type]  # (lru_cache forgets what it takes)

        return made

    return keeping


def cached_by_operation(most_bytes: int) -> Callable[[Callable[[Operation], Made]], Callable[[Operation], Made]]:
    """Cache what a function says of operations, in about so much memory; callers must not change it.

    Args:
        most_bytes: Memory of the operations and of what is said of them.
    """

    def keeping(make: Callable[[Operation], Made]) -> Callable[[Operation], Made]:
        known = lru_cache(most_bytes // _OPERATION_BYTES)(make)

        @wraps(make)
        def made(operation: Operation) -> Made:
            return known(operation) if len(operation.input_shapes) <= _MOST_INPUTS else make(operation)

        return made

    return keeping


ON_EACH_GPU = 128
"""Cached results where a search asks for every GPU in two precisions."""
