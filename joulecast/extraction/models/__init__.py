"""Models by name or configuration, of torchvision, timm and transformers. One thread at a time builds or traces them.

Tracing, and building a model without weights, temporarily change global state of torch: hooks on all modules, autocast,
the training flag of the module, initialisation and the random state. Networks that come from the cache or a template do
not need the lock.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

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


@contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Within this context, a function of a module or class is another one in this thread, and itself in all others.

    The other one gets the original before its arguments.
    """
    mine, found = threading.get_ident(), inspect.getattr_static(owner, name)
    is_own, is_of_class = name in vars(owner), isinstance(found, classmethod)
    original = found.__func__ if is_of_class else found

    def run(*args: Any, **named: Any) -> Any:
        return function(original, *args, **named) if threading.get_ident() == mine else original(*args, **named)

    setattr(owner, name, classmethod(run) if is_of_class else run)
    try:
        yield
    finally:
        setattr(owner, name, found) if is_own else delattr(owner, name)
