"""Caches that are bounded: what was used last stays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """The values that were used last, as many as fit. Safe to use from several threads.

    Args:
        most: Sum of the sizes of all values that are kept.
        size_of: Size of a value; one each by default, so that `most` is their number.
    """

    def __init__(self, most: int, size_of: Callable[[Value], int] = lambda value: 1) -> None:
        self._most = most
        self._size_of = size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Key) -> Value | None:
        """The value, or None."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                self.misses += 1
                return None
            self.hits += 1
            self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, and drop what has not been used for longest where there is no room."""
        added = self._size_of(value)
        if added > self._most:
            return
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self.size -= self._size_of(old)
            self._values[key] = value
            self.size += added
            while self.size > self._most:
                _, dropped = self._values.popitem(last=False)
                self.size -= self._size_of(dropped)

    def __len__(self) -> int:
        return len(self._values)
