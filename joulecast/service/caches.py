"""Bounded caches, which drop the values that have not been used for longest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import chain
from typing import Generic, TypeVar

from ..operations.network import Network

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


_ENTRY_BYTES = 3_000  # bytes of an operation with its shapes and attributes, measured
_TEXT_BYTES = 120  # bytes of a short string besides its characters, and of its references in two lists


def network_bytes(network: Network) -> int:
    """Estimated memory of a network, including the paths of its modules."""
    texts = chain(
        *(entry.module_paths for entry in network),
        *((*dropped.module_paths, dropped.name, dropped.reason) for dropped in network.dropped),
    )
    return _ENTRY_BYTES * len(network) + sum(_TEXT_BYTES + len(text) for text in texts)


class BoundedCache(Generic[Key, Value]):
    """A cache of the most recently used values, as many as fit. Safe to use from several threads.

    Args:
        most: Limit on the sum of the sizes of all values.
        size_of: Function that gives the size of a value. By default every value counts 1, so that `most` is a number.
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
        """The value of a key, or None where it is not in the cache."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                self.misses += 1
                return None
            self.hits += 1
            self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Store a value, and drop those that have not been used for longest until all fit."""
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
