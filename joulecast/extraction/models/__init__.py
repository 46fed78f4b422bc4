"""Models by name or configuration, of torchvision, timm and transformers. One thread at a time builds or traces them.

Tracing, and building a model without weights, temporarily change global state of torch: hooks on all modules, autocast,
the training flag of the module, initialisation and the random state. Networks that come from the cache or a template do
not need the lock.
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
    """Decorator: at most one thread at a time runs any of the functions that are decorated with it."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _LOCK:
            return function(*args, **kwargs)

    return run
