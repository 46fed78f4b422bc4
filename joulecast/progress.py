"""What takes long: a bar on the terminal that shows how much is done, and places where it may stop or pause.

Only a terminal gets a bar. Where standard error is a file or a pipe, nothing is written, so that logs stay readable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")

PACE: ContextVar[Callable[[], None]] = ContextVar("PACE", default=lambda: None)
"""Function that is called between the parts of a long computation. A service pauses there, or raises `StoppedError`."""


class StoppedError(BaseException):
    """Nobody waits for the result any more. No part of a computation may take this for an error of its own."""


def paced(items: Iterable[Item]) -> Iterator[Item]:
    """Give the parts of a computation one after the other; it may pause or stop before each of them."""
    for item in items:
        PACE.get()()
        yield item


def tracked(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Give items one after the other, and show on the terminal how many are done: all before the one that is asked for.

    `what` they are, such as "folds", is the text before the bar. Without a total it is the length of the items, if any.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    try:
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import track
    except ImportError:  # newer versions of typer may come without it
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    done = iter(items)
    try:
        # The bar goes away when all is done: what remains on the terminal is the answer.
        yield from track(done, what, total=total, console=Console(stderr=True), transient=True)
    except LiveError:  # A bar is shown already: these items are a part of a larger task.
        yield from done
