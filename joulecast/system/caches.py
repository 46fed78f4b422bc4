"""What is kept because it was computed before: bounded in bytes, and dropped when it was not used for longest.

`RESULTS` holds what all functions of the library keep between questions, within one budget. Whatever it holds can be
computed again, so that a process that needs the memory may clear it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Any, Generic, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])

OPERATION_BYTES = 3_000
"""Memory of an operation with shapes, attributes, digest and what is derived of it: 2,500 on average (tracemalloc)."""

_SMALL_BYTES = 500  # of a number or a text, with the arguments that it was computed of


class BoundedCache(Generic[Key, Value]):
    """A cache of the most recently used values, as many as fit. Safe to use from several threads.

    `most_bytes` limits the sum of the sizes of all values, as `put` is told them.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        self.size = self.hits = self.misses = 0

    def get(self, key: Key) -> Value | None:
        """The value of a key, or None where it is not in the cache."""
        with self._lock:
            kept = self._values.get(key)
            if kept is None:
                self.misses += 1
                return None
            self.hits += 1
            self._values.move_to_end(key)
            return kept[0]

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        """Store a value, and drop those that have not been used for longest until all fit."""
        if size_bytes > self._most_bytes:
            return
        with self._lock:
            self.size += size_bytes - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, size_bytes
            while self.size > self._most_bytes:
                self.size -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self.size = 0

    def __len__(self) -> int:
        return len(self._values)


RESULTS: BoundedCache[Any, Any] = BoundedCache(32_000_000)
"""Results of all functions of the library that are kept between questions. A search over all GPUs fills it, and is no
quicker with ten times as much."""


def remembered(size_of: Callable[[Any], int] = lambda made: _SMALL_BYTES) -> Callable[[Function], Function]:
    """Keep the results of a function of hashable arguments in `RESULTS`; callers must not change them.

    `size_of` gives the bytes of a result and its arguments; by default those of a small one.
    """

    def with_cache(make: Function) -> Function:
        @wraps(make)
        def made(*given: Any) -> Any:
            result = RESULTS.get((make, *given))
            if result is None:
                result = make(*given)
                RESULTS.put((make, *given), result, size_of(result))
            return result

        return cast(Function, made)

    return with_cache
