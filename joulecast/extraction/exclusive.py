"""One extraction at a time: tracing and building a model without weights change how torch works for the while.

Hooks on all modules, autocast, the train and eval flags of the module, initialisation and the random state belong to
the process, not to a thread. Threads that extract wait for each other; answers of caches and templates do not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LOCK = threading.RLock()


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """A function that no other thread runs at the same time, nor any other function made so."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _LOCK:
            return function(*args, **kwargs)

    return run
