"""Results about lists of operations on GPUs, computed once, because several parts of a prediction need the same ones.

`OperationList.derived` keeps a result as long as its list lives. That suits results that do not depend on the GPU. A
service holds hundreds of networks, and a search predicts each on every GPU, so results for a GPU are kept in the one
cache of all functions (`system/caches.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import ref

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
            RESULTS.put(self._key(operations, others), result, _RESULT_BYTES * len(operations))

    def _key(self, operations: OperationList, others: tuple[object, ...]) -> tuple[Any, ...]:
        """What is equal by being the same, such as a predictor with its trees, is not kept alive by its results."""
        by_value = (each if type(each).__hash__ is not object.__hash__ else ref(each) for each in others)
        return self._make, operations, *by_value
